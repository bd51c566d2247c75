"""Self-attention routing by the sums of inverted routing, for the forms that have kernels of these.

With sum(p) = Σ_i softmax_j(⟨û_ij, p_j⟩ / √D) û_ij, and sum() where all couplings are one,

    T = sum(),     s_j = sum(T)_j + Σ_i bias_ij û_ij,     v_j = g(s_j)

and the last term is sum() of the votes that weights bias_ij W_ij make. What differentiates these
sums differentiates this.
"""

import math

import torch
from torch import Tensor

from torchcaps.ops.checks import widen, without_autocast
from torchcaps.ops.fused import inverted, self_attention
from torchcaps.ops.squash import Squash
from torchcaps.types import Keep, Routed, VoteMap

__all__ = ["route"]


def route(
    sums: inverted.Sums,
    vote_map: VoteMap,
    *,
    bias: Tensor | None = None,
    squash: Squash = "exp",
    keep: Keep = "none",
) -> Routed:
    """Route a vote map whose sums over children are made by `sums`; the fused way where these are
    the fused ones, and where samples, or children that share weights, have biases of their own."""
    has_own = bias is not None and (
        vote_map.sharing != "none" or any(size != 1 for size in bias.shape[:-2])
    )
    if sums is inverted._sums or has_own:
        return self_attention.self_attention_routing(vote_map, bias=bias, squash=squash, keep=keep)
    votes = self_attention._checked(vote_map, bias, squash, keep)
    *_, n_in, n_out, size = votes.shape
    # Of one number: `votes` stands for more than there is memory.
    wide, window = widen(votes.new_empty(())).dtype, vote_map.window
    pose, weight, vote_bias = vote_map.children.pose, vote_map.weight, vote_map.bias
    coordinates, kind = vote_map.coordinates, vote_map.pose
    vote_bias = None if vote_bias is None else vote_bias.to(wide).expand(n_out, size)
    coordinates = None if coordinates is None else coordinates.to(wide).expand(n_in, size)
    looks = [] if window is None else [*window.child_grid, *window.kernel, *window.stride]
    made_of = (pose, weight, vote_bias, coordinates, vote_map.sharing, kind, looks, wide)
    scale, kept = 1 / math.sqrt(size), keep != "none"
    with without_autocast(votes):
        if bias is None:
            total, _ = sums(None, *made_of, 1.0, False)
            s, couplings = sums(total, *made_of, scale, kept)
            return self_attention._finished(votes, s, couplings, squash, keep)
        bias = bias.to(wide).view(bias.shape[-2:]).expand(n_in, n_out)
        # T and the sum that is biased together, as twice so many parents: children are read once.
        shares = torch.cat([torch.ones_like(bias), bias], 1)
        shared = weight.to(wide).repeat(1, 2, 1, 1) * shares[..., None, None]
        both, _ = sums(
            None, pose.to(wide), shared, None, None, "none", kind, looks, wide, 1.0, False
        )
        if vote_bias is not None:
            both = both + shares.sum(0).unsqueeze(-1) * vote_bias.repeat(2, 1)
        if coordinates is not None:
            both = both + shares.t() @ coordinates
        total, biased = both.chunk(2, 2)
        s, couplings = sums(total, *made_of, scale, kept)
        couplings = couplings + bias if kept else couplings
    return self_attention._finished(votes, s + biased, couplings, squash, keep)
