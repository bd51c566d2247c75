"""Data by name, and validation images that are nobody's training images."""

from dataclasses import replace

import pytest
import torch

from error_text import text_of
from torchcaps.data import SOURCES, ImageSet, load
from torchcaps.data.registry import HOLDS, PUBLISHED


def numbered(count: int) -> ImageSet:
    images = torch.arange(count, dtype=torch.uint8).reshape(count, 1, 1, 1)
    return ImageSet("numbered", images, torch.arange(count) % 7, tuple("abcdefg"))


def numbers(images: ImageSet) -> list[int]:
    return images.images.flatten().tolist()


@pytest.mark.parametrize(("share", "count"), [(0.1, 10), (0.5, 50), (0.25, 25)])
def test_hold_out_parts_the_images_without_loss(share: float, count: int) -> None:
    images = numbered(100)
    rest, held = images.hold_out(share=share, seed=4)
    assert len(held) == count
    assert sorted(numbers(rest) + numbers(held)) == list(range(100))
    for part in (rest, held):
        assert part.labels.tolist() == [n % 7 for n in numbers(part)]
        assert part.class_names == images.class_names


def test_hold_out_depends_on_its_seed_alone() -> None:
    before = numbers(numbered(100).hold_out(seed=4)[1])
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert numbers(numbered(100).hold_out(seed=4)[1]) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert len({str(numbers(numbered(100).hold_out(seed=seed)[1])) for seed in range(20)}) == 20
    # Held-out images are a draw of all of them, not the first or the last ones.
    assert max(before) > 50 > min(before)


def test_take_keeps_the_order_of_the_index() -> None:
    found = numbered(10).take(torch.tensor([7, 2, 2]))
    assert numbers(found) == [7, 2, 2]
    assert found.labels.tolist() == [0, 2, 2]


def test_take_takes_the_facts_of_the_same_images() -> None:
    images = replace(numbered(4), facts={"azimuth": torch.tensor([0, 20, 40, 60])})
    assert images.take(torch.tensor([3, 0])).facts["azimuth"].tolist() == [60, 0]


@pytest.mark.parametrize("name", sorted(HOLDS))
def test_data_of_files_without_a_folder_say_what_is_missing(name: str) -> None:
    text = text_of(lambda: load(name))
    assert text.startswith(f"{name} needs root, the folder that holds ")
    fetched = f", into which torchcaps data get {name} --root FOLDER fetches them"
    ending = fetched if name in PUBLISHED else ""
    assert text.endswith(f"; on the command line: --root FOLDER{ending}.")


@pytest.mark.parametrize("name", sorted(HOLDS))
@pytest.mark.parametrize("split", ["train", "test"])
def test_an_empty_folder_and_none_are_told(name: str, split, tmp_path) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        assert str(root) in text_of(lambda root=root: load(name, split=split, root=root))


def test_load_hands_split_and_root_to_the_source(monkeypatch, tmp_path) -> None:
    asked = []

    def source(split: str, root: object) -> ImageSet:
        asked.append((split, root))
        return numbered(3)

    monkeypatch.setitem(SOURCES, "numbered", source)
    assert numbers(load("numbered", split="test", root=tmp_path)) == [0, 1, 2]
    load("numbered")
    assert asked == [("test", tmp_path), ("train", None)]


def test_every_set_comes_in_the_size_that_is_asked_for() -> None:
    images = load("part-whole", split="test", size=(20, 24))
    assert isinstance(images, ImageSet)
    assert images.images.shape == (2_000, 1, 20, 24)
    assert images.truth is not None
    assert images.truth.size is None
    plain = load("part-whole", split="test")
    assert plain.images.shape == (2_000, 1, 32, 32)
    assert torch.equal(images.labels, plain.labels)
    assert sorted(set(images.labels.tolist())) == list(range(10))


@pytest.mark.parametrize("copies", [1, 10, 100, 1000])
def test_names_of_multi_mnist_say_how_many_partners_a_digit_has(monkeypatch, copies: int) -> None:
    monkeypatch.setattr("torchcaps.data.make.multi_mnist.mnist", lambda root, split: numbered(30))
    name = "multi-mnist" if copies == 1 else f"multi-mnist-{copies}"
    train, test = (load(name, split=split, root="any") for split in ("train", "test"))
    assert (len(train), len(test)) == (30 * copies, 30)
    first, second = train.batch(slice(None)).labels.unbind(1)
    assert first.tolist() == [n % 7 for n in range(30)] * copies
    assert (first != second).all()
