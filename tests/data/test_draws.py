"""Counter-based numbers: the published mixer, and laws of independence."""

import pytest
import torch

from torchcaps.data.draws import bits, integers, normal, uniform

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def scatter(z: int) -> int:
    """SplitMix64's finaliser on Python's own integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def word(seed: int, sample: int, stream: int, k: int) -> int:
    key = scatter((seed + GOLDEN) & WORD)
    key = scatter((key + stream * GOLDEN) & WORD)
    row = scatter((key + sample * GOLDEN) & WORD)
    return scatter((row + (k + 1) * GOLDEN) & WORD)


def test_finaliser_gives_the_published_first_number_of_splitmix64() -> None:
    assert scatter(GOLDEN) == 0xE220A8397B1DCDAF


@pytest.mark.parametrize("seed", [0, 1, -5, 2**63, 2**64 + 3])
def test_bits_equal_a_loop_over_python_integers(seed: int) -> None:
    sample = torch.tensor([0, 1, 12345, 2**40])
    found = bits(seed, sample, stream=3, count=4)
    expected = [[word(seed, n, 3, k) for k in range(4)] for n in sample.tolist()]
    assert [[value & WORD for value in row] for row in found.tolist()] == expected


@pytest.mark.parametrize("draw", [uniform, normal])
def test_a_number_depends_on_its_sample_alone(draw) -> None:
    whole = draw(3, torch.arange(100), 2, 7)
    order = torch.tensor([99, 5, 5, 42])
    assert torch.equal(draw(3, order, 2, 7), whole[order])
    alone = [draw(3, torch.tensor([n]), 2, 7) for n in range(100)]
    assert torch.equal(torch.cat(alone), whole)
    # Asking for fewer numbers gives the first ones.
    assert torch.equal(draw(3, torch.arange(100), 2, 3), whole[:, :3])


def test_integers_are_words_modulo_their_bound() -> None:
    sample = torch.tensor([0, 1, 12345])
    below = torch.tensor([[1], [6], [60_000]])
    found = integers(7, sample, stream=3, count=4, below=below)
    for row, n, bound in zip(found.tolist(), sample.tolist(), below[:, 0].tolist(), strict=True):
        # A word counts as a signed number; Python's remainder is never negative.
        words = [word(7, n, 3, k) for k in range(4)]
        assert row == [(w - 2**64 if w >= 2**63 else w) % bound for w in words]
    shares = torch.bincount(integers(7, torch.arange(60_000), 3, 1, 6)[:, 0]) / 10_000
    assert len(shares) == 6
    # Four standard deviations of a count.
    assert (shares - 1).abs().max() < 4 * (5 / 6 / 10_000) ** 0.5


def test_uniform_fills_the_unit_interval_evenly() -> None:
    u = uniform(0, torch.arange(4096), 0, 64).flatten()
    assert u.dtype == torch.float32
    assert u.min() >= 0
    assert u.max() < 1
    bins = 256
    expected = len(u) / bins
    chi_square = ((torch.bincount((u * bins).long(), minlength=bins) - expected) ** 2).sum()
    # A chi-square of 255 degrees has mean 255 and standard deviation sqrt(510) = 22.6.
    assert abs(chi_square / expected - 255) < 4 * 22.6
    # Kolmogorov-Smirnov: beyond 1.95 / sqrt(n) once in a thousand.
    steps = torch.arange(len(u)) / len(u)
    assert (u.sort().values - steps).abs().max() < 1.95 / len(u) ** 0.5


def test_normal_has_mean_zero_and_variance_one() -> None:
    z = normal(0, torch.arange(4096), 0, 64).flatten().double()
    assert abs(z.mean()) < 4 / len(z) ** 0.5
    assert abs(z.var() - 1) < 4 * (2 / len(z)) ** 0.5
    assert z.abs().max() <= 12**0.5
    # The share within one standard deviation, 0.683 for a normal, is 0.67 for a sum of four.
    assert 0.66 < (z.abs() < 1).double().mean() < 0.69


def test_neighbours_are_not_correlated() -> None:
    sample = torch.arange(20_000)
    here = uniform(7, sample, 4, 8).double() - 0.5
    neighbours = {
        "sample": uniform(7, sample + 1, 4, 8),
        "stream": uniform(7, sample, 5, 8),
        "seed": uniform(8, sample, 4, 8),
        "number": uniform(7, sample, 4, 9)[:, 1:],
    }
    for name, other in neighbours.items():
        correlation = (here * (other.double() - 0.5)).mean() * 12
        assert abs(correlation) < 4 / here.numel() ** 0.5, name


@pytest.mark.parametrize("changed", [(8, 0, 0), (7, 1, 0), (7, 0, 1)])
def test_a_changed_key_flips_half_of_the_bits(changed: tuple[int, int, int]) -> None:
    seed, step, stream = changed
    sample = torch.arange(0, 4000, 2)
    flipped = bits(7, sample, 0, 1) ^ bits(seed, sample + step, stream, 1)
    ones = (flipped >> torch.arange(64)) & 1
    assert abs(ones.double().mean() - 0.5) < 4 * 0.5 / ones.numel() ** 0.5
