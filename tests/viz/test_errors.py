"""What pictures refuse, in errors.txt, word by word: what is not what they draw."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from error_text import cases_of, said_by, text_of
from torchcaps import viz
from torchcaps.analysis import MeasureCouplings, MeasureKeys, capsule_activity, routing_dynamics
from torchcaps.types import Window
from torchcaps.viz import draw_backtracked, draw_mean_couplings, draw_parse_tree, palette
from traces import network, result_of, switching

ERRORS = Path(__file__).with_name("errors.txt")
IMAGES, MAPS = torch.rand(2, 1, 4, 4), torch.rand(2, 4, 4)
IMAGE = IMAGES[0]
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
    return result_of(MeasureCouplings(bins=4), trace, torch.tensor(answers))


def keys(trace):
    return result_of(MeasureKeys(sweep=()), trace, torch.tensor([0, 1]))


SMALL, WIDE = ("small", couplings(TRACE)), ("deep", couplings(DEEP))
OF_ONE = ("yours", couplings(TRACE, (1, 1)))


NAMES = vars(palette) | vars(viz) | globals()


def said(call):
    return said_by(call, NAMES)


@pytest.mark.parametrize(("call", "sentence"), cases_of(ERRORS))
def test_what_is_told(call, sentence):
    assert said(call) == sentence


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
