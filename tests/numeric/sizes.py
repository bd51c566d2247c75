"""Numbers that break formulas: zero, huge, subnormal, and all of them in one tensor."""

import torch
from hypothesis import strategies as st

# A word, or an exponent of ten. Each number of a "mixture" has a size of its own.
SIZES = st.sampled_from(["zero", "huge", "subnormal", "mixture"]) | st.integers(-30, 4)
FACTORS = {"zero": 0.0, "huge": 1e4}


def scaled(noise, size, dtype):
    """Normal numbers in float64 brought to a size; what is subnormal depends on the dtype."""
    if size == "mixture":
        sizes = ["zero", "huge", "subnormal", 0]
        parts = torch.stack([scaled(noise, each, dtype) for each in sizes])
        which = torch.arange(noise.numel()).view(1, *noise.shape) % len(sizes)
        return parts.gather(0, which).squeeze(0)
    if size == "subnormal":
        return noise.fmod(1) * torch.finfo(dtype).tiny
    return noise * (FACTORS[size] if size in FACTORS else 10.0**size)
