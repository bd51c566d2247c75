"""Self-routing: every child chooses its parents by itself, from its own pose. No agreement, no
iteration.

[hahn2019], with p_i the pose of child i and a_i its activation

    c_ij = softmax_j(⟨w_ij, p_i⟩ + bias_ij)
    a_j  = Σ_i a_i c_ij / Σ_i a_i
    v_j  = Σ_i a_i c_ij û_ij / Σ_i a_i c_ij

Departures:
1. A sum below 1e-8 counts as 1e-8: public code divides by zero where no child is active.
Ambiguities:
1. A parent's pose is no squashed sum: its length says nothing, its activation does.
2. Children without activations count alike, a_i = 1.
"""

import torch
from torch import Tensor

from torchcaps._checks import check_shape
from torchcaps.ops.checks import (
    check_broadcast,
    check_device,
    check_keep,
    check_votes,
    widen,
    without_autocast,
)
from torchcaps.ops.routing.common import weighted
from torchcaps.ops.routing.couple import coupled
from torchcaps.ops.squashing import EPSILON
from torchcaps.types import Capsules, Couple, Keep, Routed, Step


def self_routing(
    votes: Tensor,
    activation: Tensor | None = None,
    *,
    poses: Tensor | None,
    weight: Tensor,
    bias: Tensor | None = None,
    keep: Keep = "none",
    couple: Couple | None = None,
) -> Routed:
    """Route votes [*b, i, j, d] to parents [*b, j, d] with activations, by couplings that each
    child makes of its own pose.

    Arguments:
        votes: [*b, i, j, d]: what each child i predicts of the pose of each parent j.
        activation: [*b, i], how sure each child is there; None: all are alike.
        poses: [*b, i, n], of the children.
        weight: [i, j, n]: by its product with the pose of child i it goes to parent j.
        bias: [i, j], added to that; None: nothing is.
        keep: whether the result's `steps` hold the one pass, with its couplings: "none", "last" or
            "steps".
        couple: a function on the couplings [*b, i, j], by whose result the parents are made and
            which `keep` records.

    >>> routed = self_routing(
    ...     torch.rand(18, 5, 16), poses=torch.rand(18, 8), weight=torch.zeros(18, 5, 8)
    ... )
    >>> routed.parents.activation
    tensor([0.2000, 0.2000, 0.2000, 0.2000, 0.2000])
    """
    check_votes(votes)
    check_keep(keep)
    *lead, n_in, n_out, _ = votes.shape
    check_shape("poses", poses, (*lead, n_in, "component"), "every child has one")
    assert poses is not None
    check_shape("weight", weight, (n_in, n_out, poses.shape[-1]), "it reads the poses of children")
    check_broadcast("bias", bias, (n_in, n_out), "[child, parent]")
    if activation is not None:
        check_shape("activation", activation, (*lead, n_in), "every child has one")
    check_device(votes, poses=poses, weight=weight, bias=bias, activation=activation)
    dtype, votes = votes.dtype, widen(votes)
    with without_autocast(votes):
        seen, choice = poses.to(votes.dtype), weight.to(votes.dtype)
        logits = torch.einsum("...in,ijn->...ij", seen, choice)
        logits = logits if bias is None else logits + bias.to(votes.dtype)
        c = coupled(couple, logits.softmax(-1))
        a = votes.new_ones(*lead, n_in) if activation is None else activation.to(votes.dtype)
        given = a.unsqueeze(-1) * c
        total = given.sum(-2)  # [*b, j]
        mean = weighted(given / total.unsqueeze(-2).clamp_min(EPSILON), votes)
        share = total / a.sum(-1, keepdim=True).clamp_min(EPSILON)
    parents = Capsules(mean.to(dtype), share.to(dtype))
    return Routed(parents, () if keep == "none" else (Step(None, c.to(dtype), parents),))
