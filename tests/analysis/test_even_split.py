"""An even split counts as even, over whatever couplings sum to one."""

from dataclasses import replace

import pytest
import torch

import torchcaps as tc
from torchcaps.analysis import (
    MeasureDynamics,
    MeasureInDegree,
    MeasureInequality,
    backtracked,
    tree_size,
)
from torchcaps.analysis.even_split import even_split
from torchcaps.types import Capsules, Window
from traces import layer, network, recoupled, result_of

# Four positions in a row and windows of two: the outer children have one window, the others two.
ROW = Window((1, 4, 1), (1, 2), (1, 1))


def over_positions(dtype=torch.float64):
    """Three windows of two slots with two parents each, and the even split of every child."""
    even = torch.tensor([[1 / 2, 1 / 4], [1 / 4, 1 / 4], [1 / 4, 1 / 2]], dtype=dtype)
    coupling = even[..., None].expand(2, 3, 2, 2)
    children, parents = (Capsules(torch.ones(2, n, 2), torch.ones(2, n)) for n in (4, 6))
    more = {"window": ROW, "normalised_over": "parents_and_positions"}
    return (layer("conv", children, coupling, parents, **more),)


def over(which, children, parents, dtype=torch.float32):
    """A dense layer whose couplings are all alike."""
    split = 1 / (children if which == "children" else parents)
    coupling = torch.full((2, children, parents), split, dtype=torch.float64)
    (only,) = network({"classes": coupling})
    return (replace(recoupled(only, coupling.to(dtype)), normalised_over=which),)


EVEN = {
    "parents": over("parents", 4, 10),
    "none": over("none", 4, 10),
    "children, fewer than parents": over("children", 4, 10),
    "children, more than parents": over("children", 20, 10),
    "children, where a level begins": over("children", 10, 4),
    "parents and positions": over_positions(),
    "parents and positions in float32": over_positions(torch.float32),
    "parents and positions without windows": over("parents_and_positions", 4, 10),
}


@pytest.mark.parametrize("case", EVEN)
def test_an_even_split_is_even(case):
    trace = EVEN[case]
    (degree,), (unequal,), (moves,) = (
        result_of(each, trace).layers
        for each in (MeasureInDegree(), MeasureInequality(), MeasureDynamics())
    )
    assert (degree.mean, degree.with_a_child) == (0, 0)
    assert (unequal.small, unequal.even) == (0, 1)
    assert unequal.gini == pytest.approx(0, abs=1e-12)
    assert moves.strongest == pytest.approx(moves.even, rel=1e-6)
    assert not bool(backtracked(trace, 0)[0].any())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("parents", [3, 7, 10, 23])
def test_an_even_split_is_even_in_every_dtype(parents, dtype):
    """A third in bfloat16 is 0.334, which lies above a third."""
    for which, children in (("parents", 4), ("children", 4), ("children", parents)):
        trace = over(which, children, parents, dtype)
        (unequal,) = result_of(MeasureInequality(), trace).layers
        assert result_of(MeasureInDegree(), trace).layers[0].mean == 0
        assert (unequal.small, unequal.even, unequal.gini) == (0, 1, pytest.approx(0, abs=1e-12))
        first = torch.zeros(2, dtype=torch.int64)
        assert tree_size(trace, first, n_classes=parents).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_networks_of_half_precision_have_even_splits(dtype):
    torch.manual_seed(0)
    backbone = torch.nn.Conv2d(1, 8, 5, 4)
    head = tc.layers.CapsuleHead.after(
        backbone, image=(1, 12, 12), n_classes=3, types=2, d_primary=4, routing="uniform"
    )
    with torch.autocast("cpu", dtype):
        out = head(backbone(torch.rand(2, 1, 12, 12)), keep="last")
    assert out.trace[0].routed.steps[-1].coupling.dtype == dtype
    assert tree_size(out.trace, out.scores.argmax(-1), n_classes=3).tolist() == [0, 0]


def test_what_is_not_even_in_half_precision_is_not():
    """Of a child the first parent has a twentieth more than the second."""
    (only,) = over("parents", 4, 2)
    coupling = torch.tensor([0.5125, 0.4875]).bfloat16().expand(2, 4, 2)
    trace = (recoupled(only, coupling),)
    assert result_of(MeasureInDegree(), trace).layers[0].each.tolist() == [4, 0]


def test_over_children_on_paper():
    """Four children of two parents, columns that sum to one: an even split is 1/4."""
    coupling = torch.tensor([[[0.7, 0.1], [0.1, 0.3], [0.1, 0.3], [0.1, 0.3]]]).double()
    (only,) = network({"classes": coupling})
    trace = (replace(only, normalised_over="children"),)
    assert result_of(MeasureInDegree(), trace).layers[0].each.tolist() == [1, 3]
    # Below 1/8 lie the three of the first parent and the one of the second.
    assert result_of(MeasureInequality(), trace).layers[0].small == 0.5
    assert [edges.nonzero().tolist() for edges in backtracked(trace, 0)] == [[[0, 0]]]


def test_over_positions_on_paper():
    (only,) = over_positions()
    assert even_split(only)[..., 0].tolist() == [[0.5, 0.25], [0.25, 0.25], [0.25, 0.5]]
    (row,) = result_of(MeasureDynamics(), (only,)).layers
    assert row.even == pytest.approx((2 * 0.5 + 4 * 0.25) / 6)


def test_networks_of_the_library():
    """Uniform routing over children, and EM that has seen nothing: no parent has a child."""
    torch.manual_seed(0)
    uniform = tc.create_model("gu_capsnet_nor", image=(1, 28, 28)).eval()
    trace = uniform(torch.rand(2, 1, 28, 28), keep="last").trace
    assert [row.mean for row in result_of(MeasureInDegree(), trace).layers] == [0] * len(trace)

    # The official variant begins with couplings that do not sum to one.
    options = {"sizes": "4-2-2-2", "iterations": 1, "variant": "paper"}
    em = tc.create_model("matrix_capsnet", n_classes=3, **options).eval()
    trace = em(torch.rand(2, 2, 32, 32), keep="last").trace
    over = {each.normalised_over for each in trace}
    assert over == {"parents_and_positions", "parents"}
    assert [row.mean for row in result_of(MeasureInDegree(), trace).layers] == [0] * len(trace)
