"""Self-attention routing: a child goes to the parents for which its vote agrees with all the other
votes. One pass, no iteration.

[mazzia2021], cited by [renzulli2025] §4.2

    A_ij = ⟨û_ij, Σ_i′ û_i′j⟩ / √D
    c_ij = softmax_j(A_ij) + bias_ij
    s_j  = Σ_i c_ij û_ij
    v_j  = g(s_j)                             exp

Departures:
1. A_ij is written Σ_i′ ⟨û_ij, û_i′j⟩ / √D, products of all pairs of children; summing the votes
   first gives the same numbers at a cost that grows with I, not I².
Ambiguities:
1. The bias enters after the softmax, as in public code: the couplings of a child need not sum to
   one, and may be negative.
"""

import math
from typing import NamedTuple

from torch import Tensor

from torchcaps._checks import check_choice
from torchcaps.ops.checks import (
    check_broadcast,
    check_device,
    check_keep,
    check_votes,
    widen,
    without_autocast,
)
from torchcaps.ops.routing.common import along, capsules, weighted
from torchcaps.ops.routing.couple import coupled
from torchcaps.ops.squashing import KINDS, Squash
from torchcaps.ops.squashing import squash_known as g
from torchcaps.types import Couple, Keep, Routed, Step

# Of so many children, as the network of [mazzia2021] has, all products of two poses and their sums
# take a third of the time of a small product of matrices a parent, both passes together.
FEW_CHILDREN = 128


def self_attention_routing(
    votes: Tensor,
    *,
    bias: Tensor | None = None,
    squash: Squash = "exp",
    keep: Keep = "none",
    couple: Couple | None = None,
) -> Routed:
    """Route votes [*b, i, j, d] to parents [*b, j, d] in one pass: children that predict what
    others predict count more.

    Arguments:
        votes: [*b, i, j, d]: what each child i predicts of the pose of each parent j.
        bias: [i, j], added to the couplings; None: nothing is added.
        squash: "hinton" ‖s‖²/(1+‖s‖²), "exp" 1 − exp(−‖s‖) as length of a parent, "none" leaves s_j
            as it is.
        keep: whether the result's `steps` hold the one pass, with its couplings and bias: "none",
            "last" or "steps".
        couple: a function on the sum of couplings and bias [*b, i, j], by whose result the parents
            are made and which `keep` records.

    >>> self_attention_routing(torch.ones(16, 10, 16)).parents.pose.shape
    torch.Size([10, 16])
    """
    check_self_attention(votes, SelfAttentionOptions(bias, squash, keep, couple))
    dtype, votes = votes.dtype, widen(votes)
    few = votes.shape[-3] <= FEW_CHILDREN
    with without_autocast(votes):
        total = votes.sum(-3)
        a = (votes * total.unsqueeze(-3)).sum(-1) if few else along(votes, total)
        c = (a / math.sqrt(votes.shape[-1])).softmax(-1)
        if bias is not None:
            c = c + bias.to(c.dtype)
        c = coupled(couple, c)
        s = (c.unsqueeze(-1) * votes).sum(-3) if few else weighted(c, votes)
        v = g(s, squash)
    steps = () if keep == "none" else (Step(None, c.to(dtype), capsules(v, dtype)),)
    return Routed(capsules(v, dtype), steps)


class SelfAttentionOptions(NamedTuple):
    """What every form of self-attention routing is asked, with the defaults of
    `self_attention_routing`."""

    bias: Tensor | None = None
    squash: Squash = "exp"
    keep: Keep = "none"
    couple: Couple | None = None


def check_self_attention(votes: Tensor, options: SelfAttentionOptions) -> None:
    """Check what every form of self-attention routing asks of its arguments."""
    check_votes(votes)
    check_keep(options.keep)
    check_broadcast("bias", options.bias, votes.shape[:-1], "[*batch, child, parent]")
    check_device(votes, bias=options.bias)
    check_choice("squash", options.squash, KINDS)
