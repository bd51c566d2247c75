"""Reading a trace: joined batches are one batch, layers have names, capsules have lengths."""

from dataclasses import replace

import torch
from torch.utils import _pytree

from torchcaps.analysis import (
    capsule_activity,
    capsule_layers,
    join,
    lengths,
    routing_dynamics,
)
from torchcaps.analysis.trace import judged_answers, last_coupling, predicted_classes
from torchcaps.layers import Conv3dCapsules
from torchcaps.types import Capsules, LayerTrace
from traces import even, network, recoupled

COUPLING = torch.rand(7, 4, 3, generator=torch.Generator().manual_seed(1)).softmax(-1)
LENGTHS = torch.rand(7, 4, generator=torch.Generator().manual_seed(2))
WHOLE = network({"hidden": COUPLING, "classes": even(7, 3, 2)}, {"primary": LENGTHS})


def batch(first, last):
    return _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[first:last], WHOLE)


def test_joined_batches_are_one_batch():
    joined = join([batch(0, 3), batch(3, 6), batch(6, 7)])
    assert routing_dynamics(joined).to_json() == routing_dynamics(WHOLE).to_json()
    assert capsule_activity(joined).to_json() == capsule_activity(WHOLE).to_json()
    assert [layer.name for layer in joined] == ["hidden", "classes"]
    assert torch.equal(joined[0].children.pose, WHOLE[0].children.pose)


def test_joining_keeps_what_has_no_images():
    (layer,) = network({"classes": even(2, 3, 4)})
    bare = Capsules(layer.children.pose, None)
    weight = torch.ones(3, 4, 2, 2)
    more = {"child_grid": (1, 1, 3), "normalised_over": "children", "weight": weight}
    trace = (replace(layer, children=bare, **more),)
    (joined,) = join([trace, trace])
    assert joined.children.activation is None
    assert joined.children.pose.shape == (4, 3, 2)
    assert (joined.child_grid, joined.normalised_over) == ((1, 1, 3), "children")
    assert joined.weight is weight


def test_the_lowest_layer_is_called_primary():
    layers = capsule_layers(WHOLE)
    assert [name for name, _ in layers] == ["primary", "hidden", "classes"]
    assert layers[0][1] is WHOLE[0].children
    assert layers[2][1] is WHOLE[1].routed.parents


def test_an_activation_comes_before_the_length_of_a_pose():
    pose = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert lengths(Capsules(pose)).tolist() == [5.0, 0.0]
    assert lengths(Capsules(pose, torch.tensor([0.5, 1.0]))).tolist() == [0.5, 1.0]


def test_the_last_step_made_the_parents():
    (layer,) = network({"classes": even(2, 3, 4)})
    (first,) = layer.routed.steps
    later = first.coupling / 2
    assert last_coupling(recoupled(layer, first.coupling, later)) is later


def test_networks_without_capsules_have_nothing_to_join():
    assert join([(), ()]) == ()


def test_a_digit_that_is_laid_over_itself_can_be_right():
    """As `evaluate` judges sets: of labels 3 and 3 the highest score alone must be of 3."""
    scores = torch.tensor([[0.1, 0.0, 0.2, 0.9], [0.1, 0.8, 0.9, 0.2], [0.9, 0.8, 0.1, 0.2]])
    labels = torch.tensor([[3, 3], [1, 2], [0, 0]])
    right, said = judged_answers(scores, labels)
    assert right.tolist() == [True, True, True]
    assert said.tolist() == [[2, 3], [1, 2], [0, 1]]
    assert judged_answers(scores, labels.roll(1, 0))[0].tolist() == [False, False, False]


def test_of_equal_scores_the_first_is_named_as_argmax_has_it():
    scores = torch.zeros(2, 10)
    assert predicted_classes(scores, None).flatten().tolist() == scores.argmax(-1).tolist()
    assert judged_answers(scores, torch.tensor([0, 8]))[0].tolist() == [True, False]


def test_couplings_of_maps_are_read_where_the_children_are_the_maps():
    layer = Conv3dCapsules(child_grid=(2, 2, 3), d_in=4, types=2, d_out=4)
    children = Capsules(torch.rand(2, 12, 4))
    maps = children.pose.view(2, 4, 3, 4).transpose(1, 2).flatten(2)  # [b, 3, 16]
    routed = layer(children, keep="last")
    whole = LayerTrace("maps", Capsules(maps), routed, child_grid=(1, 1, 3))
    assert len(routing_dynamics((whole,)).layers) == 1
