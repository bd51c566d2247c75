"""Changes of drawings by hand: of a linear decoder, of the true class alone, in batches."""

from types import SimpleNamespace

import pytest
import torch

from error_text import text_of
from torchcaps.analysis import MeasurePerturbation
from torchcaps.types import Capsules

# Two classes of two components; what each of the four adds to two pixels.
ADDS = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0], [1.0, 1.0]])


def all_units(classes, labels):
    return classes.pose.flatten(1)


def measured(labels, size=10, draw=lambda seen: seen @ ADDS, **options):
    measurement = MeasurePerturbation(all_units, draw, **options)
    generator = torch.Generator().manual_seed(0)
    pose = torch.randn(len(labels), 2, 2, generator=generator)
    for part in torch.arange(len(labels)).split(size):
        out = SimpleNamespace(classes=Capsules(pose[part]))
        measurement.update(out, SimpleNamespace(labels=labels[part]))
    return measurement.result()


def test_on_paper():
    first, second = measured(torch.tensor([0, 0])).amounts
    assert (first.amount, second.amount) == (0.2, 8.0)
    # sqrt((9 + 16) / 2) for the first component, nothing for the second.
    assert first.each.tolist() == pytest.approx([0.2 * 12.5**0.5, 0], abs=1e-6)
    assert first.change == pytest.approx(0.1 * 12.5**0.5, abs=1e-6)
    # A linear decoder draws forty times the change.
    assert second.change == pytest.approx(40 * first.change, rel=1e-5)


def test_the_true_class_moves():
    (row,) = measured(torch.tensor([1, 1, 1]), amounts=(1.0,)).amounts
    assert row.each.tolist() == pytest.approx([2**0.5, 1], abs=1e-6)
    (row,) = measured(torch.tensor([0, 1]), amounts=(1.0,)).amounts
    assert row.each.tolist() == pytest.approx([(12.5**0.5 + 2**0.5) / 2, 1 / 2], abs=1e-6)


def test_drawings_of_no_numbers_are_a_sentence():
    assert text_of(lambda: measured(torch.tensor([0, 1]), draw=lambda seen: seen / 0)) == (
        "drawings must be finite, but came with NaN or infinite values; did training diverge, or "
        "does the decoder divide by what may be zero?"
    )


def test_what_the_decoder_sees_is_the_poses_of_all_classes():
    """Of the pose of the true class alone, a component of another one moved, or none."""

    def own(classes, labels):
        return classes.pose[torch.arange(len(labels)), labels]

    measurement = MeasurePerturbation(own, lambda seen: seen)
    out = SimpleNamespace(classes=Capsules(torch.rand(3, 2, 2)))
    batch = SimpleNamespace(labels=torch.zeros(3, dtype=torch.int64))
    assert text_of(lambda: measurement.update(out, batch)) == (
        "the result of seen(classes, labels) must be [3, 4], but came with shape [3, 2]; the poses "
        "of all classes stand in a row; Decoder.seen gives them."
    )


@pytest.mark.parametrize(("amounts", "came"), [((), "()"), (0.2, "0.2")])
def test_amounts_are_a_list(amounts, came):
    assert text_of(lambda: measured(torch.tensor([0]), amounts=amounts)) == (
        f"components are moved by a list of amounts, amounts=(0.2, 8.0), but amounts came as "
        f"{came}."
    )


def test_a_saturated_drawing_does_not_change_in_proportion():
    small, large = measured(torch.tensor([0, 1]), draw=lambda seen: (seen @ ADDS).sigmoid()).amounts
    assert 0 < small.change < large.change < 1


def test_batches_change_nothing():
    labels = torch.arange(9) % 2
    whole, parts = measured(labels), measured(labels, 4)
    assert whole.images == parts.images == 9
    for row, other in zip(whole.amounts, parts.amounts, strict=True):
        assert row.change == pytest.approx(other.change, abs=1e-12)
