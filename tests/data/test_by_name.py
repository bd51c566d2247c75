"""Data by name, and validation images that are nobody's training images."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

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


@pytest.mark.parametrize("share", [0.004, 1.0])
def test_hold_out_leaves_no_part_empty(share: float) -> None:
    assert text_of(lambda: numbered(100).hold_out(share=share)) == (
        f"share={share} of 100 images leaves nothing to train on or nothing to validate with; both "
        f"need at least one image: take more images, or another share, which a recipe calls "
        f"validation_share."
    )


@pytest.mark.parametrize("share", [float("nan"), float("inf"), "0.1", None])
def test_a_share_that_is_no_number_is_told(share) -> None:
    assert text_of(lambda: numbered(100).hold_out(share=share)) == (
        f"share must be a number from 0 to 1, but came as {share!r}; it is how much of the images "
        f"is held out."
    )


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


def test_pictures_of_a_folder_are_brought_to_a_size(tmp_path) -> None:
    for name, side in (("a", 4), ("b", 9)):
        (tmp_path / name).mkdir()
        for k in range(3):
            Image.new("L", (side, 5)).save(tmp_path / name / f"{k}.png")
    assert load("folder", root=tmp_path, size=(6, 7)).image_shape == (1, 6, 7)
    words = "choose one size for all, (height, width): size= in Python, --image-size 5x4 on the"
    assert words in text_of(lambda: load("folder", root=tmp_path))


def test_every_set_comes_in_the_size_that_is_asked_for() -> None:
    images = load("part-whole", split="test", size=(20, 24))
    assert isinstance(images, ImageSet)
    assert images.images.shape == (2_000, 1, 20, 24)
    assert images.truth is not None
    assert images.truth.size is None
    assert torch.equal(images.labels, load("part-whole", split="test").labels)


def test_own_images_have_no_name_to_load_them_by() -> None:
    assert text_of(lambda: load("own")) == (
        'data "own" stands for images that a Python program holds, and here is none; give them in '
        "Python: fit(recipe, out, own=(train, test))."
    )


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    text = text_of(lambda: load("part-hole"))
    assert text.startswith("data 'part-hole' is unknown; did you mean 'part-whole'? known: ")


def test_a_folder_in_the_place_of_a_name_is_told_with_the_two_that_it_takes(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "my pictures").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("my pictures", "not/here"):
        assert text_of(lambda name=name: load(name)) == (
            f"data '{name}' is a path, where data takes the name of a set; pictures of your own "
            f"are the set \"folder\", and root says where they lie: --data folder --root '{name}'."
        )


def test_an_unknown_split_is_told_with_the_nearest_and_the_way_to_validation() -> None:
    assert text_of(lambda: load("mnist", split="validation")) == (
        "split='validation' is unknown; known: test, train. Validation "
        "images come out of the training ones: images.hold_out."
    )
    assert "did you mean 'train'?" in text_of(lambda: load("mnist", split="trian"))


def test_mnist_without_a_folder_says_what_is_missing() -> None:
    assert text_of(lambda: load("mnist")) == (
        "mnist needs root, the folder that holds its four files (train-images-idx3-ubyte.gz and so "
        "on); on the command line: --root FOLDER, into which torchcaps data get mnist --root "
        "FOLDER fetches them."
    )


def test_part_whole_has_its_stated_sizes() -> None:
    images = load("part-whole", split="test")
    assert images.images.shape == (2_000, 1, 32, 32)
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


def test_a_name_or_a_split_that_is_no_text_is_a_sentence():
    assert text_of(lambda: load(None)).startswith("data 'None' is unknown; known: ")
    assert text_of(lambda: load("part-whole", split=5)).startswith("split=5 is unknown; ")


def test_groups_are_those_of_a_folder(tmp_path) -> None:
    for label in "ab":
        for number in range(8):
            path = tmp_path / "pets" / label / f"p{number // 2}{label}_{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (4, 5), 90).save(path)
    both = [
        load("folder", split=split, root=tmp_path / "pets", size=(3, 4), groups="p[0-9][ab]")
        for split in ("train", "test")
    ]
    assert [found.image_shape for found in both] == [(1, 3, 4)] * 2
    assert not set(both[0].groups) & set(both[1].groups)
    assert text_of(lambda: load("part-whole", groups="p")) == (
        'groups are read of the paths of pictures, so of data "folder" alone, but came with '
        "part-whole; from_arrays and from_dataset take a list of them."
    )
