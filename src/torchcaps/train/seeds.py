"""Seeds for every purpose and moment of a run, none of them related to another."""

import torch

# What random numbers are drawn for; each has a stream of its own.
WEIGHTS, ORDER, STEP, HOLD_OUT, AUGMENT, SOME, CROP, MASKS, MEASURE = range(9)


def seed_of(seed: int, *numbers: int) -> int:
    """Give a seed below 2^63, by the mixer of SplitMix64: neighbouring numbers are unrelated."""
    for number in (0, *numbers):
        seed = (seed + (number + 1) * 0x9E3779B97F4A7C15) % 2**64
        seed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        seed = (seed ^ seed >> 27) * 0x94D049BB133111EB % 2**64
        seed ^= seed >> 31
    return seed % 2**63


def begin_random(seed: int, device: torch.device) -> None:
    """Begin the random numbers of a processor and of this device anew. `torch.manual_seed` asks
    every kind of device there may be, which takes longer than to start a graph of a step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)
