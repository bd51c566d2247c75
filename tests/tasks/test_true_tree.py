"""The true tree as a trace: parts of the whole lead to it, strays and absent parts to nothing."""

import torch

from torchcaps.data import part_whole
from torchcaps.data.part_truth import PART_NAMES, shown_parts
from torchcaps.tasks.true_tree import NOTHING, dissect_truth, true_tree


def test_parts_of_the_whole_lead_to_it_and_all_others_to_nothing():
    images = part_whole("test", 20)
    (layer,) = true_tree(images).trace
    coupling = layer.routed.steps[-1].coupling
    assert coupling.shape == (20, len(PART_NAMES), 11)
    shown = shown_parts(images.truth)
    for image in range(20):
        for part in range(len(PART_NAMES)):
            to = int(images.labels[image]) if shown[image, part] == 2 else 10
            assert coupling[image, part].tolist() == [float(k == to) for k in range(11)]
            assert layer.children.activation[image, part] == (shown[image, part] > 0)


def test_the_ruler_finds_a_tree_where_there_is_one():
    images = part_whole("test", 120)
    found = dissect_truth(images, example=3)
    said = {sentence.about: sentence.is_good for sentence in found.sentences}
    assert said == {"tree": True, "choice": True, "life": True, "count": None, "truth": True}
    assert (found.measured["fidelity"].edges, found.measured["fidelity"].tree) == (1, 1)
    assert found.dynamics.layers[0].strongest == 1
    # A tree a class, and one of what belongs to none, which no image is.
    assert found.tree_count == len(images.labels.unique())
    words = [text.get_text() for text in found.pictures[0].figure.axes[0].texts]
    assert {*images.class_names, *PART_NAMES, NOTHING} <= set(words)
    assert torch.equal(images.labels, part_whole("test", 120).labels)
