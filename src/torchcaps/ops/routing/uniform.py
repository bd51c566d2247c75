"""Uniform routing, the control of every routing: couplings are one constant, whatever the votes
say.

[mitterreiter2023] §4.3 (all couplings fixed to the same value), [gu2021] §3.1 (uniform average of
votes), [renzulli2025] §4.4 (one iteration)

    c_ij = 1/J  (softmax)   or   1/I  (mean)
    v_j  = g(Σ_i c_ij û_ij + bias_j)

Departures: none.
Ambiguities: the papers do not fix the constant. "softmax" is the first iteration of dynamic routing
and the default; "mean" averages the votes. W absorbs the difference, but at the start of training
the squash does not.
"""

from typing import Literal, NamedTuple, get_args

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
from torchcaps.ops.routing.common import capsules, weighted
from torchcaps.ops.routing.couple import coupled_or_even
from torchcaps.ops.squashing import Squash
from torchcaps.ops.squashing import squash as g
from torchcaps.types import Couple, Keep, Routed, Step

# "softmax": the couplings of a child sum to one; "mean": those of a parent do.
Normalise = Literal["softmax", "mean"]


def uniform_routing(
    votes: Tensor,
    *,
    normalise: Normalise = "softmax",
    bias: Tensor | None = None,
    squash: Squash = "hinton",
    keep: Keep = "none",
    couple: Couple | None = None,
) -> Routed:
    """Route votes [*b, i, j, d] to parents [*b, j, d] with equal couplings: the twin without
    routing.

    Arguments:
        votes: [*b, i, j, d]: what each child i predicts of the pose of each parent j.
        normalise: "softmax": every coupling is 1/j, as in the first iteration of dynamic routing.
            "mean": it is 1/i, so a parent is the mean of its votes.
        bias: [j, d], added before the squash; None: nothing is added.
        squash: "hinton" ‖s‖²/(1+‖s‖²), "exp" 1 − exp(−‖s‖) as length of a parent, "none" leaves s_j
            as it is.
        keep: whether the result's `steps` hold the one pass, with its couplings: "none", "last" or
            "steps".
        couple: a function on the couplings [*b, i, j], by whose result the parents are made and
            which `keep` records.

    >>> uniform_routing(torch.ones(1152, 10, 16)).parents.pose.shape
    torch.Size([10, 16])
    """
    share = check_uniform(votes, UniformOptions(normalise, bias, squash, keep, couple))
    dtype, votes = votes.dtype, widen(votes)
    with without_autocast(votes):
        c = coupled_or_even(couple, None, votes, share)
        s = votes.sum(-3) * share if c is None else weighted(c, votes)  # [*b, j, d]
        v = g(s if bias is None else s + bias.to(s.dtype), squash)
    steps: tuple[Step, ...] = ()
    if keep != "none":
        c = votes.new_full(votes.shape[:-1], share) if c is None else c
        steps = (Step(None, c.to(dtype), capsules(v, dtype)),)
    return Routed(capsules(v, dtype), steps)


class UniformOptions(NamedTuple):
    """What every form of uniform routing is asked, with the defaults of `uniform_routing`."""

    normalise: Normalise = "softmax"
    bias: Tensor | None = None
    squash: Squash = "hinton"
    keep: Keep = "none"
    couple: Couple | None = None


def check_uniform(votes: Tensor, options: UniformOptions) -> float:
    """Check what every form of uniform routing asks of its arguments, and return the coupling."""
    check_votes(votes)
    check_choice("normalise", options.normalise, get_args(Normalise))
    check_keep(options.keep)
    *lead, n_in, n_out, size = votes.shape
    check_broadcast("bias", options.bias, (*lead, n_out, size), "[*batch, parent, pose]")
    check_device(votes, bias=options.bias)
    check_choice("squash", options.squash, get_args(Squash))
    return 1 / (n_out if options.normalise == "softmax" else n_in)
