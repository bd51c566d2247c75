"""Near-antipodal pairs on paper, at their extremes, and against PyTorch."""

import pytest
import torch

from torchcaps.analysis import MeasureAntipodal, opposite_pairs, pair_cosines
from torchcaps.types import Capsules, LayerTrace, Routed
from traces import in_batches


def measured(poses, labels=None, **options):
    """Children of given poses [k, i, d] in one layer."""
    children = Capsules(torch.as_tensor(poses, dtype=torch.float64))
    trace = (LayerTrace("classes", children, Routed(children)),)
    return in_batches(MeasureAntipodal(**options), trace, labels)


def test_a_vector_and_its_negative():
    (row,) = measured([[[3.0, 4.0]], [[-3.0, -4.0]]]).layers
    assert (row.share, row.per_child, row.different) == (1, 1, None)
    assert row.lowest == pytest.approx(-1)
    assert row.negative == 0.5
    assert [share for _, share, _ in row.sweep] == [1, 1, 1, 1]


def test_the_nearest_to_opposite_come_first():
    # Cosines with the row of −1: −0.8, −0.6 and −1. A row of zeros has 0 with each.
    rows = torch.tensor([[3.0, 4.0], [4.0, 3.0], [0.0, 0.5], [0.0, -1.0], [0.0, 0.0]])
    expected = [[2, 3], [0, 3], [1, 3]]
    assert opposite_pairs(rows, 3).tolist() == expected
    assert len(opposite_pairs(rows, 99)) == 10
    found = pair_cosines(rows.double())
    assert found.sort().values[:3].tolist() == pytest.approx([-1, -0.8, -0.6])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_opposites_of_half_precision_are_opposites(dtype):
    """300² · 2 is more than float16 has numbers for; of infinite lengths all cosines were 0."""
    rows = torch.tensor([[300, 300], [300, -300], [-300, -300]]).to(dtype)
    assert pair_cosines(rows).tolist() == pytest.approx([0, -1, 0], abs=1e-6)
    assert opposite_pairs(rows, 1).tolist() == [[0, 2]]


def test_on_paper():
    # Child by child: the first turns round, the second stays; as one vector the cosine is 0.
    (row,) = measured([[[1.0, 0], [0, 1.0]], [[-1.0, 0], [0, 1.0]]]).layers
    assert (row.share, row.per_child, row.lowest) == (0, 0.5, 0)
    # cos 135° = −0.71 lies between two thresholds.
    (row,) = measured([[[1.0, 0]], [[-1.0, 1.0]]]).layers
    assert row.sweep == ((0.5, 1, 1), (0.7, 1, 1), (0.9, 0, 0), (0.99, 0, 0))


@pytest.mark.parametrize("poses", [torch.rand(5, 3, 4), torch.zeros(5, 3, 4), torch.ones(5, 3, 4)])
def test_what_has_no_negative_component_has_no_such_pair(poses):
    (row,) = measured(poses).layers
    assert (row.share, row.per_child, row.negative) == (0, 0, 0)


def test_pytorch_agrees():
    generator = torch.Generator().manual_seed(0)
    poses = torch.randn(20, 3, 2, generator=generator, dtype=torch.float64)
    labels = torch.arange(20) % 2
    (row,) = measured(poses, labels, threshold=0.5).layers
    a, b = torch.combinations(torch.arange(20)).T
    flat = poses.flatten(1)
    far = torch.nn.functional.cosine_similarity(flat[a], flat[b]) <= -0.5
    assert row.share == pytest.approx(far.double().mean().item(), abs=1e-12)
    different = far[labels[a] != labels[b]].double().mean().item()
    assert row.different == pytest.approx(different, abs=1e-12)
