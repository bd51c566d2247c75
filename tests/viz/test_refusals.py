"""What pictures refuse in a sentence: what is not what they draw."""

from dataclasses import replace

import pytest
import torch

from error_text import text_of
from torchcaps.analysis import MeasureCouplings, MeasureKeys, capsule_activity, routing_dynamics
from torchcaps.types import Window
from torchcaps.viz import (
    draw_activity,
    draw_backtracked,
    draw_couplings_histogram,
    draw_dictionary,
    draw_keys,
    draw_levels,
    draw_mean_couplings,
    draw_parse_tree,
    draw_perturbations,
    draw_pruning,
    draw_saliency,
    write_figure,
)
from torchcaps.viz.palette import new_figure
from traces import network, switching

IMAGES, MAPS = torch.rand(2, 1, 4, 4), torch.rand(2, 4, 4)
IMAGE = IMAGES[0]
OF_NETWORKS = (
    'draw_saliency draws maps by the names of their networks, {"mine": analysis.saliency(...)}, '
    "but got "
)
OF_RUNS = 'draw_pruning draws metrics by the names of their runs, {"mine": run.metrics()}, but got '
NAMED = "class_names must name the 2 class capsules in their order, but has {} names; leave it out"
ROW = {"epoch": 1, "entropy": 2.0, "sparsity": 0.5, "validation_accuracy": 0.9}

TRACE = network({"classes": switching(2, 2)})
DEEP = network({"hidden": switching(2, 4), "classes": switching(2, 2, n_in=4)})


def windowed(trace):
    """The trace with its first layer seen through windows."""
    layer, *others = trace
    step = layer.routed.steps[-1]
    seen = layer.routed._replace(steps=(step._replace(coupling=step.coupling[:, None]),))
    window = Window((1, 1, layer.children.pose.shape[1]), (1, 1), (1, 1))
    return (replace(layer, routed=seen, window=window), *others)


def measured(trace):
    return routing_dynamics(trace), capsule_activity(trace)


def couplings(trace, answers=(0, 1)):
    found = MeasureCouplings(bins=4)
    found.add(trace, torch.tensor(answers))
    return found.result()


def keys(trace):
    found = MeasureKeys(sweep=())
    found.add(trace, torch.tensor([0, 1]))
    return found.result()


SMALL, WIDE = ("small", couplings(TRACE)), ("deep", couplings(DEEP))
OF_ONE = ("yours", couplings(TRACE, (1, 1)))


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: draw_saliency(IMAGES, MAPS), f"{OF_NETWORKS}Tensor."),
        (lambda: draw_saliency(IMAGES, None), f"{OF_NETWORKS}NoneType."),
        (lambda: draw_saliency(IMAGES, {"mine": MAPS.numpy()}), f"{OF_NETWORKS}ndarray."),
        (
            lambda: draw_saliency({"mine": MAPS}, IMAGES),
            "images must be a tensor [k, c, h, w], but came as a dict.",
        ),
        (
            lambda: draw_saliency(IMAGES[0], {"mine": MAPS}),
            "images must be [k, c, h, w], but came with shape [1, 4, 4].",
        ),
        (lambda: draw_pruning([{"epoch": 1, "entropy": 2.0}]), f"{OF_RUNS}list."),
        (lambda: draw_pruning({"mine": object()}), f"{OF_RUNS}object."),
        (
            lambda: draw_levels(torch.rand(3, 3)),
            "draw_levels draws rows of (levels, accuracy, entropy), but got Tensor.",
        ),
        (
            lambda: draw_keys(MAPS),
            "draw_keys draws what analysis.MeasureKeys found, but got Tensor.",
        ),
        (
            lambda: draw_couplings_histogram(MAPS),
            "draw_couplings_histogram draws pairs of a name and what analysis.MeasureCouplings "
            "found, but got Tensor.",
        ),
        (
            lambda: draw_couplings_histogram(("mine", MAPS)),
            "draw_couplings_histogram draws pairs of a name and what analysis.MeasureCouplings "
            "found, but got Tensor.",
        ),
        (
            lambda: draw_activity(TRACE),
            "draw_activity draws what analysis.capsule_activity(trace) measured, but got tuple.",
        ),
        (
            draw_couplings_histogram,
            "a histogram of couplings is of one network or more, but none came; give each as "
            "(name, what MeasureCouplings found).",
        ),
        *(
            (
                lambda first=first, second=second: draw_couplings_histogram(first, second),
                f"networks are compared layer by layer, {words}; draw networks of other layers "
                f"apart.",
            )
            for first, second, words in (
                (SMALL, WIDE, "classes as in 'small', but 'deep' has hidden, classes"),
                (WIDE, SMALL, "hidden, classes as in 'deep', but 'small' has classes"),
            )
        ),
        (
            lambda: draw_couplings_histogram(SMALL, OF_ONE, classes=[0, 1]),
            "couplings of a class are those of images with this answer, but for 'yours' no image "
            "has the answer 0; draw classes that it answers: 1.",
        ),
        (
            lambda: draw_couplings_histogram(SMALL, classes=1),
            "classes are whole numbers in a list, [3] or range(10), but came as 1; leave classes "
            "out for all images together.",
        ),
        (lambda: draw_keys(keys(TRACE), class_names=("one",)), NAMED.format(1) + " for numbers."),
        (
            lambda: draw_parse_tree(TRACE, IMAGE, class_names=["a cat"]),
            NAMED.format(1) + " for numbers.",
        ),
        (
            lambda: draw_backtracked(TRACE, class_names="abc"),
            NAMED.format(3) + " for numbers.",
        ),
        (
            lambda: draw_parse_tree(TRACE, IMAGE, class_names=[0, 1]),
            "class_names must be texts, but one is 0; write class_names=[str(name) for name in "
            "names], or leave it out for numbers.",
        ),
        (
            lambda: draw_parse_tree(TRACE, IMAGES, index=1),
            "image must be [channels, height, width], but came with shape [2, 1, 4, 4]; of a batch "
            "give images[index], with the same index=1.",
        ),
        (
            lambda: draw_parse_tree(TRACE, IMAGE, index=2),
            "index must be one of the 2 images of the trace, counted from 0, but is 2.",
        ),
        (
            lambda: draw_backtracked(TRACE, index=-3),
            "index must be one of the 2 images of the trace, counted from 0, but is -3.",
        ),
        (
            lambda: draw_backtracked(TRACE, predicted=[0, 3]),
            "the tree of a class begins at one of the 2 parents of classes, but predicted is "
            "[0, 3].",
        ),
        (
            lambda: draw_mean_couplings(routing_dynamics(TRACE)),
            "draw_mean_couplings needs a trace, or its dynamics and its activity; give "
            "capsule_activity(trace) as well, or the trace alone.",
        ),
        (
            lambda: draw_mean_couplings(routing_dynamics(DEEP), capsule_activity(TRACE)),
            "dynamics and activity must be of one trace, but are of the routed layers hidden, "
            "classes and classes; measure both of the same.",
        ),
        (lambda: draw_dictionary([]), "there is no tree to draw: no image was given."),
        (
            lambda: draw_perturbations(IMAGE, torch.rand(4, 2, 1, 5, 6), steps=(-0.2, 0.0, 0.2)),
            "drawn must be [components, 3, channels, height, width], but came with shape "
            "[4, 2, 1, 5, 6]; the second axis is the steps.",
        ),
        (
            lambda: draw_perturbations(IMAGE, torch.rand(4, 0, 1, 5, 6), steps=()),
            "a picture needs a component that moves by a step or more, but drawings came as "
            "[4, 0, 1, 5, 6]; give steps=(-0.25, 0.0, 0.25), say, and draw for each.",
        ),
        (
            lambda: draw_pruning({"mine": [ROW]}, against="k"),
            "against='k' is unknown; known: epoch, sparsity.",
        ),
        (
            lambda: draw_pruning({"dense": [{"epoch": 1, "validation_accuracy": 0.9}]}),
            "the metrics of dense have no entropy, which is written for pruned networks whose last "
            "routed layer has one parent for each class; name runs that were pruned.",
        ),
        (
            lambda: draw_pruning({str(k): [ROW] for k in range(11)}),
            "1 to 10 lines can be told apart in one picture, but 11 came.",
        ),
        (
            lambda: draw_pruning({}),
            "draw_pruning draws a line for each run, but none came; give the metrics of one or "
            'more by their names: {"mine": run.metrics()}.',
        ),
        (
            lambda: draw_saliency(IMAGES, {"mine": MAPS[:1]}),
            "every network needs one map an image, of its size, [2, 4, 4], but came "
            "{'mine': [1, 4, 4]}.",
        ),
        (
            lambda: write_figure(new_figure(1.0), 3),
            "path must be a path, text or a pathlib.Path, but came as 3.",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, said):
    assert text_of(draw) == said


OF_A_TRACE = [
    draw_mean_couplings,
    lambda trace: draw_mean_couplings(*measured(trace)),
    draw_backtracked,
    lambda trace: draw_parse_tree(trace, IMAGE),
]


@pytest.mark.parametrize("draw", OF_A_TRACE, ids=["trace", "means", "backtracked", "tree"])
def test_layers_between_which_no_lines_lead_are_refused(draw):
    """Where layers do not lead to each other, it was an IndexError: of four parents below, the
    third and fourth have no line upwards."""
    assert text_of(lambda: draw(windowed(TRACE))) == (
        "lines are drawn where every child votes for every parent, but classes looks through "
        "windows; viz.draw_grids draws the maps of such a network."
    )
    (low,) = network({"low": switching(2, 4)})
    (high,) = network({"high": switching(2, 2, n_in=3)})
    assert text_of(lambda: draw((low, high))) == (
        "lines are drawn between layers that lead to each other, but high has 3 children and low, "
        "the layer before it in the trace, has 4 parents, so it reads something else; draw it "
        "alone, from a trace of one layer."
    )
    draw((high,))


def test_the_path_of_a_picture_may_be_text(tmp_path):
    write_figure(new_figure(1.0), f"{tmp_path}/tree.png")
    assert (tmp_path / "tree.png").is_file()
