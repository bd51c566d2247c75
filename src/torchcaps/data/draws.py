"""Counter-based random numbers: number k of a sample depends on (seed, stream, sample, k) alone.

So sample n is the same whatever the batch it is made in, the order, the worker or the device. The
mixing is that of SplitMix64 (Steele, Lea and Flood 2014, https://doi.org/10.1145/2660193.2660195):
`z` walks by the golden ratio and a finaliser scatters it. Only integer and correctly rounded float
operations are used, because a vectorised sine or logarithm may differ in its last bit between the
middle and the tail of a tensor.
"""

import math

import torch
from torch import Tensor


def _signed(word: int) -> int:
    """Return the int64 with the same 64 bits as `word`."""
    word &= 2**64 - 1
    return word - 2**64 if word >= 2**63 else word


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _fold(z: Tensor, places: int) -> Tensor:
    """Compute z xor (z >> places), in place; the copies of the sign are masked off."""
    return z.bitwise_xor_((z >> places).bitwise_and_((1 << (64 - places)) - 1))


def _scatter(z: Tensor) -> Tensor:
    """Apply SplitMix64's finaliser, in place: a bijection of the 64-bit words."""
    z = _fold(z, 30).mul_(_FIRST)
    z = _fold(z, 27).mul_(_SECOND)
    return _fold(z, 31)


def bits(
    seed: int, sample: Tensor, stream: int, count: int, device: torch.device | str | None = None
) -> Tensor:
    """Draw `count` words of 64 random bits for each sample, int64 [n, count].

    seed: any integer; its low 64 bits count.
    sample: the samples' own indices, int64 [n].
    stream: which of the sample's independent sequences.
    device: where to draw; by default where `sample` is.
    """
    sample = sample.to(device)
    # Not `tensor`, which a GPU copies from here while everybody waits.
    key = torch.full((1,), _signed(seed), dtype=torch.int64, device=sample.device)
    key = _scatter(key.add_(_GOLDEN))
    key = _scatter(key.add_(_signed(stream * _GOLDEN)))
    rows = _scatter(sample[:, None] * _GOLDEN + key)
    steps = torch.arange(1, count + 1, device=sample.device) * _GOLDEN
    return _scatter(rows + steps)


def uniform(
    seed: int, sample: Tensor, stream: int, count: int, device: torch.device | str | None = None
) -> Tensor:
    """Draw `count` numbers in [0, 1) for each sample, float32 [n, count]; arguments as in `bits`.

    >>> uniform(0, torch.tensor([7]), stream=1, count=2).shape
    torch.Size([1, 2])
    """
    # 24 bits fill a float32 mantissa exactly, so no number rounds up to one.
    top = (bits(seed, sample, stream, count, device) >> 40).bitwise_and_(2**24 - 1)
    return top.to(torch.float32).mul_(2.0**-24)


def integers(seed: int, sample: Tensor, stream: int, count: int, below: int | Tensor) -> Tensor:
    """Draw `count` whole numbers from 0 to `below` - 1 for each sample, int64 [n, count].

    below: for all, or for each sample [n, 1]; other arguments as in `bits`.
    """
    return bits(seed, sample, stream, count).remainder_(below)


def normal(seed: int, sample: Tensor, stream: int, count: int) -> Tensor:
    """Draw `count` nearly normal numbers for each sample, float32 [n, count]; arguments as in
    `bits`.

    The sum of the four 16-bit fields of a word, brought to mean 0 and variance 1: no number lies
    beyond 3.47, where a normal one does once in two thousand.
    """
    word = bits(seed, sample, stream, count)
    total = (word & 0xFFFF).add_((word >> 16).bitwise_and_(0xFFFF))
    total.add_((word >> 32).bitwise_and_(0xFFFF)).add_((word >> 48).bitwise_and_(0xFFFF))
    return total.sub_(2 * 0xFFFF).to(torch.float32).mul_(math.sqrt(3 / (2**32 - 1)))
