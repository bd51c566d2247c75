"""The benchmark of trees: truth is read off the images, and a tiny run gives every number."""

import part_whole_trees
import pytest
import torch

from torchcaps.data import part_whole


def test_parts_are_read_off_the_truth():
    images = part_whole("test", 30, spec=part_whole_trees.SPEC)
    shown, truth = part_whole_trees.parts_of(images), images.truth
    for image in range(30):
        own = set(truth.part[image, truth.owner[image] == 0].tolist())
        there = set(truth.part[image, truth.part[image] >= 0].tolist())
        assert set((shown[image] == 2).nonzero().flatten().tolist()) == own
        assert set((shown[image] > 0).nonzero().flatten().tolist()) == there


@pytest.mark.slow
def test_a_tiny_run_has_every_number():
    images = part_whole("test", 60, spec=part_whole_trees.SPEC)
    found = part_whole_trees.run("supervised", 0, trained=images, test=images, epochs=1)
    assert found["fidelity"].keys() == {"primary", "hidden_2"}
    assert {row["layer"] for row in found["causal"]} == {"hidden_2", "classes", "all layers"}
    silenced = [(row["layer"], row["capsule"]) for row in found["silenced"]]
    assert silenced == [(layer, k) for layer in ("primary", "hidden_2") for k in range(16)]
    assert torch.isfinite(torch.tensor(found["accuracy"]))
