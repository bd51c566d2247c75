"""Inverted dot-product attention routing: children attend to parents, parents compete for them.

[tsai2020] §3, Eqs. 2–4, Procedure 1; ablations A and C of §5, footnote 1

p_j = 0
for t = 1 … iterations:
    r_ij = softmax_j(scale ⟨p_j, v_ij⟩)      all 1/J at first
    p_j  = LayerNorm(Σ_i r_ij v_ij)          norm=None: ablation A, no LayerNorm

With activations, ablation C, a_i of the children weigh the votes: w_ij = r_ij a_i,
    p_j  = LayerNorm(Σ_i w_ij v_ij)
    m_j  = Σ_i w_ij
    μ_jh = Σ_i w_ij v_ijh / m_j,   σ²_jh = Σ_i w_ij (v_ijh − μ_jh)² / m_j
    a_j  = logistic(λ (β_a − m_j Σ_h (β_u + ½ ln(σ²_jh + 10⁻⁴))))

Departures: none; `scale` is 1 in the paper and 1/√d in public code.
Ambiguities:
1. The paper says neither whether LayerNorm has a weight and a bias nor what guards it. As in public
   code, one pair (weight, bias) [d] serves all parents and iterations; the guard is 10⁻⁵, inside
   the root.
2. The activations of ablation C are "the same kind" as those of EM routing, no more. We keep the
   paper's sum, which does not divide by m_j, a constant λ, and couplings that do not see a_j.
   Where m_j = 0 the variance is taken to be 0, so a_j = logistic(λ β_a).
3. Footnote 1 starts from random or learned parents instead of 0: `start`. The couplings of the
   first iteration are then not uniform.

Without `start` and the bias of LayerNorm, negated votes give negated poses and equal couplings, bit
for bit.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from torchcaps._checks import check_number
from torchcaps.errors import TorchcapsError
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
from torchcaps.ops.routing.couple import coupled
from torchcaps.types import Capsules, Couple, Keep, Routed, Step

NORM_GUARD = 1e-5
VARIANCE_FLOOR = 1e-4


def inverted_step(
    votes: Tensor,
    parents: Tensor | None,
    activation: Tensor | None = None,
    *,
    norm: tuple[Tensor, Tensor] | None = None,
    scale: float | Tensor = 1.0,
    beta_a: Tensor | None = None,
    beta_u: Tensor | None = None,
    lambda_: float = 0.01,
    couple: Couple | None = None,
) -> Step:
    """Take one iteration of `inverted_routing`, for layers that route at the same time.

    Half precision is rounded after every call, but in `inverted_routing` only once.

    Arguments:
        votes: [*b, i, j, d]: what each child i predicts of the pose of each parent j.
        parents: [*b, j, d], the present poses; None: this is the first iteration.
        activation: [*b, i] of the children; only together with beta_a and beta_u.
        norm: weight and bias, both [d], of a LayerNorm on every parent; None: parents stay as they
            are.
        scale: the factor on agreements, a number or a tensor of one.
        beta_a: [j], what speaks for a parent that is on; None: parents have no activations.
        beta_u: [j], what it costs to describe the children of a parent; goes with beta_a.
        lambda_: the inverse temperature of a parent's activation, where there is one.
        couple: a function on the couplings [*b, i, j], by whose result the parents are made.

    >>> inverted_step(torch.ones(1152, 10, 16), None).parents.pose.shape
    torch.Size([10, 16])
    """
    check_inverted(votes, InvertedOptions(norm=norm, scale=scale))
    poses = (*votes.shape[:-3], *votes.shape[-2:])
    check_broadcast("parents", parents, poses, "[*batch, parent, pose]")
    _check_activation(votes, activation, beta_a, beta_u, lambda_)
    check_device(votes, parents=parents, activation=activation, beta_a=beta_a, beta_u=beta_u)
    dtype, votes = votes.dtype, widen(votes)
    with without_autocast(votes):
        if parents is None:
            r = votes.new_full(votes.shape[:-1], 1 / votes.shape[-2])  # [*b, i, j]
        else:
            p = parents.to(votes.dtype).expand(poses)
            r = (_number(scale, votes) * torch.einsum("...ijd,...jd->...ij", votes, p)).softmax(-1)
        r = coupled(couple, r, negative=activation is None)
        w, a = r, None
        if activation is not None and beta_a is not None and beta_u is not None:
            w = r * activation.to(r.dtype).unsqueeze(-1)
            a = _activation(votes, w, beta_a.to(r.dtype), beta_u.to(r.dtype), lambda_)
        p = torch.einsum("...ij,...ijd->...jd", w, votes)
        if norm is not None:
            weight, bias = (x.to(p.dtype).expand(p.shape[-1]) for x in norm)
            p = normalised(p, weight, bias)
    return _rounded(Step(None, r, Capsules(p, a)), dtype)


def normalised(pose: Tensor, weight: Tensor, bias: Tensor, guard: float = NORM_GUARD) -> Tensor:
    """Compute LayerNorm of the last axis, by weight and bias [d]."""
    return layer_norm(centred(pose), pose.shape[-1:], weight, bias, guard)


def centred(pose: Tensor) -> Tensor:
    """Give a pose without the mean of its components. PyTorch's LayerNorm takes m/σ from x/σ: where
    the mean m is large beside the spread σ, hardly a digit is left, and none of one component."""
    # Not `mean`, whose gradient is divided number by number.
    return pose - pose.sum(-1, keepdim=True) / pose.shape[-1]


def inverted_routing(
    votes: Tensor,
    activation: Tensor | None = None,
    *,
    iterations: int = 2,
    norm: tuple[Tensor, Tensor] | None = None,
    scale: float | Tensor = 1.0,
    beta_a: Tensor | None = None,
    beta_u: Tensor | None = None,
    lambda_: float = 0.01,
    start: Tensor | None = None,
    keep: Keep = "none",
    couple: Couple | None = None,
) -> Routed:
    """Route votes [*b, i, j, d] to parents [*b, j, d]: parents compete for the children by inverted
    attention.

    `ops.routing.inverted` has the equations.

    Arguments:
        votes: [*b, i, j, d]: what each child i predicts of the pose of each parent j.
        activation: [*b, i] of the children; only together with beta_a and beta_u.
        iterations: how often parents are made, from 1.
        norm: weight and bias, both [d], of a LayerNorm on every parent; None: parents stay as they
            are.
        scale: the factor on agreements, for example 1/√d: a number or a tensor of one.
        beta_a: [j], what speaks for a parent that is on; None: parents have no activations.
        beta_u: [j], what it costs to describe the children of a parent; goes with beta_a.
        lambda_: the inverse temperature of a parent's activation, where there is one.
        start: [j, d], the parents before the first iteration; None: zeros, so the first couplings
            are even.
        keep: which iterations the result's `steps` hold, with their couplings: "none", "last", or
            all "steps".
        couple: a function on the couplings [*b, i, j] of the last iteration, by whose result the
            parents are made and which `keep` records.

    >>> norm = torch.ones(16), torch.zeros(16)
    >>> inverted_routing(torch.ones(1152, 10, 16), norm=norm).parents.pose.shape
    torch.Size([10, 16])
    """
    check_inverted(votes, InvertedOptions(iterations, norm, scale, start, keep, couple))
    _check_activation(votes, activation, beta_a, beta_u, lambda_)
    check_device(votes, activation=activation, beta_a=beta_a, beta_u=beta_u)
    dtype, votes = votes.dtype, widen(votes)
    # Once, not in every step: float16 would round the gradient of each.
    norm = None if norm is None else (norm[0].to(votes.dtype), norm[1].to(votes.dtype))
    scale = _number(scale, votes)
    activation, beta_a, beta_u = (
        None if x is None else x.to(votes.dtype) for x in (activation, beta_a, beta_u)
    )
    parents, steps = start, []
    for t in range(1, iterations + 1):
        step = inverted_step(
            votes,
            parents,
            activation,
            norm=norm,
            scale=scale,
            beta_a=beta_a,
            beta_u=beta_u,
            lambda_=lambda_,
            couple=couple if t == iterations else None,
        )
        parents = step.parents.pose
        if keep == "steps" or (keep == "last" and t == iterations):
            steps.append(_rounded(step, dtype))
    return Routed(_rounded(step, dtype).parents, tuple(steps))


class InvertedOptions(NamedTuple):
    """What every form of inverted routing is asked, with the defaults of `inverted_routing`. Only
    the op knows activations."""

    iterations: int = 2
    norm: tuple[Tensor, Tensor] | None = None
    scale: float | Tensor = 1.0
    start: Tensor | None = None
    keep: Keep = "none"
    couple: Couple | None = None


def check_inverted(votes: Tensor, options: InvertedOptions) -> None:
    """Check what every form of inverted routing asks of its arguments."""
    check_votes(votes)
    check_iterations(options.iterations)
    check_keep(options.keep)
    poses = (*votes.shape[:-3], *votes.shape[-2:])
    check_broadcast("start", options.start, poses, "[*batch, parent, pose]")
    _check_norm(options.norm, votes.shape[-1])
    check_factor("scale", options.scale)
    weight, bias = options.norm or (None, None)
    check_device(votes, start=options.start, weight=weight, bias=bias)


def _number(scale: float | Tensor, like: Tensor) -> float | Tensor:
    """Give a scale as one number, whatever its axes and its precision are."""
    return scale.reshape(()).to(like.device, like.dtype) if isinstance(scale, Tensor) else scale


def _check_norm(norm: tuple[Tensor, Tensor] | None, size: int) -> None:
    if norm is None:
        return
    if not isinstance(norm, tuple) or len(norm) != 2:
        raise TorchcapsError(
            f"norm must be the pair (weight, bias) of a LayerNorm over the pose, but came as "
            f"{type(norm).__name__}; pass norm=(layer.weight, layer.bias), or None for no "
            f"LayerNorm."
        )
    for name, value in zip(("weight", "bias"), norm, strict=True):
        if value is None:
            raise TorchcapsError(
                f"norm must be the pair (weight, bias) of a LayerNorm, but it has no {name}; give "
                f"{'ones' if name == 'weight' else 'zeros'} for it."
            )
        check_broadcast(f"the {name} of norm", value, (size,), "[pose]")


def _check_activation(
    votes: Tensor,
    activation: Tensor | None,
    beta_a: Tensor | None,
    beta_u: Tensor | None,
    lambda_: float,
) -> None:
    check_number("lambda_", lambda_)
    named = {"activation": activation, "beta_a": beta_a, "beta_u": beta_u}
    given = [name for name, value in named.items() if value is not None]
    if 0 < len(given) < 3:
        raise TorchcapsError(
            f"activation, beta_a and beta_u turn activations on together, but only "
            f"{' and '.join(given)} came; pass all three or none."
        )
    check_broadcast("activation", activation, votes.shape[:-2], "[*batch, child]")
    check_broadcast("beta_a", beta_a, votes.shape[-2:-1], "[parent]")
    check_broadcast("beta_u", beta_u, votes.shape[-2:-1], "[parent]")


def _activation(votes: Tensor, w: Tensor, beta_a: Tensor, beta_u: Tensor, lambda_: float) -> Tensor:
    m = w.sum(-2)  # [*b, j]
    # A parent that nobody is given to has no mean; below the smallest normal number 1/m overflows.
    share = w / m.clamp(min=torch.finfo(m.dtype).tiny).unsqueeze(-2)
    mean = torch.einsum("...ij,...ijd->...jd", share, votes)
    spread = (votes - mean.unsqueeze(-3)).square()
    variance = torch.einsum("...ij,...ijd->...jd", share, spread)
    entropy = votes.shape[-1] * beta_u + 0.5 * (variance + VARIANCE_FLOOR).log().sum(-1)
    return (lambda_ * (beta_a - m * entropy)).sigmoid()


def _rounded(step: Step, dtype: torch.dtype) -> Step:
    pose, activation = step.parents
    activation = None if activation is None else activation.to(dtype)
    return Step(None, step.coupling.to(dtype), Capsules(pose.to(dtype), activation))
