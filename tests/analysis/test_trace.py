"""Reading a trace: joined batches are one batch, layers have names, capsules have lengths."""

import re
from dataclasses import replace

import pytest
import torch
from torch.utils import _pytree

from error_text import text_of
from torchcaps.analysis import (
    MeasureCouplings,
    MeasureKeys,
    backtracked,
    capsule_activity,
    capsule_layers,
    child_of,
    class_paths,
    gradient_norms,
    join,
    lengths,
    routing_dynamics,
    saliency,
    tree_distance,
    tree_size,
)
from torchcaps.analysis.trace import judged_answers, last_coupling, predicted_classes
from torchcaps.data import Batch
from torchcaps.errors import TorchcapsError
from torchcaps.layers import Conv3dCapsules
from torchcaps.types import Capsules, LayerTrace, Output, Window
from traces import even, network

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
    trace = (
        type(layer)(
            name="classes",
            children=bare,
            routed=layer.routed,
            child_grid=(1, 1, 3),
            normalised_over="children",
            weight=weight,
        ),
    )
    (joined,) = join([trace, trace])
    assert joined.children.activation is None
    assert joined.children.pose.shape == (4, 3, 2)
    assert (joined.child_grid, joined.normalised_over) == ((1, 1, 3), "children")
    assert joined.weight is weight


def test_joining_nothing():
    expected = "join needs at least one trace, but got none; was there any batch?"
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}$"):
        join([])


def test_the_lowest_layer_is_called_primary():
    layers = capsule_layers(WHOLE)
    assert [name for name, _ in layers] == ["primary", "hidden", "classes"]
    assert layers[0][1] is WHOLE[0].children
    assert layers[2][1] is WHOLE[1].routed.parents


def test_an_empty_trace():
    with pytest.raises(TorchcapsError, match=re.escape('call the network with keep="last"')):
        capsule_layers(())


def test_an_activation_comes_before_the_length_of_a_pose():
    pose = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert lengths(Capsules(pose)).tolist() == [5.0, 0.0]
    assert lengths(Capsules(pose, torch.tensor([0.5, 1.0]))).tolist() == [0.5, 1.0]


def test_the_last_step_made_the_parents():
    (layer,) = network({"classes": even(2, 3, 4)})
    step = layer.routed.steps[0]
    later = step._replace(coupling=step.coupling / 2)
    two = layer.routed._replace(steps=(step, later))
    kept = type(layer)(name="classes", children=layer.children, routed=two)
    assert last_coupling(kept) is later.coupling


def test_a_layer_without_steps():
    (layer,) = network({"classes": even(2, 3, 4)})
    bare = layer.routed._replace(steps=())
    none = type(layer)(name="classes", children=layer.children, routed=bare)
    expected = 'layer classes kept no couplings; call the network with keep="last".'
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}$"):
        last_coupling(none)


NO_TRACES = {
    "an Output": (Output(LENGTHS, "lengths", trace=WHOLE), "Output; give its .trace."),
    "a layer": (WHOLE[0], "LayerTrace; give what model(images, keep="),
    "nothing": (None, "NoneType; give what"),
    "scores": (LENGTHS, "Tensor; give what"),
}
READERS = {
    "activity": capsule_activity,
    "backtracked": lambda trace: backtracked(trace, 0),
    "children": child_of,
    "couplings": lambda trace: tree_distance(WHOLE, trace),
    "dynamics": routing_dynamics,
    "gradients": lambda trace: gradient_norms(torch.zeros(()), trace),
    "join": lambda trace: join([trace]),
    "join of one": lambda trace: join([trace] if isinstance(trace, torch.Tensor) else trace),
    "layers": capsule_layers,
    "paths": lambda trace: class_paths(trace, "primary"),
    "saliency": lambda trace: saliency(trace, LENGTHS.argmax(-1), n_classes=2, size=(4, 4)),
}


@pytest.mark.parametrize("came", NO_TRACES)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_trace_is_named_with_what_is_meant(reader, came):
    wrong, named = NO_TRACES[came]
    expected = f"a trace is a tuple with a LayerTrace for each routed layer, but came as {named}"
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}"):
        READERS[reader](wrong)


def test_networks_are_not_joined():
    other = network({"hidden": even(2, 4, 2), "classes": even(2, 2, 2)})
    with pytest.raises(TorchcapsError, match=r"^join needs traces of one network, but their laye"):
        join([WHOLE, other])


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


def test_classes_that_look_through_windows_are_told_as_such():
    """Of a class that no other layer follows there is one coupling a child."""
    (layer,) = network({"classes": even(2, 4, 3)})
    (step,) = layer.routed.steps
    steps = (step._replace(coupling=step.coupling.unsqueeze(1)),)
    window, routed = Window((2, 2, 1), (2, 2), (1, 1)), layer.routed._replace(steps=steps)
    trace, label = (replace(layer, routed=routed, window=window),), torch.tensor([0, 1])
    expected = (
        "one coupling of each child to each parent is needed, but classes looks through windows, "
        "[2, 1, 4, 3]; take a network in which this layer is dense."
    )
    assert text_of(lambda: MeasureKeys().add(trace, label)) == expected
    assert text_of(lambda: MeasureCouplings().add(trace, label)) == expected


READ_OFF = {
    "couplings": lambda trace, scores: MeasureCouplings().update(
        Output(scores, "logits", trace=trace), Batch(torch.zeros(2, 1, 4, 4), torch.tensor([0, 1]))
    ),
    "keys": lambda trace, scores: MeasureKeys().update(
        Output(scores, "logits", trace=trace), Batch(torch.zeros(2, 1, 4, 4), torch.tensor([0, 1]))
    ),
    "saliency": lambda trace, scores: saliency(
        trace, scores.argmax(-1), n_classes=scores.shape[1], size=(4, 4)
    ),
    "size of a tree": lambda trace, scores: tree_size(
        trace, scores.argmax(-1), n_classes=scores.shape[1]
    ),
}


@pytest.mark.parametrize("measured", READ_OFF)
def test_parents_that_something_reads_are_no_classes(measured):
    """Of sixteen parents and ten classes parent 3 was taken for class 3, and the entropy was the
    mean of sixteen."""
    (layer,) = network({"parts": even(2, 4, 16)})
    trace = (replace(layer, child_grid=(2, 2, 1)),)
    assert text_of(lambda: READ_OFF[measured](trace, torch.eye(2, 10))) == (
        "the last layer must have one parent for each class, but parts has 16 parents, and 10 "
        "classes are scored by what reads them; take a network whose last capsules are its classes."
    )
    READ_OFF[measured](trace, torch.eye(2, 16))


@pytest.mark.parametrize(
    "read",
    [
        routing_dynamics,
        lambda trace: tree_distance(trace, trace),
        lambda trace: backtracked(trace, 0),
        lambda trace: saliency(trace, torch.tensor([0, 1]), n_classes=2, size=(4, 4)),
    ],
)
def test_couplings_of_maps_are_not_taken_for_those_of_capsules(read):
    """Conv3dCapsules routes whole maps: 3 types on 4 positions have 3 rows of couplings. The first
    three capsules would have told which maps are dead."""
    layer = Conv3dCapsules(child_grid=(2, 2, 3), d_in=4, types=2, d_out=4)
    children = Capsules(torch.rand(2, 12, 4))
    trace = (LayerTrace("maps", children, layer(children, keep="last"), (2, 2, 3)),)
    assert text_of(lambda: read(trace)) == (
        "couplings have a row for each child, but maps has 3 rows and 12 children; where whole "
        "maps are routed, as by Conv3dCapsules, let the children of its trace be the 3 maps."
    )
    maps = children.pose.view(2, 4, 3, 4).transpose(1, 2).flatten(2)  # [b, 3, 16]
    whole = replace(trace[0], children=Capsules(maps), child_grid=(1, 1, 3))
    assert len(routing_dynamics((whole,)).layers) == 1
