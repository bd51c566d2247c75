"""What is held out does not depend on how many of the others are trained on."""

from dataclasses import replace

import pytest
import torch

from torchcaps.data import ImageSet, MultiMnist, sign_set, some_of
from torchcaps.train import make_recipe
from torchcaps.train.images import parted, watched


def numbered(count=60):
    """Image n is of brightness n / 64 all over."""
    pixels = (torch.arange(count) / 64).view(-1, 1, 1, 1).expand(-1, 1, 4, 4)
    return ImageSet("numbered", pixels.clone(), torch.arange(count) % 2, ("even", "odd"))


def numbers(images):
    return set((64 * images.batch(slice(None)).pixels[:, 0, 0, 0]).int().tolist())


def recipe(**changed):
    return make_recipe(model="mitterreiter_5x16", data="own", **changed)


def test_some_are_those_of_all_that_are_not_held_out():
    all_of_them, held = parted(recipe(), numbered())
    some, also_held = parted(recipe(train_images=20), numbered())
    assert len(some) == 20
    assert numbers(held) == numbers(also_held)
    assert numbers(some) < numbers(all_of_them)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_the_seed_draws_them(share):
    first, again, other = (
        parted(recipe(train_images=20, validation_share=share, seed=seed), numbered())[0]
        for seed in (0, 0, 1)
    )
    assert numbers(first) == numbers(again) != numbers(other)


# Pairs, of which a thousand are made of half a digit; some of a set, which can be parted no more;
# two groups of one class each, of which none could be held out.
@pytest.mark.parametrize(
    ("images", "count"),
    [
        (MultiMnist(numbered(), copies=2000), 1000),
        (some_of(sign_set(n=2000), 1500), 1000),
        (replace(numbered(), groups=tuple("ab" * 30)), 60),
    ],
    ids=["pairs", "some", "groups"],
)
def test_images_that_are_trained_on_are_measured_where_none_are_held_out(images, count):
    training, measured = watched(recipe(validation_share=0.0), images)
    assert training is images
    assert len(measured) == count
    index = getattr(measured, "index", torch.arange(count))
    known = images.batch(index[:3])
    assert torch.equal(measured.batch(slice(3)).pixels, known.pixels)
