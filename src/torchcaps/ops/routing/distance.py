"""Scaled-distance-agreement routing of γ-capsules: a child goes to the parents that lie near its
vote, measured against the mean distance.

[peer2018], https://arxiv.org/abs/1812.09707; [renzulli2025] §2.2, §4.2, C.3

û_ij ← û_ij · min(1, ‖u_i‖ / ‖û_ij‖)          a vote is no longer than its child
for t = 1 … iterations:
    c_ij = softmax_j(b_ij)
    s_j  = Σ_i c_ij û_ij + bias_j
    v_j  = g(s_j)
    d_ij = ‖v_j − û_ij‖
    d_o  = mean_ij d_ij,  d_p = d_o / 2
    b_ij ← d_ij · (ln(p (J − 1)) − ln(1 − p)) / (d_p − d_o)      replaced, not added to

A parent at d_p, while all others are at d_o, gets probability p.

Departures:
1. d_ij is sqrt(‖v_j − û_ij‖² + ε), ε as in `squash`, so its gradient exists where a vote meets its
   parent. No distance is below sqrt(ε) = 1e-4, and d_p − d_o needs no guard of its own: when every
   vote meets its parent, couplings are uniform.
2. With one parent p (J − 1) is zero; it is taken as p. The coupling is 1 whatever the logit.
3. The update of b after the last iteration is skipped: it changes neither v nor the c it came from.
4. A vote below SHORTEST is not shortened, however short its child: its square is lost in single
   precision, and with it the direction in which a length acts. One beyond 1e19, whose square
   overflows, is measured by its largest number, but not where a look at values is dear: on an
   accelerator and in a compiled graph it is shortened to nothing.
Ambiguities:
1. The mean of d_o is over the batch too in public code, so a sample's result depends on the others
   ("batch"); "sample", the default, is a mean for each sample alone.
2. [renzulli2025] does not say where gradients stop; `detach` names three readings. One public code
   has "none", that of [renzulli2025] has "iterations".
"""

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from torchcaps._checks import check_choice, is_between
from torchcaps.errors import TorchcapsError, short
from torchcaps.ops.checks import (
    check_broadcast,
    check_device,
    check_iterations,
    check_keep,
    check_votes,
    may_look,
    widen,
    without_autocast,
)
from torchcaps.ops.routing.common import capsules, lengths, over_parents, weighted
from torchcaps.ops.routing.couple import coupled_or_even
from torchcaps.ops.squashing import EPSILON, Squash
from torchcaps.ops.squashing import squash as g
from torchcaps.types import Couple, Keep, Routed, Step

SHORTEST = 1e-18
# Whose distances d_o is the mean of: one sample's, through windows each one's, or the batch's.
Scale = Literal["sample", "batch"]
# What is a constant to the gradient. "votes": the rescaled votes, in all but the last iteration.
# "iterations": all that happens before the last one, and the bias there.
DetachVotes = Literal["none", "votes", "iterations"]


def distance_routing(
    votes: Tensor,
    activation: Tensor | None,
    *,
    iterations: int = 3,
    scale: Scale | Tensor = "sample",
    bias: Tensor | None = None,
    p: float = 0.9,
    squash: Squash = "hinton",
    detach: DetachVotes = "none",
    keep: Keep = "none",
    couple: Couple | None = None,
) -> Routed:
    """Route votes [*b, i, j, d] of children as long as `activation` to parents [*b, j, d]: a child
    goes to the parents that its votes lie near.

    `ops.routing.distance` has the equations. The result's `scale` holds the mean distance d_o of
    every update, in the precision that was used: [*b, iterations − 1] for scale="sample",
    [iterations − 1] for "batch", None for one iteration.

    Arguments:
        votes: [*b, i, j, d]: what each child i predicts of the pose of each parent j.
        activation: [*b, i], the length of each child, to which its votes are shortened.
        iterations: how often couplings are made, from 1; the first ones are even.
        scale: over what the mean distance is taken. "sample": one image, through windows each of
            them alone. "batch": the images of this process. A tensor [iterations − 1] is used as it
            is, so that a network is evaluated with the mean distances of its training.
        bias: [j, d], added to s_j before every squash; None: nothing is added.
        p: the coupling to a parent at half the mean distance, while all others are at the mean
            distance; above 0, below 1.
        squash: "hinton" ‖s‖²/(1+‖s‖²), "exp" 1 − exp(−‖s‖) as length of a parent, "none" leaves s_j
            as it is.
        detach: what is a constant to the gradient. "none": nothing. "votes": the votes of all but
            the last iteration. "iterations": all that the iterations before the last one computed.
        keep: which iterations the result's `steps` hold, with their couplings: "none", "last", or
            all "steps".
        couple: a function on the couplings [*b, i, j] of the last iteration, by whose result the
            parents are made and which `keep` records.

    >>> routed = distance_routing(torch.ones(1152, 10, 16), torch.ones(1152))
    >>> routed.parents.pose.shape, routed.scale.shape
    (torch.Size([10, 16]), torch.Size([2]))
    """
    options = DistanceOptions(iterations, scale, bias, p, squash, detach, keep, couple)
    activation, log_odds = check_distance(votes, activation, options)
    dtype, votes = votes.dtype, widen(votes)
    steps, used = [], []
    with without_autocast(votes):
        votes = no_longer_than(activation.to(votes.dtype), votes)
        b: Tensor | None = None  # [*b, i, j]; at first nothing is known, and couplings are even
        # Once, not in the loop: float16 would round the gradient of every iteration.
        bias = None if bias is None else bias.to(votes.dtype)
        for t in range(1, iterations + 1):
            last = t == iterations
            stops = detach == "iterations" and not last
            seen = votes.detach() if stops or (detach == "votes" and not last) else votes
            added = bias.detach() if stops and bias is not None else bias
            c = None if b is None else over_parents(b)
            if last:
                c = coupled_or_even(couple, c, votes, 1 / votes.shape[-2])
            s = seen.sum(-3) / votes.shape[-2] if c is None else weighted(c, seen)
            v = g(s if added is None else s + added, squash)
            if keep == "steps" or (keep == "last" and last):
                c = votes.new_full(votes.shape[:-1], 1 / votes.shape[-2]) if c is None else c
                steps.append(Step(None, c.to(dtype), capsules(v, dtype)))
            if not last:
                gap = v.unsqueeze(-3) - seen
                d = torch.sqrt((gap * gap).sum(-1) + EPSILON)  # [*b, i, j]
                if isinstance(scale, Tensor):
                    d_o = (scale.detach() if stops else scale)[t - 1].to(d.dtype)
                else:
                    d_o = d.mean((-2, -1)) if scale == "sample" else d.mean()
                d_p = d_o / 2
                b = d * (log_odds / (d_p - d_o))[..., None, None]
                used.append(d_o)
    distances = torch.stack(used, -1) if used else None
    return Routed(capsules(v, dtype), tuple(steps), distances)


class DistanceOptions(NamedTuple):
    """What every form of distance routing is asked, with the defaults of `distance_routing`."""

    iterations: int = 3
    scale: Scale | Tensor = "sample"
    bias: Tensor | None = None
    p: float = 0.9
    squash: Squash = "hinton"
    detach: DetachVotes = "none"
    keep: Keep = "none"
    couple: Couple | None = None


def check_distance(
    votes: Tensor, activation: Tensor | None, options: DistanceOptions
) -> tuple[Tensor, float]:
    """Check what every form asks of its arguments, and return the lengths of children, and the log
    odds that p stands for."""
    check_votes(votes)
    check_iterations(options.iterations)
    if isinstance(options.scale, Tensor):
        _check_distances(options.scale, options.iterations - 1)
    else:
        check_choice("scale", options.scale, get_args(Scale))
    check_choice("detach", options.detach, get_args(DetachVotes))
    check_keep(options.keep)
    if activation is None:
        raise TorchcapsError(
            "distance routing keeps votes as short as their children, but the children came "
            "without lengths; give them, for example Capsules(pose, pose.norm(dim=-1))."
        )
    check_broadcast("activation", activation, votes.shape[:-2], "[*batch, child]")
    parents = (*votes.shape[:-3], *votes.shape[-2:])
    check_broadcast("bias", options.bias, parents, "[*batch, parent, pose]")
    scale = options.scale if isinstance(options.scale, Tensor) else None
    check_device(votes, activation=activation, bias=options.bias, scale=scale)
    log_odds = _log_odds(options.p, votes.shape[-2])
    check_choice("squash", options.squash, get_args(Squash))
    return activation, log_odds


def no_longer_than(length: Tensor, votes: Tensor) -> Tensor:
    """Shorten votes [*b, i, j, d] to `length` [*b, i] where they are longer."""
    limit = length.unsqueeze(-1)
    norm = of_long_votes(lengths(votes), votes, -1)  # [*b, i, j]
    longer = norm > limit.clamp(min=SHORTEST)
    # The other norms may be zero: what is divided by must not be one of them.
    factor = torch.where(longer, limit / torch.where(longer, norm, 1), 1)
    return votes * factor.unsqueeze(-1)


def of_long_votes(norm: Tensor, votes: Tensor, axis: int) -> Tensor:
    """Give norms of votes along an axis, with those whose squares overflowed found once more, as so
    many times their largest number; where looking for them is cheap."""
    if not (may_look(norm) and norm.numel() and float(norm.detach().amax()) == math.inf):
        return norm
    largest = votes.detach().abs().amax(axis, keepdim=True).clamp(min=1)
    found = largest.squeeze(axis) * torch.linalg.vector_norm(votes / largest, dim=axis)
    return torch.where(norm.isinf(), found, norm)


def _log_odds(p: float, n_out: int) -> float:
    """ln(p (J − 1)) − ln(1 − p): how far the logit of a parent at d_p is above those at d_o."""
    chance = 1 / n_out if n_out > 1 else 0.0
    if not is_between(chance, p, 1) or p in (chance, 1):
        raise TorchcapsError(
            f"p is the probability of a parent at half the mean distance, so with J = {n_out} it "
            f"must lie between {chance:.3g} and 1, but came as {short(p)}; below chance, far "
            f"parents win."
        )
    return math.log(p * max(n_out - 1, 1)) - math.log1p(-p)


def _check_distances(scale: Tensor, updates: int) -> None:
    if list(scale.shape) != [updates]:
        raise TorchcapsError(
            f"scale must hold one distance for each update, [iterations - 1] = [{updates}], but "
            f"has shape {list(scale.shape)}; was it measured with other iterations, or for each "
            f"sample?"
        )
    if may_look(scale) and not bool((scale > 0).all()):
        raise TorchcapsError(
            f"scale must hold distances above zero, but came as {scale.tolist()}; were they never "
            f'measured? Route with scale="batch" first and keep the mean of what comes back.'
        )
