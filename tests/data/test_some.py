"""A few images of a set are a set themselves, and each is what it is in the whole set."""

from dataclasses import replace

import pytest
import torch

from error_text import text_of
from laid_images import labelled
from torchcaps.data import Cropped, Expanded, ImageSet, MultiMnist, sign_set, some_of


def numbered(count: int = 40) -> ImageSet:
    """Image n is of brightness n / 64 all over, and shows class n modulo four."""
    pixels = (torch.arange(count) / 64).view(-1, 1, 1, 1).expand(-1, 1, 28, 28)
    return labelled("numbered", pixels.clone(), 4)


def test_every_class_keeps_its_share() -> None:
    some = some_of(numbered(), 12)
    labels = some.batch(slice(None)).labels
    assert len(some) == len(labels) == 12
    assert labels.bincount().tolist() == [3, 3, 3, 3]


def test_images_made_on_demand_are_those_of_the_whole_set() -> None:
    whole = Expanded(numbered())
    some = some_of(whole, 7)
    index = some.index
    for epoch in (0, 3):
        here = some.batch(torch.tensor([6, 0]), epoch)
        there = whole.batch(index[[6, 0]], epoch)
        assert torch.equal(here.pixels, there.pixels)
        assert torch.equal(here.labels, there.labels)
    assert not torch.equal(some.batch(slice(None), 0).pixels, some.batch(slice(None), 1).pixels)


def test_labels_and_files_are_those_of_its_images() -> None:
    some = some_of(replace(numbered(), files=tuple(map(str, range(40)))), 9)
    assert torch.equal(some.labels, some.batch(slice(None)).labels)
    assert some.files == tuple(map(str, some.index.tolist()))
    none = some_of(MultiMnist(numbered()), 9)
    assert (none.labels, none.files, none.groups) == (None, None, None)


def test_groups_are_those_of_its_images_through_every_view() -> None:
    whole = replace(numbered(), groups=tuple(map(str, range(40))))
    some = some_of(Cropped(whole, (4, 4)), 9)
    assert some.groups == tuple(map(str, some.index.tolist()))
    assert some_of(numbered(), 9).groups is None


def test_held_out_images_are_no_others() -> None:
    some = some_of(numbered(), 20)
    rest, held = some.hold_out(share=0.25, seed=0)
    numbers = [(64 * part.batch(slice(None)).pixels[:, 0, 0, 0]).int() for part in (rest, held)]
    assert [len(part) for part in numbers] == [15, 5]
    assert torch.cat(numbers).sort().values.equal(some.index.int())


@pytest.mark.parametrize(
    "whole",
    [MultiMnist(numbered()), Expanded(numbered(), copies=2), sign_set(n=40)],
    ids=["pairs", "copies", "opposites"],
)
def test_images_that_belong_together_are_held_out_before_some_are_taken(whole) -> None:
    for some in (
        some_of(whole, 20),
        some_of(some_of(whole, 30), 20),
        Cropped(some_of(whole, 20), (1, 1)),
    ):
        assert text_of(lambda some=some: some.hold_out(share=0.25, seed=0)) == (
            f"images of {whole.name} are made of the same or belong together, and some of them "
            f"cannot be held out from others without a trace in both; hold out first and take "
            f"some of the rest, as a recipe does with train_images."
        )
    # An image of its own each: parted by number, no digit lies on both sides.
    rest, held = some_of(Expanded(numbered()), 20).hold_out(share=0.25, seed=0)
    assert (len(rest), len(held)) == (15, 5)
