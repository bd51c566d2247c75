"""EM routing: every parent is a Gaussian, fitted to the votes it gets; children go where their
votes are likely.

[peer2022] Alg. 2, the baseline of [tsai2020]; from [hinton2018]

R_ij = 1/J
for t = 1 … iterations:
    r_ij = R_ij a_i,   m_j = Σ_i r_ij                                        M-step
    μ_j  = Σ_i r_ij V_ij / m_j
    σ_j² = Σ_i r_ij (V_ij − μ_j)² / m_j + floor
    a_j  = logistic(λ_t (β_a − Σ_h (β_u + ln σ_j^h) m_j))
    ln q_ij = ln a_j − Σ_h [½ ln 2π(σ_j^h)² + (V_ij^h − μ_j^h)² / 2(σ_j^h)²]   E-step
    R_ij = q_ij / Σ_k q_ik

`variant` names the readings in use; they differ in the M-step alone.
paper     as above, floor 1e-4.
gritzman  the cost counts children as if each parent had a hundred [gritzman2019]:
          Σ_h (β_u + ln σ^h) m_j · 100 J / I, floor 1e-9.
official  the released code of [hinton2018]: the mean is damped, μ ← 0.9 μ + 0.1 μ_before (zero at
          first), floor 5e-4, a_j = logistic(λ_t (−m_j (Σ_h ln σ² + β_u D (ln 2π + 1)) − 5000 β_a)).

`lambda_schedule` says how λ_t grows over the iterations: "growing" is λ (1 − 0.95^t), 0.05 λ to
begin with; "constant" is λ in all of them, as in much public code.

`compete` says who else may claim a child that several windows see: the parents of one "window", or
those of "all" windows [hinton2018].

Departures:
1. Logarithms throughout, so that likelihoods of many components do not vanish. The mean's weights
   are a softmax over children: they sum to one with no ε, even for a parent that nobody wants.
2. The floor under the variance, without which a single child gives 0/0.
3. A child activation below 1e-12 counts as 1e-12 in those weights and in m_j, with no gradient.
4. The E-step after the last M-step is skipped: nothing depends on it.
Ambiguities:
1. λ and the number of iterations are open in [peer2022] and [tsai2020]; the schedule is that of the
   code of [hinton2018], λ its final value there.
2. With compete="all" a child starts with the same share for each of its parents; in the official
   variant every window gives out the whole child, so the first R sums to more than one.
"""

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from torchcaps._checks import check_choice, check_number, check_shape
from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import (
    check_broadcast,
    check_device,
    check_iterations,
    check_keep,
    check_tensor,
    check_votes,
    widen,
    without_autocast,
)
from torchcaps.ops.routing.common import weighted
from torchcaps.ops.routing.couple import replaced
from torchcaps.ops.routing.shared_children import (
    Compete,
    check_child_id,
    number_children,
    softmax_over_windows,
    windows_of_children,
)
from torchcaps.types import Capsules, Couple, Keep, Routed, Step

EMVariant = Literal["paper", "official", "gritzman"]
# By the names of their authors.
MEANT = {"hinton": "official", "hinton2018": "official", "peer": "paper", "peer2022": "paper"}
LambdaSchedule = Literal["growing", "constant"]

FLOOR: dict[EMVariant, float] = {"paper": 1e-4, "official": 5e-4, "gritzman": 1e-9}
LEAST_ACTIVATION = 1e-12
DAMPING = 0.1  # of the official mean
ANNEALING = 0.95


def em_routing(
    votes: Tensor,
    activation: Tensor | None,
    *,
    beta_a: Tensor,
    beta_u: Tensor,
    iterations: int = 3,
    variant: EMVariant = "paper",
    compete: Compete = "window",
    child_id: Tensor | None = None,
    lambda_: float = 0.01,
    lambda_schedule: LambdaSchedule = "growing",
    variance_floor: float | None = None,
    keep: Keep = "none",
    couple: Couple | None = None,
) -> Routed:
    """Route votes [*b, i, j, d] of children with activations to parents [*b, j, d] with
    activations: every parent is a Gaussian that explains votes.

    `ops.routing.em` has the equations.

    Arguments:
        votes: [*b, i, j, d]: what each child i predicts of the pose of each parent j.
        activation: [*b, i], in [0, 1]: how sure each child is there.
        beta_a: [j], what speaks for a parent that is on; with variant="official" against it.
        beta_u: [j], what it costs to describe the children of a parent.
        iterations: how many M-steps there are, from 1.
        variant: where public code and the paper differ. "paper": as printed. "official": the
            released code of [hinton2018], which damps means and weighs costs otherwise. "gritzman":
            costs count children as if each parent had a hundred [gritzman2019].
        compete: between whom a child is shared. "window": the parents of one window. "all": the
            parents of every window that sees the child; the last batch axis of the votes then
            counts windows, [*b, p, i, j, d].
        child_id: [p, i], which child lies in slot i of window p; needed for compete="all".
        lambda_: the inverse temperature λ of a parent's activation.
        lambda_schedule: "growing": λ grows from iteration to iteration. "constant": it is the same
            in all of them.
        variance_floor: the least variance of a parent; None: that of the variant.
        keep: which iterations the result's `steps` hold, with their couplings: "none", "last", or
            all "steps".
        couple: a function on the couplings [*b, i, j] before the last M-step, by whose result the
            parents are made and which `keep` records. A parent that gets no child from it costs
            nothing.

    >>> a, beta = torch.ones(18), torch.zeros(5)
    >>> em_routing(torch.rand(18, 5, 16), a, beta_a=beta, beta_u=beta).parents.activation.shape
    torch.Size([5])
    """
    asked = EMOptions(
        beta_a,
        beta_u,
        iterations,
        variant,
        compete,
        child_id,
        lambda_,
        lambda_schedule,
        variance_floor,
        keep,
        couple,
    )
    activation = check_em(votes, activation, asked)
    n_in, n_out, _ = votes.shape[-3:]
    dtype, votes = votes.dtype, widen(votes)
    asked = asked.in_precision_of(votes)
    normalise = _over_parents if asked.child_id is None else softmax_over_windows(asked.child_id)
    steps = []
    with without_autocast(votes):
        a_in = widen(activation).to(votes.dtype).clamp_min(LEAST_ACTIVATION).unsqueeze(-1)
        log_r = first_couplings(votes, n_out, asked).expand(votes.shape[:-1]).log()
        mean: Tensor | None = None
        for t in range(1, iterations + 1):
            r = log_r.exp()
            made = replaced(couple, r, negative=False) if t == iterations else None
            if made is None:
                weight = (log_r + a_in.log()).softmax(-2)  # [*b, i, j]
                mass = (r * a_in).sum(-2)  # [*b, j]
            else:
                r = made
                weight, mass = shares_of(r * a_in)
            mean = _mean(votes, weight, mean, variant)
            residual = (votes - mean.unsqueeze(-3)).square()  # [*b, i, j, d]
            variance = weighted(weight, residual) + asked.floor  # [*b, j, d]
            logit = logit_of(t, variance, mass, asked, n_in / n_out)
            parents = Capsules(mean.to(dtype), logit.sigmoid().to(dtype))
            if keep == "steps" or (keep == "last" and t == iterations):
                steps.append(Step(None, r.to(dtype), parents))
            if t < iterations:
                scaled = (residual / variance.unsqueeze(-3)).sum(-1)  # [*b, i, j]
                log_r = normalise(likelihood_of(logit, variance, asked).unsqueeze(-2) - scaled / 2)
    return Routed(parents, tuple(steps))


class EMOptions(NamedTuple):
    """What every form of EM routing is asked, with the defaults of `em_routing`."""

    beta_a: Tensor
    beta_u: Tensor
    iterations: int = 3
    variant: EMVariant = "paper"
    compete: Compete = "window"
    child_id: Tensor | None = None
    lambda_: float = 0.01
    lambda_schedule: LambdaSchedule = "growing"
    variance_floor: float | None = None
    keep: Keep = "none"
    couple: Couple | None = None

    @property
    def floor(self) -> float:
        return FLOOR[self.variant] if self.variance_floor is None else self.variance_floor

    def in_precision_of(self, votes: Tensor) -> "EMOptions":
        """Convert costs to the precision of wide votes, and number children anew."""
        # Once, not in every iteration: float16 would round the gradient of each.
        beta_a, beta_u = self.beta_a.to(votes.dtype), self.beta_u.to(votes.dtype)
        child_id = None if self.child_id is None else number_children(self.child_id)
        return self._replace(beta_a=beta_a, beta_u=beta_u, child_id=child_id)


def check_em(votes: Tensor, activation: Tensor | None, asked: EMOptions) -> Tensor:
    """Check what every form asks of its arguments, and return the activations."""
    check_votes(votes)
    check_iterations(asked.iterations)
    check_choice("variant", asked.variant, get_args(EMVariant), meant=MEANT)
    check_choice("compete", asked.compete, get_args(Compete))
    check_choice("lambda_schedule", asked.lambda_schedule, get_args(LambdaSchedule))
    check_keep(asked.keep)
    check_em_numbers(asked.lambda_, asked.variance_floor)
    activation = _checked(activation, votes)
    check_child_id(asked.child_id, votes, asked.compete)
    for name, beta in (("beta_a", asked.beta_a), ("beta_u", asked.beta_u)):
        check_broadcast(name, beta, votes.shape[-2:-1], "[parent]")
    check_device(votes, activation=activation, beta_a=asked.beta_a, beta_u=asked.beta_u)
    return activation


def shares_of(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Compute weights r a [*b, i, j] as shares of their sum over children, and that sum. All shares
    of a parent without children are zero; below the smallest normal number 1/m overflows."""
    mass = weight.sum(-2)
    # Divided by something that small, gradients would overflow.
    divisor = mass.where(~(mass < torch.finfo(mass.dtype).tiny), 1)
    return weight / divisor.unsqueeze(-2), mass


def logit_of(
    t: int, variance: Tensor, mass: Tensor, asked: EMOptions, children_per_parent: float
) -> Tensor:
    """Give the logit of a parent's activation after iteration t, from 1; [*b, j]."""
    cost = _cost(variance, mass, asked.beta_u, asked.variant, children_per_parent)
    reward = -5000 * asked.beta_a if asked.variant == "official" else asked.beta_a
    return lambda_at(t, asked.lambda_, asked.lambda_schedule) * (reward - cost)


def likelihood_of(logit: Tensor, variance: Tensor, asked: EMOptions) -> Tensor:
    """Give ln a_j − Σ_h ln σ_j^h, [*b, j], less that of the likeliest parent that a child has: only
    differences count, and what children add to large numbers would be rounded."""
    likely = torch.nn.functional.logsigmoid(logit) - variance.log().sum(-1) / 2
    competing = -1 if asked.child_id is None else (-2, -1)
    return likely - likely.detach().amax(competing, keepdim=True)


def lambda_at(t: int, lambda_: float, schedule: LambdaSchedule) -> float:
    """Give what the logit of iteration t, from 1, is multiplied by."""
    return lambda_ if schedule == "constant" else lambda_ * (1 - ANNEALING**t)


def _mean(votes: Tensor, weight: Tensor, before: Tensor | None, variant: EMVariant) -> Tensor:
    mean = weighted(weight, votes)  # [*b, j, d]
    if variant != "official":
        return mean
    mean = (1 - DAMPING) * mean
    return mean if before is None else mean + DAMPING * before


def _cost(
    variance: Tensor, mass: Tensor, beta_u: Tensor, variant: EMVariant, children_per_parent: float
) -> Tensor:
    """Say what it takes to describe a parent's children, [*b, j]."""
    size = variance.shape[-1]
    spread = variance.log().sum(-1)
    if variant == "official":
        return mass * (spread + beta_u * size * (math.log(2 * math.pi) + 1))
    cost = mass * (size * beta_u + spread / 2)
    return cost * 100 / children_per_parent if variant == "gritzman" else cost


def first_couplings(votes: Tensor, n_out: int, asked: EMOptions) -> Tensor:
    """Give the couplings before anything is known, of one number or [p, i, 1]."""
    first = votes.new_full((), 1 / n_out)
    if asked.child_id is None or asked.variant == "official":
        return first
    return (first / windows_of_children(asked.child_id, votes)).unsqueeze(-1)


def _over_parents(logits: Tensor) -> Tensor:
    return logits.log_softmax(-1)


def check_em_numbers(lambda_: float, variance_floor: float | None) -> None:
    check_number("lambda_", lambda_)
    if variance_floor is not None:
        check_number("variance_floor", variance_floor)


def _checked(activation: Tensor | None, votes: Tensor) -> Tensor:
    if activation is None:
        raise TorchcapsError(
            "EM routing weighs children by their activations, but none came; give them, for "
            "example Capsules(pose, pose.norm(dim=-1).clamp(max=1))."
        )
    check_tensor("activation", activation)
    so = "each child has one"
    check_shape("activation", activation, votes.shape[:-2], so, of="floating point")
    return activation
