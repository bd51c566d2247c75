"""The sign set: symmetric, so that a network without biases is right half of the times."""

import pytest
import torch

from torchcaps.data import load
from torchcaps.data.make.sign import SignSet, sign_set
from torchcaps.models import create_model


def test_the_grid_is_plus_and_minus_k_ten_thousandths() -> None:
    images = sign_set()
    pixels, labels, parts = images.batch(slice(None))
    assert pixels.shape == (20_000, 1, 1, 1)
    assert parts is None
    expected = [k / 10_000 for k in range(-10_000, 10_001) if k]
    assert torch.equal(pixels.flatten(), torch.tensor(expected))
    assert labels.tolist() == [int(x > 0) for x in expected]
    assert labels.dtype == torch.int64


def test_test_numbers_lie_between_those_of_training() -> None:
    train, test = (
        load("sign", split=split).batch(slice(None)).pixels for split in ("train", "test")
    )
    assert torch.equal(train.flatten(), sign_set().numbers)
    halves = [(k - 0.5) / 10_000 for k in range(1, 10_001)]
    assert torch.equal(test.flatten()[10_000:], torch.tensor(halves))
    assert torch.equal(test.flatten(), -test.flatten().flip(0))
    assert set(train.flatten().tolist()).isdisjoint(test.flatten().tolist())


def test_drawn_numbers_fill_the_interval_evenly() -> None:
    images = sign_set("uniform", seed=3)
    assert len(images) == 20_000
    counts = torch.histc(images.numbers, 100, -1, 1)
    assert int(counts.sum()) == 20_000
    # 99 degrees: standard deviation 14.1.
    assert abs(float(((counts - 200) ** 2 / 200).sum()) - 99) < 4 * 14.1
    assert torch.equal(sign_set("uniform", seed=3).numbers, images.numbers)
    assert not torch.equal(sign_set("uniform", seed=4).numbers, images.numbers)


def test_nothing_is_negative_but_what_is_below_zero() -> None:
    numbers = torch.tensor([0.5, -0.5, 0.0, -1.0, 1.0])
    assert SignSet(numbers).batch(slice(None)).labels.tolist() == [1, 0, 1, 0, 1]


@pytest.mark.parametrize("distribution", ["grid", "between", "uniform"])
def test_a_number_is_held_out_with_its_opposite(distribution: str) -> None:
    images = sign_set(distribution, n=1000)
    rest, held = images.hold_out(share=0.2, seed=5)
    assert (len(rest), len(held)) == (800, 200)
    together = torch.cat([rest.numbers, held.numbers])
    assert torch.equal(together.sort().values, images.numbers.sort().values)
    assert set(rest.numbers.abs().tolist()).isdisjoint(held.numbers.abs().tolist())
    if distribution != "uniform":
        for part in (rest, held):
            assert torch.equal(part.numbers, -part.numbers.flip(0))


@pytest.mark.parametrize("model", ["peer_sign_dynamic", "peer_sign_em"])
def test_a_network_without_biases_is_right_half_of_the_times(model: str) -> None:
    images = sign_set(n=400)
    torch.manual_seed(3)
    network = create_model(model, image=images.image_shape, n_classes=len(images.class_names))
    with torch.no_grad():
        pixels, labels, _ = images.batch(slice(None))
        assert int((network(pixels).scores.argmax(1) == labels).sum()) == 200
