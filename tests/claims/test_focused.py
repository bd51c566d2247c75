"""The share of saliency on the object, of networks whose maps are known."""

from dataclasses import replace

import pytest
import torch

import traces
from error_text import text_of
from torchcaps.data import ImageSet, load, part_masks
from torchcaps.study.look import looks_named
from torchcaps.types import Output
from torchcaps_claims.saliency import focus_of


@pytest.fixture(scope="module")
def images():
    return load("part-whole", split="test")


def network(lengths):
    """One that says class 0, with children of these lengths in 1 × 2 positions, coupled evenly."""

    def seen(pixels):
        n = len(pixels)
        coupling, row = torch.full((n, 2, 2), 0.5), torch.tensor([lengths] * n)
        (layer,) = traces.network({"classes": coupling}, {"primary": row})
        trace = (replace(layer, child_grid=(1, 2, 1)),)
        return Output(torch.tensor([[1.0, 0.0]] * n), "lengths", trace=trace)

    return seen


def object_of(images):
    """By a loop over images and slots."""
    masks = part_masks(images.truth, torch.arange(len(images)))
    whole = torch.zeros_like(masks[:, 0])
    for n, owners in enumerate(images.truth.owner.tolist()):
        for slot, owner in enumerate(owners):
            if owner == 0:
                whole[n] |= masks[n, slot]
    return whole.double()


def test_an_even_map_lies_on_the_object_as_far_as_the_object_reaches(images):
    found = focus_of(network([1.0, 1.0]), images)
    assert found["focus"] == pytest.approx(float(object_of(images).mean()), abs=1e-6)
    assert found["focus_known"] == 1


def test_a_map_of_one_side_sees_that_side(images):
    weight = torch.nn.functional.interpolate(
        torch.tensor([[[[1.0, 0.0]]]]).double(), size=(32, 32), mode="bilinear"
    )[0, 0]
    share = (object_of(images) * weight).sum((1, 2)) / weight.sum()
    found = focus_of(network([1.0, 0.0]), images)
    assert found["focus"] == pytest.approx(float(share.mean()), abs=1e-6)


def test_maps_that_are_zero_have_no_focus(images):
    assert focus_of(network([0.0, 0.0]), images) == {"focus_known": 0.0}


def test_images_that_do_not_tell_are_refused(images):
    (look,) = looks_named(["focus"], "part-whole")
    assert look.kind == "focus"
    half = ImageSet("part-whole", images.images[:9], images.labels[:9], images.class_names)
    assert text_of(lambda: focus_of(network([1.0, 1.0]), half)) == (
        "focus asks where the object is, which the images of part-whole do not tell; take the test "
        "images of part-whole."
    )
