"""The laws, one function each: its largest error, or the sentence that explains its breach."""

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from torchcaps.testing.subject import RoutingContractError, Subject
from torchcaps.types import Keep

Pair = tuple[Tensor, Tensor]
Pairs = Callable[[Subject], Iterator[Pair]]
# Central differences with a step of 1e-6 lose ten of float64's sixteen digits.
STEP, GRADIENT_TOLERANCE = 1e-6, 1e-6


def _distance(a: Tensor, b: Tensor) -> float:
    """Give the largest absolute difference; infinite where one side is not a number."""
    if a.numel() == 0:
        return 0.0
    return (a - b).abs().nan_to_num(torch.inf, torch.inf).max().item()


def _call(subject: Subject) -> float:
    keeps: tuple[Keep, ...] = ("none", "last", "steps")
    for votes in subject.cases():
        for keep in keeps:
            subject.route(votes, keep)
    return 0.0


def _shape(subject: Subject) -> float:
    for votes in subject.cases():
        *lead, n_in, n_out, size = votes.shape
        routed = subject.route(votes, "steps")
        named: list[tuple[str, Tensor | None, list[int]]] = [
            ("parent poses", routed.parents.pose, [*lead, n_out, size]),
            ("parent activations", routed.parents.activation, [*lead, n_out]),
        ]
        named += [("couplings", step.coupling, [*lead, n_in, n_out]) for step in routed.steps]
        for name, tensor, expected in named:
            if tensor is not None and list(tensor.shape) != expected:
                raise RoutingContractError(
                    "shape",
                    f"{name} of shape {expected} from votes {list(votes.shape)}",
                    f"{list(tensor.shape)} came",
                    "a squeeze() that eats an axis of size one, or a sum over the wrong axis",
                )
    return 0.0


def _dtype(subject: Subject) -> float:
    for dtype in (torch.float64, torch.float32):
        votes = subject.votes(3, *subject.sizes[0], dtype=dtype)
        routed = subject.route(votes)
        parts = [routed.parents.pose, routed.parents.activation]
        for part in [*parts, *(step.coupling for step in routed.steps)]:
            if part is not None and (part.dtype, part.device) != (votes.dtype, votes.device):
                raise RoutingContractError(
                    "dtype",
                    f"{votes.dtype} on {votes.device}, as the votes are",
                    f"{part.dtype} on {part.device} came",
                    "a tensor made without votes.new_zeros, or parameters of another dtype",
                )
    return 0.0


def _keep(subject: Subject) -> float:
    cause = "recording takes another path, or draws random numbers"
    for votes in subject.cases():
        bare, last, steps = (subject.route(votes, keep) for keep in ("none", "last", "steps"))
        counts = [len(routed.steps) for routed in (bare, last, steps)]
        if counts[:2] != [0, 1] or counts[2] < 1:
            raise RoutingContractError(
                "keep",
                'no step for "none", one for "last" and at least one for "steps"',
                f"{counts} came",
                "keep is ignored",
            )
        others = [last.parents, steps.parents, last.steps[-1].parents, steps.steps[-1].parents]
        for other in others:
            if not torch.equal(bare.parents.pose, other.pose):
                raise RoutingContractError(
                    "keep",
                    "the same parents bit for bit, whatever is recorded",
                    f"they differ by {_distance(bare.parents.pose, other.pose):.1e}",
                    cause,
                )
        if not torch.equal(last.steps[-1].coupling, steps.steps[-1].coupling):
            raise RoutingContractError(
                "keep", 'equal last couplings for "last" and "steps"', "they differ", cause
            )
    return 0.0


def _coupling_sign(subject: Subject) -> float:
    lowest = min(subject.coupling(votes).min().item() for votes in subject.cases())
    if not lowest >= 0:
        raise RoutingContractError(
            "coupling_sign",
            "couplings of at least zero",
            f"{lowest:.3g} came",
            "logits or agreements recorded in place of couplings",
        )
    return max(0.0, -lowest)


def _normalisation(subject: Subject) -> float:
    worst = 0.0
    axis = -1 if subject.normalised_over == "parents" else -2
    other = "children" if axis == -1 else "parents"
    for votes in subject.cases():
        total = subject.coupling(votes).sum(axis)
        error = _distance(total.clamp(min=1) if subject.leftover else total, torch.ones_like(total))
        worst = max(worst, error)
        if not error <= subject.tolerance:
            raise RoutingContractError(
                "normalisation",
                f"couplings that sum to {'at most ' * subject.leftover}1 over "
                f"{subject.normalised_over}",
                f"sums from {total.min().item():.4g} to {total.max().item():.4g} came with votes "
                f"{list(votes.shape)}",
                f"a softmax over {other}, or leftover mass that was not declared",
            )
    return worst


def _near(expected: str, cause: str) -> Callable[[Pairs], Callable[[Subject], float]]:
    """Make a law of pairs that must be the same; the function that yields them has its name."""

    def law(pairs: Pairs) -> Callable[[Subject], float]:
        def check(subject: Subject) -> float:
            worst = max((_distance(a, b) for a, b in pairs(subject)), default=0.0)
            if not worst <= subject.tolerance:
                clause, came = pairs.__name__.strip("_"), f"they differ by {worst:.2e}"
                raise RoutingContractError(clause, expected, came, cause)
            return worst

        return check

    return law


@_near(
    "a sample alone to give what it gives in a batch",
    "a mean, norm or softmax over the batch axis (declare batch_statistics if it is meant)",
)
def _batch_independence(subject: Subject) -> Iterator[Pair]:
    for votes in subject.cases([(3,), (2, 3)]):
        batch = subject.route(votes)
        for k in itertools.product(*map(range, votes.shape[:-3])):
            for alone in (subject.route(votes[k].unsqueeze(0)), subject.route(votes[k])):
                pose, coupling = alone.parents.pose, alone.steps[-1].coupling
                yield pose.reshape(batch.parents.pose[k].shape), batch.parents.pose[k]
                yield coupling.reshape(votes.shape[-3:-1]), batch.steps[-1].coupling[k]


@_near(
    "the same parents for children in another order",
    "an index of the child in the arithmetic, or parameters of single children (say so by "
    "interchangeable)",
)
def _child_permutation(subject: Subject) -> Iterator[Pair]:
    for votes in subject.cases():
        # A turn, because weights that are the same from both ends survive a reversal.
        before, after = subject.route(votes), subject.route(votes.roll(1, -3))
        yield before.parents.pose, after.parents.pose
        yield before.steps[-1].coupling, after.steps[-1].coupling.roll(-1, -2)


@_near(
    "parents to change their order with the votes",
    "an index of the parent in the arithmetic, or parameters of single parents (say so by "
    "interchangeable)",
)
def _parent_permutation(subject: Subject) -> Iterator[Pair]:
    for votes in subject.cases():
        before, after = subject.route(votes), subject.route(votes.roll(1, -2))
        yield before.parents.pose, after.parents.pose.roll(-1, -2)
        yield before.steps[-1].coupling, after.steps[-1].coupling.roll(-1, -1)


@_near(
    "couplings of the first iteration to be the closed form",
    "a missing uniform pass, or initial logits that are not the prior",
)
def _first_iteration(subject: Subject) -> Iterator[Pair]:
    assert subject.first_iteration is not None
    for votes in subject.cases():
        yield subject.route(votes, "steps").steps[0].coupling, subject.first_iteration(votes)


@_near(
    "values and gradients of the reference",
    "another formula, another guard at zero, or a gradient stopped in another place",
)
def _parity(subject: Subject) -> Iterator[Pair]:
    reference = subject.reference
    assert reference is not None
    for votes in subject.few_cases():
        ours, theirs = votes.clone().requires_grad_(), votes.clone().requires_grad_()
        routed = subject.route(ours)
        results = [routed.parents.pose, routed.steps[-1].coupling]
        expected = list(reference(theirs, **subject.beside(reference, theirs)))
        if routed.parents.activation is not None:
            results.append(routed.parents.activation)
            if len(expected) == 2:
                expected.append(torch.linalg.vector_norm(expected[0], dim=-1))
        for result, twin in zip(results, expected, strict=True):
            yield result.detach(), twin.detach()
        yield (
            _gradient_of(_weighted_sum(*results), ours),
            _gradient_of(_weighted_sum(*expected), theirs),
        )


def _weighted_sum(*results: Tensor | None) -> Tensor:
    """Give a scalar to differentiate: every number of the results with a weight of its own."""
    parts = [part.double().flatten() for part in results if part is not None]
    numbers = torch.cat(parts)
    return torch.cos(torch.arange(len(numbers), device=numbers.device)).double() @ numbers


def _gradient_of(total: Tensor, votes: Tensor) -> Tensor:
    if not total.requires_grad:
        return torch.zeros_like(votes)
    return torch.autograd.grad(total, votes, allow_unused=True, materialize_grads=True)[0]


def _gradient(subject: Subject) -> float:
    worst = 0.0
    for votes in subject.cases([()]):
        leaf = votes.clone().requires_grad_()
        exact = _gradient_of(_weighted_sum(*subject.route(leaf).parents), leaf)
        count = votes.numel()
        steps = STEP * torch.eye(count, dtype=votes.dtype, device=votes.device).view(
            count, *votes.shape
        )
        for k, step in enumerate(steps):
            high, low = (_weighted_sum(*subject.route(votes + s * step).parents) for s in (1, -1))
            slope = ((high - low) / (2 * STEP)).item()
            derivative = exact.flatten()[k].item()
            error = abs(slope - derivative) / max(1.0, abs(slope))
            worst = max(worst, error)
            if not error <= GRADIENT_TOLERANCE:
                raise RoutingContractError(
                    "gradient",
                    f"autograd to give the slope of finite differences, {slope:.6g}",
                    f"{derivative:.6g} came",
                    "a detach() or no_grad() on the way (declare stops_gradient if it is meant), "
                    "or a wrong hand-written backward",
                )
    return worst


def _hard_votes(subject: Subject, dtype: torch.dtype, huge: float) -> Iterator[tuple[str, Tensor]]:
    for size in subject.sizes:
        votes = subject.votes(3, *size, dtype=dtype)
        yield "zero", torch.zeros_like(votes)
        yield "identical", votes[:, :1, :1].expand_as(votes).clone()
        yield "huge", votes * huge


def _assert_finite(clause: str, name: str, subject: Subject, votes: Tensor, cause: str) -> None:
    leaf = votes.requires_grad_()
    routed = subject.route(leaf)
    total = _weighted_sum(*routed.parents, routed.steps[-1].coupling)
    for what, tensor in (("value", total), ("gradient", _gradient_of(total, leaf))):
        if not tensor.isfinite().all():
            raise RoutingContractError(
                clause,
                f"finite values and gradients for {name} votes in {votes.dtype}",
                f"a {what} is {'not a number' if tensor.isnan().any() else 'infinite'}",
                cause,
            )


def _finite(subject: Subject) -> float:
    cause = "a division by a norm without a guard at zero, or an exponential without a guard above"
    for dtype in (torch.float64, torch.float32):
        for name, votes in _hard_votes(subject, dtype, huge=1e4):
            _assert_finite("finite", name, subject, votes, cause)
    return 0.0


def _half_precision(subject: Subject) -> float:
    cause = "squares, exponentials or long sums in half precision; compute them in float32"
    for dtype in (torch.float16, torch.bfloat16):
        # 300² is more than float16 can hold.
        for name, votes in _hard_votes(subject, dtype, huge=300):
            _assert_finite("half_precision", name, subject, votes, cause)
    return 0.0


def _meaning(subject: Subject) -> float:
    worst = 1.0
    for n_in, n_out, size in subject.sizes:
        if min(n_in, n_out, size) < 2:
            continue
        votes = torch.zeros(n_in, n_out, size, dtype=torch.float64, device=subject.device)
        angle = torch.arange(n_in, device=subject.device) * (2 * torch.pi / n_in)
        votes[..., 0] = 3 * angle.cos()[:, None]
        votes[..., 1] = 3 * angle.sin()[:, None]
        # Along one axis: a LayerNorm leaves nothing of votes whose components are all equal.
        votes[:, 0] = 0
        votes[:, 0, 0] = 3
        coupling = subject.coupling(votes)
        share = (coupling[:, 0] / coupling.sum(-1)).min().item()
        worst = min(worst, share)
        if not share > 1 / n_out:
            raise RoutingContractError(
                "meaning",
                f"children that agree on parent 0 and scatter on {n_out - 1} more to be coupled "
                f"to 0 by more than {1 / n_out:.3g}",
                f"a child gives it {share:.3g}",
                "agreement with the wrong sign, or couplings that ignore the votes (declare "
                "fixed_coupling if it is meant)",
            )
    return 1 - worst


# In the order in which they run.
LAWS: dict[str, Callable[[Subject], float]] = {
    "call": _call,
    "shape": _shape,
    "dtype": _dtype,
    "keep": _keep,
    "coupling_sign": _coupling_sign,
    "normalisation": _normalisation,
    "batch_independence": _batch_independence,
    "child_permutation": _child_permutation,
    "parent_permutation": _parent_permutation,
    "first_iteration": _first_iteration,
    "parity": _parity,
    "gradient": _gradient,
    "finite": _finite,
    "half_precision": _half_precision,
    "meaning": _meaning,
}
