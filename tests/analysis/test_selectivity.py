"""Entity selectivity on paper, at its extremes, and against loops."""

import pytest
import torch

from torchcaps.analysis import MeasureSelectivity, detection_auc
from torchcaps.data import part_whole, shown_parts
from traces import even, in_batches, network


def test_area_on_paper():
    present = torch.tensor([True, True, False, False])
    values = torch.tensor([[2.0, 0, 1, 1], [3, 0, 1, 0], [1, 1, 1, 1], [0, 2, 1, 1]])
    # Always above, always below, all ties, and two ties of four pairs.
    assert detection_auc(values, present).tolist() == [1, 0, 0.5, 0.25]


def test_area_is_the_share_of_pairs_in_order():
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(5, (30, 4), generator=generator).double()
    present = torch.rand(30, generator=generator) < 0.4
    above = (values[present][:, None] - values[~present]).sign()  # ties are zero
    expected = (1 + above.mean((0, 1))) / 2
    torch.testing.assert_close(detection_auc(values, present), expected, rtol=0, atol=1e-12)


PRESENT = torch.tensor([[1, 0], [0, 1], [1, 1], [0, 0]] * 3).bool()


def measured(lengths, *, present=PRESENT, batch=5, **options):
    trace = network({"classes": even(*lengths.shape, 2)}, {"primary": lengths})
    measurement = MeasureSelectivity(lambda batch: batch.labels, **options)
    return in_batches(measurement, trace, present, batch=batch)


def test_dedicated_mixed_dead_and_constant_capsules():
    part, other = PRESENT.double().T
    lengths = torch.stack([part, part + other, 0 * part, 0 * part + 0.5], -1)
    row = measured(lengths).layers[0]
    # The dead capsule does not count; of the three alive only the first stands for one part.
    assert (row.alive, row.dedicated) == (3, pytest.approx(1 / 3))
    assert row.auc.tolist() == [[1, 0.5], [0.75 + 0.125, 0.75 + 0.125], [0.5, 0.5], [0.5, 0.5]]


def test_thresholds_decide():
    part, other = PRESENT.double().T
    # In two of three images that have the other part the length tells it, whichever the first is.
    told = torch.arange(12) < 8
    row = measured((part + 0.1 * other * told)[:, None], best=0.8, second=0.9).layers[0]
    assert row.auc[0, 0] == 1
    assert row.others.tolist() == [pytest.approx(2 / 3 + 1 / 6)]
    assert row.dedicated == 1
    assert [share for *_, share in row.sweep] == [0, 0, 0, 0, 0]


def test_what_tells_two_parts_stands_for_none():
    row = measured(PRESENT[:, :1].double() + 0.9 * PRESENT[:, 1:].double()).layers[0]
    assert row.auc.tolist() == [[1, 0.75]]
    # Among images that have the first part, and among those that have not, it tells the other.
    assert (row.others.tolist(), row.dedicated) == ([1], 0)


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_length_that_falls_with_another_part_tells_it(sign):
    part, other = PRESENT.double().T
    row = measured((part + 0.1 + 0.05 * sign * other)[:, None]).layers[0]
    assert row.auc[0, 0] == 1
    assert (row.others.tolist(), row.dedicated) == ([1], 0)
    # Up where the first part is there, and down where it is not.
    row = measured((part + 0.1 + 0.05 * sign * other * (2 * part - 1))[:, None]).layers[0]
    assert (row.others.tolist(), row.dedicated) == ([1], 0)


def test_a_detector_of_one_part_is_dedicated_however_parts_come_together():
    """On our own set, whose wholes are made of the same parts: the area for the second best part
    is up to 0.74 over all images."""
    present = shown_parts(part_whole("test", 400).truth) > 0
    found = measured(present.double(), present=present, batch=100).layers[0]
    assert found.auc.topk(2).values[:, 1].max() > 0.7
    assert found.others.tolist() == [0.5] * present.shape[1]
    assert (found.dedicated, found.alive) == (1, present.shape[1])


def test_others_by_loops():
    generator = torch.Generator().manual_seed(3)
    present = torch.rand(40, 3, generator=generator) < 0.5
    lengths = torch.randint(1, 6, (40, 2), generator=generator).double()
    row = measured(lengths, present=present).layers[0]
    for i in range(2):
        areas = row.auc[i].tolist()
        own = areas.index(max(areas))
        found = []
        for other in {0, 1, 2} - {own}:
            told, many = 0.0, 0
            for has_own in (False, True):
                pairs = [
                    float((lengths[a, i] > lengths[b, i]) + (lengths[a, i] == lengths[b, i]) / 2)
                    for a in range(40)
                    for b in range(40)
                    if present[a, other] and not present[b, other]
                    if bool(present[a, own]) == bool(present[b, own]) == has_own
                ]
                told += max(sum(pairs), len(pairs) - sum(pairs))
                many += len(pairs)
            found.append(told / many)
        assert float(row.others[i]) == pytest.approx(max(found), abs=1e-12)


def test_all_dead():
    row = measured(torch.zeros(12, 3)).layers[0]
    assert (row.alive, row.dedicated) == (0, None)
