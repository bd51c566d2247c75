"""Moved images, seen through networks whose answer to a move is known."""

import pytest
import torch

import traces
from torchcaps.data import part_whole
from torchcaps.types import Output
from torchcaps_claims.judges.mitterreiter import STATED
from torchcaps_claims.viewpoint import STRENGTHS, invariance_of, tree_size_of, trees_of

K, CHILDREN, PARENTS = 60, 3, 2


@pytest.fixture(scope="module")
def images():
    return part_whole("test", K)


def network(lengths, couplings):
    """Children of these lengths [b, i], and couplings [b, i, j], as functions of pixels."""

    def seen(pixels):
        trace = traces.network({"classes": couplings(pixels)}, {"primary": lengths(pixels)})
        return Output(torch.zeros(len(pixels), PARENTS), "lengths", trace=trace)

    return seen


def even(pixels):
    return torch.full((len(pixels), CHILDREN, PARENTS), 0.5)


def test_the_strengths_are_as_said_and_grow():
    names = [each.name for each in STRENGTHS]
    assert set(STATED) < set(names)
    assert len(set(names)) == len(names)
    for each in STRENGTHS:
        assert each.amount > 0


def test_a_constant_network_is_invariant_and_has_one_tree(images):
    seen = network(lambda pixels: torch.ones(len(pixels), CHILDREN), even)
    found = invariance_of(seen, images)
    assert found["activation_correlation"] == pytest.approx(1)
    assert found["corr.rotation 20°.1"] == pytest.approx(1)
    assert "pearson.rotation 20°.1" not in found
    trees = trees_of(seen, images)
    assert trees["distance.same"] == trees["distance.different"] == trees["distance.copy"] == 0
    # A copy is no nearer than an image of the same class, and its tree is the same all the same.
    assert trees["share_as_far"] == 0


def test_lengths_that_follow_one_corner_go_down_with_the_strength(images):
    """The length of each child is what is left of one quarter of its image."""

    def corner(pixels):
        left = pixels[..., :10, :10].mean((1, 2, 3))
        return left.unsqueeze(-1).expand(-1, CHILDREN) + 1e-3

    found = invariance_of(network(corner, even), images)
    assert found["spearman.rotation.1"] < 0
    assert found["corr.rotation 90°.1"] < found["corr.rotation 5°.1"] < 1


def test_trees_that_follow_the_class_are_near_in_it(images):
    """Couplings by the label: as far as can be from images of other classes, and no move matters to
    a network that has learnt its images by heart."""
    index = torch.arange(len(images))
    batch = images.batch(index)
    known = batch.pixels.flatten(1)

    def by_label(pixels):
        near = torch.cdist(pixels.flatten(1), known).argmin(1)
        side = (batch.labels[near] % 2).float()
        return torch.stack([side, 1 - side], -1).unsqueeze(1).expand(-1, CHILDREN, -1)

    found = trees_of(network(lambda pixels: torch.ones(len(pixels), CHILDREN), by_label), images)
    assert found["distance.same"] == 0
    assert 0 < found["distance.different"] < 1
    assert found["parse_tree_distance"] == found["distance.different"]
    assert found["distance.copy"] < 0.5


def test_neighbours_of_a_class_do_not_depend_on_how_many_are_seen_at_once(images, monkeypatch):
    """At the edge of a batch an image was compared with another class, or with itself."""

    def by_brightness(pixels):
        side = pixels.mean((1, 2, 3)) * 5 % 1
        return torch.stack([side, 1 - side], -1).unsqueeze(1).expand(-1, CHILDREN, -1)

    seen = network(lambda pixels: torch.ones(len(pixels), CHILDREN), by_brightness)
    found = []
    for at_once in (100, 7, 1):
        monkeypatch.setattr("torchcaps_claims.viewpoint.BATCH", at_once)
        found.append(trees_of(seen, images))
    whole, *others = found
    assert 0 < whole["share_as_far"] < 1
    for other in others:
        assert other == pytest.approx(whole, abs=1e-6)


def test_the_size_of_a_tree_is_a_mean_over_all_images(images):
    # Every second image has children that choose, each its parent; of the others none does.
    def coupling(pixels):
        chosen = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
        seen = (pixels.flatten(1).sum(1) > middle).view(-1, 1, 1)
        return torch.where(seen, chosen, torch.full_like(chosen, 0.5))

    middle = images.batch(torch.arange(K)).pixels.flatten(1).sum(1).median()
    found = tree_size_of(
        network(lambda pixels: torch.ones(len(pixels), CHILDREN), coupling), images
    )
    assert found == {"tree_size": 0.5}
