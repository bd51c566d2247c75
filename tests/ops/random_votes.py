"""Votes of no particular meaning, which most laws are about."""

import torch


def random_votes(*shape):
    return torch.randn(*shape, dtype=torch.float64)
