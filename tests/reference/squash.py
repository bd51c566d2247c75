"""Squash of one pose, a list of scalars. [gu2021] Eq. 3 and [mitterreiter2023] Eq. 1."""

import torch

from reference.numbers import shaped

EPSILON = 1e-8


def squash(s, kind="hinton"):
    if kind == "none":
        return list(s)
    square = sum(x * x for x in s)
    norm = torch.sqrt(square + EPSILON)
    length = {"hinton": square / (1 + square), "exp": 1 - torch.exp(-norm)}[kind]
    return [length * x / norm for x in s]


def squash_poses(poses, kind="hinton"):
    """The same for a tensor [*b, d], pose by pose."""
    flat = poses.reshape(-1, poses.shape[-1])
    return shaped([squash(row.unbind(), kind) for row in flat], poses, *poses.shape)
