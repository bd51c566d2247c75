"""Zero blocks and votes on paper, dense and cut away, of dead children, against loops."""

from dataclasses import replace

import pytest
import torch

from torchcaps.analysis import MeasureZeroVotes, zero_votes
from torchcaps.ops import materialise
from torchcaps.types import Capsules, LayerTrace, Routed, VoteMap, Window
from traces import result_of


def layer(pose, weight):
    children = Capsules(torch.as_tensor(pose, dtype=torch.float64))
    return LayerTrace("classes", children, Routed(children), weight=weight)


def measured(*batches):
    measurement = MeasureZeroVotes()
    for each in batches:
        measurement.add((each,))
    return measurement.result()


def only(pose, weight):
    (row,) = measured(layer(pose, weight)).layers
    return row.zero_blocks, row.expected, row.zero_votes, row.dead_children


def test_extremes():
    assert only(torch.ones(2, 3, 4), torch.ones(3, 2, 5, 4).double()) == (0, 0, 0, 0)
    assert only(torch.ones(2, 3, 4), torch.zeros(3, 2, 5, 4).double()) == (1, 1, 1, 0)
    assert only(torch.zeros(2, 3, 4), torch.ones(3, 2, 5, 4).double()) == (0, 0, 1, 1)


def test_on_paper():
    # Two children, two parents, blocks of 1 × 2. The first block of the first child is cut, its
    # second reads the first component alone; the second child is dead in the second image.
    weight = torch.tensor([[[[0.0, 0]], [[1, 0]]], [[[1, 1]], [[1, 1]]]]).double()
    pose = [[[0.0, 1], [1, 1]], [[1.0, 1], [0, 0]]]
    # Zero: both votes of child 1 in image 1; one of child 1 and both of child 2 in image 2.
    assert only(pose, weight) == (0.25, (3 / 8) ** 2, 5 / 8, 2 / 8)


def test_loops_and_batches_agree():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 4, 2, 2, generator=generator).double()
    weight[torch.rand(3, 4, 2, 2, generator=generator) < 0.6] = 0
    pose = torch.randn(5, 3, 2, generator=generator).double()
    pose[torch.rand(5, 3, generator=generator) < 0.3] = 0
    (row,) = measured(layer(pose[:2], weight), layer(pose[2:], weight)).layers
    votes = [weight[i, j] @ pose[k, i] for k in range(5) for i in range(3) for j in range(4)]
    assert row.zero_votes == pytest.approx(sum(not bool(v.any()) for v in votes) / 60, abs=1e-12)
    cut = sum(not bool(weight[i, j].any()) for i in range(3) for j in range(4))
    assert row.zero_blocks == cut / 12 > 0


def test_votes_of_matrices():
    # The pose reads its second column through a weight whose first row is zero.
    weight = torch.tensor([[[[0.0, 0], [1, 1]]]]).double()
    assert only([[[1.0, 0, 1, 0]], [[0.0, 1, 0, 0]]], weight)[2] == 0.5


def test_a_layer_with_shared_weights_is_passed_over_beside_one_without():
    own = layer(torch.ones(2, 3, 4), torch.zeros(3, 2, 5, 4).double())
    shared = replace(own, name="windows", weight=torch.ones(2, 5, 4))
    found = result_of(MeasureZeroVotes(), (shared, own))
    assert [row.name for row in found.layers] == ["classes"]


@pytest.mark.parametrize(("pose", "d"), [("vector", 3), ("matrix", 4)])
def test_windows_and_types_against_votes_that_are_made(pose, d):
    generator = torch.Generator().manual_seed(0)

    def thinned(*shape, share):
        values = torch.randn(*shape, generator=generator).double()
        return values * (torch.rand(*shape, generator=generator) > share)

    grid = (4, 3, 2)
    window = Window(grid, (2, 2), (1, 1))
    side = 2 if pose == "matrix" else 3
    children = Capsules(thinned(3, 24, d, share=0.5))
    for where, slots in ((window, 8), (window, 2), (None, 24), (None, 2)):
        weight = thinned(slots, 2, side, side, share=0.7)
        found = LayerTrace(
            "l", children, Routed(children), child_grid=grid, weight=weight, window=where
        )
        sharing = "type" if slots == 2 else "none"
        map_of = VoteMap(children, weight, sharing, pose, window=where)
        votes = materialise(map_of)
        (row,) = measured(found).layers
        assert row.zero_votes == pytest.approx(float((votes == 0).all(-1).double().mean()))
        seen = children.pose if where is None else where.of(children.pose)
        assert row.dead_children == pytest.approx(float((seen == 0).all(-1).double().mean()))
        assert row.zero_blocks < row.zero_votes < 1


def test_many_windows_are_looked_at_in_parts(monkeypatch):
    children = Capsules(torch.eye(6).double().expand(5, 6, 6).clone())
    weight = torch.eye(6).double().expand(6, 2, 6, 6)
    whole = measured(LayerTrace("l", children, Routed(children), weight=weight))
    monkeypatch.setattr(zero_votes, "AT_ONCE", 1)
    assert measured(LayerTrace("l", children, Routed(children), weight=weight)) == whole
