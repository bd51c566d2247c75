"""Squash of one pose, a list of scalars. [gu2021] Eq. 3 and [mitterreiter2023] Eq. 1."""

import torch

EPSILON = 1e-8


def squash(s, kind="hinton"):
    if kind == "none":
        return list(s)
    square = 0.0
    for x in s:
        square = square + x * x
    norm = torch.sqrt(square + EPSILON)
    if kind == "hinton":
        length = square / (1 + square)
    elif kind == "exp":
        length = 1 - torch.exp(-norm)
    else:
        raise KeyError(kind)
    return [length * x / norm for x in s]


def squash_poses(poses, kind="hinton"):
    """The same for a tensor [*b, d], pose by pose."""
    flat = poses.reshape(-1, poses.shape[-1])
    rows = [torch.stack(squash(row.unbind(), kind)) for row in flat]
    return torch.stack(rows).reshape(poses.shape) if rows else poses.clone()


def scalars(tensor):
    """The numbers of a tensor as nested lists of 0-d tensors."""
    numbers = list(tensor.reshape(-1).unbind())
    for size in reversed(tensor.shape[1:]):
        numbers = [numbers[k : k + size] for k in range(0, len(numbers), size)]
    return numbers
