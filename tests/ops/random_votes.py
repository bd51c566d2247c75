"""Votes of no particular meaning, which most laws are about."""

import torch


def random_votes(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)
