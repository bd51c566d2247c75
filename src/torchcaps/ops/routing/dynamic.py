"""Dynamic routing, also routing-by-agreement (RBA): parents attract the children that agree with
them.

[mitterreiter2023] Alg. 1, [peer2022] Alg. 1 and §4.1, [gu2021] Eq. 2, [renzulli2025] Alg. 1;
from [sabour2017], https://arxiv.org/abs/1710.09829

for t = 1 … iterations:
    c_ij = softmax_j(b_ij)
    s_j  = Σ_i c_ij û_ij + bias_j
    v_j  = g(s_j)
    b_ij ← b_ij + α ⟨û_ij, v_j⟩

Departures:
1. The update of b after the last iteration is skipped: it changes neither v nor the c it came from.
Ambiguities:
1. The papers do not say where gradients stop; `detach` names the readings. Public code has "none"
   and "votes".
2. The prior b is zero in [peer2022] and [renzulli2025], learned in [mitterreiter2023]: pass it or
   not.
3. leaky, from the code of [sabour2017]: one more parent, with logit zero, takes what no parent
   wants and is then dropped, so the couplings of a child sum to less than one.
4. The factor α is ours: `agreement`, 1 in every paper. It says how sharp agreement is, through
   which deep networks have to be trained.
5. odd_bias is ours, a control for [peer2022] §5.3: s_j + sgn⟨s_j, bias_j⟩ bias_j adds a bias and
   keeps v(−u) = −v(u), so it tells the symmetry from other effects of a bias.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from torchcaps._checks import check_choice, check_flag
from torchcaps.ops.checks import (
    check_broadcast,
    check_device,
    check_factor,
    check_iterations,
    check_keep,
    check_votes,
    widen,
    without_autocast,
)
from torchcaps.ops.routing.common import along, biased, capsules, over_parents, weighted
from torchcaps.ops.routing.couple import coupled_or_even
from torchcaps.ops.squashing import KINDS, Squash
from torchcaps.ops.squashing import squash_known as g
from torchcaps.types import Couple, Keep, Routed, Step

# What is a constant to the gradient. "none": nothing. "votes": the votes, in all but the last
# iteration. "states": the v_j of all but the last iteration. "coupling": c, in every iteration.
# "votes" and "coupling" agree in the gradient of the votes; "votes" and "none" in that of bias and
# prior.
Detach = Literal["none", "votes", "states", "coupling"]
DETACHES = get_args(Detach)


def dynamic_routing(
    votes: Tensor,
    *,
    iterations: int = 3,
    bias: Tensor | None = None,
    prior: Tensor | None = None,
    odd_bias: bool = False,
    leaky: bool = False,
    squash: Squash = "hinton",
    detach: Detach = "none",
    agreement: float | Tensor = 1.0,
    keep: Keep = "none",
    couple: Couple | None = None,
) -> Routed:
    """Route votes [*b, i, j, d] to parents [*b, j, d]: parents attract the children that agree with
    them.

    `ops.routing.dynamic` has the equations.

    Arguments:
        votes: [*b, i, j, d]: what each child i predicts of the pose of each parent j.
        iterations: how often couplings are made, from 1; in the first one they are even, or follow
            the prior.
        bias: [j, d], added to s_j before every squash; None: nothing is added.
        prior: [i, j], the logits b_ij before the first iteration; None: zeros.
        odd_bias: True adds bias_j or −bias_j, whichever lies on the side of s_j; a control for
            [peer2022] §5.3.
        leaky: True lets one more parent with logit zero take what no parent wants, so couplings of
            a child may sum to less than one.
        squash: "hinton" ‖s‖²/(1+‖s‖²), "exp" 1 − exp(−‖s‖) as length of a parent, "none" leaves s_j
            as it is.
        detach: what is a constant to the gradient. "none": nothing. "votes": the votes, in all but
            the last iteration. "states": the v_j of all but the last iteration. "coupling": the
            couplings, in every iteration; then neither prior nor agreement learns.
        agreement: the factor α on what a logit grows by, a number or a tensor of one.
        keep: which iterations the result's `steps` hold, with their couplings: "none", "last", or
            all "steps".
        couple: a function on the couplings [*b, i, j] of the last iteration, by whose result the
            parents are made and which `keep` records; None: they stay.

    >>> dynamic_routing(torch.ones(1152, 10, 16)).parents.pose.shape
    torch.Size([10, 16])
    """
    options = DynamicOptions(
        iterations, bias, prior, odd_bias, leaky, squash, detach, agreement, keep, couple
    )
    check_dynamic(votes, options)
    dtype, votes = votes.dtype, widen(votes)
    steps = []
    with without_autocast(votes):
        # [*b, i, j]; without a prior nothing is known at first, and couplings are even.
        b = None if prior is None else prior.to(votes.dtype).expand(votes.shape[:-1])
        even = 1 / (votes.shape[-2] + int(leaky))
        # Once, not in the loop: float16 would round the gradient of every iteration.
        bias = None if bias is None else bias.to(votes.dtype)
        factor = factor_of(agreement, votes.dtype)
        for t in range(1, iterations + 1):
            last = t == iterations
            seen = votes.detach() if detach == "votes" and not last else votes
            c = None
            if b is not None:
                c = _softmax_over_parents(b.detach() if detach == "coupling" else b, leaky)
            if last:
                c = coupled_or_even(couple, c, votes, even)
            s = seen.sum(-3) * even if c is None else weighted(c, seen)
            v = g(biased(s, bias, odd_bias), squash)
            if keep == "steps" or (keep == "last" and last):
                c = votes.new_full(votes.shape[:-1], even) if c is None else c
                steps.append(Step(None, c.to(dtype), capsules(v, dtype)))
            if not last:
                agreed = v.detach() if detach == "states" else v
                update = along(seen, agreed if factor is None else factor * agreed)
                b = update if b is None else b + update
    return Routed(capsules(v, dtype), tuple(steps))


class DynamicOptions(NamedTuple):
    """What every form of dynamic routing is asked, with the defaults of `dynamic_routing`."""

    iterations: int = 3
    bias: Tensor | None = None
    prior: Tensor | None = None
    odd_bias: bool = False
    leaky: bool = False
    squash: Squash = "hinton"
    detach: Detach = "none"
    agreement: float | Tensor = 1.0
    keep: Keep = "none"
    couple: Couple | None = None


def check_dynamic(votes: Tensor, options: DynamicOptions) -> None:
    """Check what every form of dynamic routing asks of its arguments."""
    check_votes(votes)
    check_iterations(options.iterations)
    check_choice("detach", options.detach, DETACHES)
    check_choice("squash", options.squash, KINDS)
    check_keep(options.keep)
    check_flag("leaky", options.leaky)
    check_factor("agreement", options.agreement)
    check_broadcast("prior", options.prior, votes.shape[:-1], "[*batch, child, parent]")
    poses = (*votes.shape[:-3], *votes.shape[-2:])
    check_broadcast("bias", options.bias, poses, "[*batch, parent, pose]")
    check_device(votes, prior=options.prior, bias=options.bias)


def factor_of(agreement: float | Tensor, dtype: torch.dtype) -> float | Tensor | None:
    """Give the factor without axes, in the precision of the votes; none where it changes
    nothing."""
    if isinstance(agreement, Tensor):
        return agreement.reshape(()).to(dtype)
    return None if agreement == 1 else agreement


def _softmax_over_parents(logits: Tensor, leaky: bool) -> Tensor:
    if not leaky:
        return over_parents(logits)
    nobody = logits.new_zeros(*logits.shape[:-1], 1)
    return over_parents(torch.cat([logits, nobody], -1))[..., :-1]
