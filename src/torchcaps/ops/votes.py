"""Votes: what each child predicts each parent's pose to be.

vector poses  û_ij = W_ij u_i    W_ij ∈ R^{d_out×d_in}   [mitterreiter2023] Eq. 2, [gu2021] Eq. 1
matrix poses  V_ij = M_i W_ij    W_ij ∈ R^{√d×√d}        [peer2022] §3.3, [tsai2020] Eq. 1
vote bias     V_ij + bias_j                              [peer2022] §4.2
coordinates   V_ij + x_i, where child i lies             [hinton2018], for class capsules

With a window, i counts the slots of a window and the windows are one more batch axis.

Departures: none.
Ambiguities: [tsai2020] Eq. 1 multiplies from the left; the two agree up to transposition of poses.
Votes cost b·i·j·d numbers, the largest tensor of a capsule network by far.
"""

import math
from typing import get_args

import torch
from torch import Tensor

from torchcaps._checks import check_choice, check_type
from torchcaps.errors import TorchcapsError, short
from torchcaps.ops.checks import check_broadcast, check_device, check_dtypes, check_tensor
from torchcaps.types import Capsules, VoteMap, Window

SHARINGS = get_args(VoteMap.__annotations__["sharing"])
POSES = get_args(VoteMap.__annotations__["pose"])


def materialise(vote_map: VoteMap) -> Tensor:
    """Give the vote tensor of a vote map, [*b, i, j, d], or [*b, p, i, j, d] through a window.

    With sharing "type" the children are ordered (position, type), so child i has the weights of
    type i % types.

    Arguments:
        vote_map: the children, their weights, and how they are shared; `VoteMap` names the shapes.

    >>> children = Capsules(torch.ones(2, 18, 4))
    >>> materialise(VoteMap(children, torch.ones(18, 3, 6, 4))).shape
    torch.Size([2, 18, 3, 6])
    """
    u, weight = _per_type(vote_map)
    # u: [*b, p, t, d], weight: [t, j, ...]; one of p and t is 1 unless the weights are per type.
    # One product of matrices for each type. einsum would find the same, and look for longer.
    types, n_out, rows, columns = weight.shape
    lanes = u.flatten(0, -3).transpose(0, 1)  # [t, b * p, d]
    if vote_map.pose == "vector":
        made = torch.bmm(lanes, weight.flatten(1, 2).transpose(1, 2))
        rows, columns = 1, rows
    else:
        matrices = torch.unflatten(lanes, -1, (columns, rows)).flatten(1, 2)  # [t, b * p * r, k]
        made = torch.bmm(matrices, weight.transpose(1, 2).flatten(2))
    # Those of one parent lie together: every routing multiplies them, and a product of matrices
    # would copy them first.
    *lead, positions, _, _ = u.shape
    made = torch.unflatten(torch.unflatten(made, 1, (-1, positions, rows)), -1, (n_out, columns))
    votes = made.permute(1, 4, 2, 0, 3, 5).reshape(*lead, n_out, positions * types, rows * columns)
    votes = votes.transpose(-2, -3)  # [*b, i, j, d]
    if vote_map.bias is not None:
        check_broadcast("bias", vote_map.bias, votes.shape[-2:], "[parent, pose]")
        check_device(votes, bias=vote_map.bias)
        votes = votes + vote_map.bias
    if vote_map.coordinates is not None:
        n_in, _, size = votes.shape[-3:]
        check_broadcast("coordinates", vote_map.coordinates, (n_in, size), "[child, pose]")
        check_device(votes, coordinates=vote_map.coordinates)
        votes = votes + vote_map.coordinates.unsqueeze(-2)
    return votes


def seen_poses(vote_map: VoteMap) -> Tensor:
    """Give the poses of the children as parents see them: [*b, i, d], or [*b, p, i, d] through a
    window."""
    pose, window = vote_map.children.pose, vote_map.window
    return pose if window is None else window.of(pose)


def check_vote_map(vote_map: VoteMap) -> None:
    """Check what is asked of a vote map before its sizes are counted; those of weights are
    `_per_type`'s to compare."""
    children, window = vote_map.children, vote_map.window
    so = "wrap the poses: VoteMap(Capsules(pose), weight)"
    check_type("the children of a VoteMap", children, Capsules, so, as_a="Capsules")
    check_tensor("pose", children.pose)
    check_tensor("weight", vote_map.weight)
    _check_axes(children.pose, vote_map)
    if window is not None:
        _check_window(window, children.pose.shape[-2])
    check_broadcast("activation", children.activation, children.pose.shape[:-1], "[*batch, child]")


def _check_axes(pose: Tensor, vote_map: VoteMap) -> None:
    if pose.ndim < 2 or vote_map.weight.ndim != (3 if vote_map.sharing == "all" else 4):
        raise TorchcapsError(
            f"votes need child poses [*batch, child, pose] and weights [child, parent, out, in] "
            f"(without the child axis when shared by all), but came with shapes "
            f"{list(pose.shape)} and {list(vote_map.weight.shape)}."
        )


def _check_window(window: Window, n_in: int) -> None:
    sizes = [*window] if isinstance(window, Window) else []
    counts = [x for each in sizes if isinstance(each, tuple | list) for x in each]
    if len(counts) != 7 or not all(type(x) is int and x > 0 for x in counts):
        raise TorchcapsError(
            f"a window must be Window(child_grid=(height, width, types), kernel=(height, width), "
            f"stride=(height, width)) of whole numbers from 1, but came as {short(window)}."
        )
    grid, kernel, _ = window
    if math.prod(grid) != n_in or kernel[0] > grid[0] or kernel[1] > grid[1]:
        raise TorchcapsError(
            f"a window of {kernel} positions looks at a grid (height, width, types) that is at "
            f"least as large and holds every child, but the grid is {grid}, and {n_in} children "
            f"came; was it made for images of another size?"
        )


def _per_type(vote_map: VoteMap) -> tuple[Tensor, Tensor]:
    """Lay children as [*b, positions, types, d] and weights as [types, j, ...], sizes checked."""
    u, weight = vote_map.children.pose, vote_map.weight
    check_choice("sharing", vote_map.sharing, SHARINGS)
    check_choice("pose", vote_map.pose, POSES)
    check_tensor("pose", u)
    check_tensor("weight", weight)
    if vote_map.window is not None:
        u = vote_map.window.of(u)
    if vote_map.sharing == "all":
        weight = weight.unsqueeze(0)
    _check_axes(u, vote_map)
    check_dtypes(u, weight)
    check_device(u, weight=weight)
    n_in, types = u.shape[-2], weight.shape[0]
    fits = n_in % types == 0 if vote_map.sharing == "type" else n_in == types or types == 1
    if vote_map.sharing == "none":
        fits = n_in == types
    if not fits:
        raise TorchcapsError(
            f"{n_in} children came to weights made for {types} "
            f"({'types' if vote_map.sharing == 'type' else 'children'}, "
            f"sharing={vote_map.sharing!r}); does the image size or the primary layer differ from "
            f"what the layer was built for?"
        )
    d_in, expected = u.shape[-1], weight.shape[-1]
    if vote_map.pose == "matrix":
        if weight.shape[-2] != expected or math.isqrt(d_in) ** 2 != d_in:
            raise TorchcapsError(
                f"matrix poses need a square number of components and square weights, but came "
                f"with {d_in} components and weights {list(vote_map.weight.shape)}; "
                f'use pose="vector" for other sizes.'
            )
        expected = expected**2
    if d_in != expected:
        raise TorchcapsError(
            f"children have {d_in} pose components, but the weights expect {expected}."
        )
    return torch.unflatten(u, -2, (n_in // types, types)), weight
