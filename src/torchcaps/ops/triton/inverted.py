"""Inverted routing from a vote map by Triton kernels: votes live in the registers of a GPU.

The algorithm, its papers, its options and its ambiguities are those of `ops.inverted_routing`, the
equations those of `ops.fused.inverted_routing`: an iteration is the sum of `mixing` that agrees
with A_j = scale p_j, the first one the sum of all votes.

Departures: no activations (ablation C), as in the fused form. Half precision is widened before it
is multiplied. float32 is multiplied in full precision, unless torch.set_float32_matmul_precision
allows TensorFloat-32. float64 goes the fused way, as do poses so large that the weights of one pair
have more than 8192 numbers.
Ambiguities: none.

Kept are the children, the weights and the parents of every iteration. Backwards through windows,
the gradients of poses lie in memory once for every window that sees them.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops.fused import inverted as fused
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.triton.mixing import Found, Mixing, Terms
from torchcaps.ops.triton.runtime import check_available
from torchcaps.ops.triton.votes import Votes, fits, shape_of
from torchcaps.types import Routed, Step, VoteMap

__all__ = ["inverted_routing", "inverted_step"]


def inverted_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.inverted_routing`."""
    return fused.route(_sums_of(vote_map), vote_map, **options)


def inverted_step(vote_map: VoteMap, parents: Tensor | None, **options: Any) -> Step:
    """One iteration from the present parents, as in `ops.fused.inverted_step`."""
    return fused.step(_sums_of(vote_map), vote_map, parents, **options)


def _sums_of(vote_map: VoteMap) -> fused.Sums:
    votes = vote_like(vote_map)
    check_available(votes.device)
    return _by_kernel if fits(vote_map) else fused._sums


def _by_kernel(
    parents: Tensor | None, pose: Tensor, weight: Tensor, *arguments: Any
) -> tuple[Tensor, Tensor]:
    *made_of, _, scale, kept = arguments
    # A batch may have several axes; without a window all of them are lanes.
    flat = pose.reshape(math.prod(pose.shape[:-2]), *pose.shape[-2:])
    sums, couplings = _sums(parents, flat, weight, *made_of, scale, kept)
    return sums, couplings


def _sums_kernel(
    parents: Tensor | None,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    scale: float,
    kept: bool,
) -> tuple[Tensor, Tensor]:
    """Σ_i r_ij v_ij [b, p, j, d] of such parents and, if kept, r [b, p, i, j]; without parents r is
    1."""
    made_of = (pose, weight, vote_bias, coordinates, sharing, kind, window)
    sums, couplings = _sums_shapes(parents, *made_of, scale, kept)
    if not sums.numel():
        return sums, couplings
    mixing = Mixing(Votes(*made_of))
    if parents is None:
        found, moved = mixing.total().sum(0), mixing.moved()
        return (found if moved is None else found + moved).view(sums.shape), couplings
    agreed, norms = (scale * parents).contiguous(), mixing.found()
    mixing.normalise(1, agreed, norms)
    partial = mixing.mix(1, agreed, norms, coupling=couplings if kept else None)
    return partial.sum(0).view(sums.shape), couplings


def _backward_kernel(
    of_sums: Tensor | None,
    of_couplings: Tensor | None,
    parents: Tensor | None,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    scale: float,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the five tensors, empty where there is no need."""
    inputs = (parents, pose, weight, vote_bias, coordinates)
    if len(pose):
        mixing = Mixing(Votes(*inputs[1:], sharing, kind, window))
        found = _gradients(mixing, of_sums, of_couplings, parents, scale, needs)
    else:
        found = [None if x is None else torch.zeros_like(x) for x in inputs]
    of_made = (
        mine.to(x.dtype).view(x.shape) if mine is not None and x is not None and need else None
        for mine, x, need in zip(found, inputs, needs, strict=True)
    )
    return listed(list(of_made), pose)


def _gradients(
    mixing: Mixing,
    of_sums: Tensor | None,
    of_couplings: Tensor | None,
    parents: Tensor | None,
    scale: float,
    needs: Sequence[bool],
) -> list[Tensor | None]:
    gamma, found = mixing.votes.parents(1), mixing.found(1)
    gamma = gamma.zero_() if of_sums is None else of_sums.contiguous().view(gamma.shape)
    terms, agreed, of_parents = Terms(first=1, uniform=1.0), gamma, None
    if parents is not None:
        terms, agreed = Terms(), (scale * parents).contiguous().view(gamma.shape)
        of_couplings = None if of_couplings is None else of_couplings.contiguous()
        here: Found = tuple(None if x is None else x[0] for x in found)
        mixing.normalise(1, agreed, here, gamma, of_couplings)
        if needs[0]:
            of_parents = scale * mixing.mix(1, agreed, here, gamma, of_couplings).sum(0)
    if not any(needs[1:]):
        return [of_parents, *(None,) * 4]
    *of_made, _ = mixing.differentiate(terms, agreed, gamma, of_couplings, found, needs[1:])
    return [of_parents, *of_made]


_sums = torch.library.custom_op("torchcaps::triton_inverted_sums", _sums_kernel, mutates_args=())
_backward = torch.library.custom_op(
    "torchcaps::triton_inverted_sums_backward", _backward_kernel, mutates_args=()
)


@_sums.register_fake
def _sums_shapes(
    parents: Tensor | None, pose: Tensor, weight: Tensor, *arguments: Any
) -> tuple[Tensor, Tensor]:
    _, _, sharing, kind, window, _, kept = arguments
    shape = shape_of(pose, weight, sharing, kind, window)
    lead = (len(pose), shape.windows)
    couplings = (*lead, shape.children, shape.parents) if kept else (0,)
    sums = pose.new_empty((*lead, shape.parents, shape.size), dtype=torch.float32)
    return sums, pose.new_empty(couplings, dtype=torch.float32)


@_backward.register_fake
def _backward_shapes(
    of_sums: Tensor | None, of_couplings: Tensor | None, *arguments: Any
) -> list[Tensor]:
    return shapes_listed(arguments[:5], arguments[-1], arguments[1])


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:5])
    ctx.options = inputs[5:]


def _differentiate(
    ctx: Any, of_sums: Tensor | None, of_couplings: Tensor | None
) -> tuple[Tensor | None, ...]:
    *options, _ = ctx.options
    needs = list(ctx.needs_input_grad[:5])
    gradients = _backward(of_sums, of_couplings, *ctx.saved_tensors, *options, needs)
    return wanted(ctx, gradients, needs)


_sums.register_autograd(_differentiate, setup_context=_keep_for_backward)
once(_backward, "Triton inverted or self-attention routing", fused.ITS_PLAIN)
