"""The laws every routing keeps, as one function: check your own routing against them.

    def mine(votes, *, keep="none"): ...
    assert_routing_contract(mine)

Clauses, in the order in which they run; an error begins with the name of the broken one:

call               votes [*b, i, j, d] with any leading axes are accepted, `keep=` too
shape              parents are [*b, j, d], activations [*b, j], couplings [*b, i, j]
dtype              dtype and device of the votes are kept
keep               what is recorded changes no bit; the last step is the one that gave the parents
coupling_sign      couplings are at least zero
normalisation      couplings sum to one over the declared axis; to at most one with leftover mass
batch_independence a sample routed alone gives what it gives in a batch
child_permutation  changing the order of children leaves the parents as they are
parent_permutation changing the order of parents changes that of the result alone
first_iteration    couplings of the first iteration are the closed form (when it is given)
parity             values and gradients equal those of the reference (when it is given)
gradient           autograd equals finite differences in float64
finite             values and gradients are finite for zero, identical and huge votes
half_precision     the same for votes in float16 and bfloat16
meaning            children that agree on parent 0 and scatter on the others end coupled to 0

Not checked, because squash and bias are the routing's own business: that the couplings it records
are those that made the parents; `parity` with a reference checks that too.

A routing with parameters is a closure over them that brings them to the votes, `bias.to(votes)`, in
dtype and device. It has one size: pass `sizes=[(i, j, d)]`.
Parameters that belong to a parent (a bias) or to a pair (a prior) make capsules individuals, which
may not change places: say so by `interchangeable`.

The file is long because every clause carries the sentence that explains its breach.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.types import Keep, Routed

__all__ = ["CLAUSES", "RoutingContractError", "assert_routing_contract"]

CLAUSES = (
    "call",
    "shape",
    "dtype",
    "keep",
    "coupling_sign",
    "normalisation",
    "batch_independence",
    "child_permutation",
    "parent_permutation",
    "first_iteration",
    "parity",
    "gradient",
    "finite",
    "half_precision",
    "meaning",
)
# Odd sizes, one child, one parent, both; (i, j, d).
SIZES = ((5, 3, 3), (1, 3, 2), (4, 1, 3), (1, 1, 1), (7, 2, 4))
LEADING: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (2, 1, 3))
# Central differences with a step of 1e-6 lose ten of float64's sixteen digits.
STEP, GRADIENT_TOLERANCE = 1e-6, 1e-6


class RoutingLike(Protocol):
    def __call__(self, votes: Tensor, /, *, keep: Keep) -> Routed: ...


class RoutingContractError(AssertionError):
    """A routing broke a law; `clause` is the law's name."""

    def __init__(self, clause: str, expected: str, came: str, cause: str) -> None:
        super().__init__(f"{clause}: expected {expected}, but {came}; likely cause: {cause}.")
        self.clause = clause


class _Subject(NamedTuple):
    """The routing under test, with what its owner declared of it."""

    routing: RoutingLike
    reference: Callable[[Tensor], tuple[Tensor, ...]] | None
    first_iteration: Callable[[Tensor], Tensor] | None
    normalised_over: Literal["parents", "children", "none"]
    leftover: bool
    sizes: tuple[tuple[int, int, int], ...]
    device: torch.device
    tolerance: float

    def route(self, votes: Tensor, keep: Keep = "last") -> Routed:
        try:
            routed = self.routing(votes, keep=keep)
        except Exception as error:
            raise RoutingContractError(
                "call",
                f"votes {list(votes.shape)} in {votes.dtype} and keep={keep!r} to be routed",
                f"{type(error).__name__} was raised ({error})",
                "a fixed number of batch axes, a missing keep argument, parameters of one size "
                "(pass sizes=), or an operation without this dtype",
            ) from error
        if not _holds_tensors(routed):
            raise RoutingContractError(
                "call",
                "a Routed of Capsules and Steps that hold tensors",
                f"{type(routed).__name__} came, or something else in it",
                "the parents alone were returned; return Routed(Capsules(pose, activation), steps)",
            )
        return routed

    def coupling(self, votes: Tensor) -> Tensor:
        return self.route(votes).steps[-1].coupling

    def votes(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        generator = torch.Generator().manual_seed(len(shape) + sum(shape))
        votes = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return votes.to(self.device, dtype)

    def cases(self, leading: Sequence[tuple[int, ...]] = LEADING) -> Iterator[Tensor]:
        for lead in leading:
            for size in self.sizes:
                yield self.votes(*lead, *size)

    def few_cases(self) -> Iterator[Tensor]:
        """Every size once and every leading shape once: a reference may be slow."""
        yield from self.cases([()])
        for lead in LEADING[1:]:
            yield self.votes(*lead, *self.sizes[0])


def _holds_tensors(routed: object) -> bool:
    return (
        isinstance(routed, Routed)
        and isinstance(routed.parents.pose, Tensor)
        and all(isinstance(step.coupling, Tensor) for step in routed.steps)
    )


def assert_routing_contract(
    routing: RoutingLike,
    *,
    reference: Callable[[Tensor], tuple[Tensor, ...]] | None = None,
    first_iteration: Callable[[Tensor], Tensor] | None = None,
    normalised_over: Literal["parents", "children", "none"] = "parents",
    interchangeable: Literal["both", "children", "parents", "neither"] = "both",
    leftover: bool = False,
    fixed_coupling: bool = False,
    batch_statistics: bool = False,
    stops_gradient: bool = False,
    sizes: Iterable[tuple[int, int, int]] = SIZES,
    device: torch.device | str = "cpu",
    tolerance: float = 1e-10,
) -> dict[str, float]:
    """The largest error of every clause; RoutingContractError at the first broken one.

    reference: a slow, trusted twin: votes -> (parent poses, last couplings), differentiable; the
        parent activations are a third where they are not the lengths of the poses.
    first_iteration: votes -> couplings [*b, i, j] of the first iteration, in closed form.
    normalised_over: the axis on which couplings sum to one; "none" where nothing competes.
    interchangeable: which capsules have no parameters of their own.
    leftover: some of a child's mass may go to nobody.
    fixed_coupling: couplings do not depend on the votes; exempt from `meaning`.
    batch_statistics: samples influence each other by design; exempt from `batch_independence`.
    stops_gradient: something is a constant to the gradient by design; exempt from `gradient`, so
        give a `reference` that stops it in the same place.
    sizes: (i, j, d) of the votes; at least one should have i, j and d above 1, or `meaning` has
        nothing to say.

    >>> from torchcaps.ops import dynamic_routing
    >>> errors = assert_routing_contract(dynamic_routing)
    >>> errors["keep"]
    0.0
    """
    sizes = tuple(sizes)
    if not sizes:
        raise TorchcapsError(
            "sizes must name at least one (children, parents, pose), but is empty."
        )
    subject = _Subject(
        routing,
        reference,
        first_iteration,
        normalised_over,
        leftover,
        sizes,
        torch.device(device),
        tolerance,
    )
    exempt = {
        "normalisation": normalised_over == "none",
        "batch_independence": batch_statistics,
        "child_permutation": interchangeable not in ("both", "children"),
        "parent_permutation": interchangeable not in ("both", "parents"),
        "first_iteration": first_iteration is None,
        "parity": reference is None,
        "gradient": stops_gradient,
        "meaning": fixed_coupling or not any(min(size) > 1 for size in sizes),
    }
    return {name: check(subject) for name, check in _CHECKS.items() if not exempt.get(name)}


def _distance(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference; infinite where one side is not a number."""
    if a.numel() == 0:
        return 0.0
    return (a - b).abs().nan_to_num(torch.inf, torch.inf).max().item()


def _call(subject: _Subject) -> float:
    keeps: tuple[Keep, ...] = ("none", "last", "steps")
    for votes in subject.cases():
        for keep in keeps:
            subject.route(votes, keep)
    return 0.0


def _shape(subject: _Subject) -> float:
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


def _dtype(subject: _Subject) -> float:
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


def _keep(subject: _Subject) -> float:
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


def _coupling_sign(subject: _Subject) -> float:
    lowest = min(subject.coupling(votes).min().item() for votes in subject.cases())
    if not lowest >= 0:
        raise RoutingContractError(
            "coupling_sign",
            "couplings of at least zero",
            f"{lowest:.3g} came",
            "logits or agreements recorded in place of couplings",
        )
    return max(0.0, -lowest)


def _normalisation(subject: _Subject) -> float:
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


def _near(
    clause: str, subject: _Subject, pairs: Iterable[tuple[Tensor, Tensor]], *text: str
) -> float:
    worst = max((_distance(a, b) for a, b in pairs), default=0.0)
    if not worst <= subject.tolerance:
        expected, cause = text
        raise RoutingContractError(clause, expected, f"they differ by {worst:.2e}", cause)
    return worst


def _batch_independence(subject: _Subject) -> float:
    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for votes in subject.cases([(3,), (2, 3)]):
            batch = subject.route(votes)
            for k in itertools.product(*map(range, votes.shape[:-3])):
                for alone in (subject.route(votes[k].unsqueeze(0)), subject.route(votes[k])):
                    pose, coupling = alone.parents.pose, alone.steps[-1].coupling
                    yield pose.reshape(batch.parents.pose[k].shape), batch.parents.pose[k]
                    yield coupling.reshape(votes.shape[-3:-1]), batch.steps[-1].coupling[k]

    return _near(
        "batch_independence",
        subject,
        pairs(),
        "a sample alone to give what it gives in a batch",
        "a mean, norm or softmax over the batch axis (declare batch_statistics if it is meant)",
    )


def _child_permutation(subject: _Subject) -> float:
    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for votes in subject.cases():
            # A turn, because weights that are the same from both ends survive a reversal.
            before, after = subject.route(votes), subject.route(votes.roll(1, -3))
            yield before.parents.pose, after.parents.pose
            yield before.steps[-1].coupling, after.steps[-1].coupling.roll(-1, -2)

    return _near(
        "child_permutation",
        subject,
        pairs(),
        "the same parents for children in another order",
        "an index of the child in the arithmetic, or parameters of single children (say so by "
        "interchangeable)",
    )


def _parent_permutation(subject: _Subject) -> float:
    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for votes in subject.cases():
            before, after = subject.route(votes), subject.route(votes.roll(1, -2))
            yield before.parents.pose, after.parents.pose.roll(-1, -2)
            yield before.steps[-1].coupling, after.steps[-1].coupling.roll(-1, -1)

    return _near(
        "parent_permutation",
        subject,
        pairs(),
        "parents to change their order with the votes",
        "an index of the parent in the arithmetic, or parameters of single parents (say so by "
        "interchangeable)",
    )


def _first_iteration(subject: _Subject) -> float:
    closed_form = subject.first_iteration
    assert closed_form is not None

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for votes in subject.cases():
            yield subject.route(votes, "steps").steps[0].coupling, closed_form(votes)

    return _near(
        "first_iteration",
        subject,
        pairs(),
        "couplings of the first iteration to be the closed form",
        "a missing uniform pass, or initial logits that are not the prior",
    )


def _parity(subject: _Subject) -> float:
    reference = subject.reference
    assert reference is not None

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for votes in subject.few_cases():
            mine, theirs = votes.clone().requires_grad_(), votes.clone().requires_grad_()
            routed = subject.route(mine)
            results = [routed.parents.pose, routed.steps[-1].coupling]
            expected = list(reference(theirs))
            if routed.parents.activation is not None:
                results.append(routed.parents.activation)
                if len(expected) == 2:
                    expected.append(torch.linalg.vector_norm(expected[0], dim=-1))
            for result, twin in zip(results, expected, strict=True):
                yield result.detach(), twin.detach()
            yield (
                _gradient_of(_weighted_sum(*results), mine),
                _gradient_of(_weighted_sum(*expected), theirs),
            )

    return _near(
        "parity",
        subject,
        pairs(),
        "values and gradients of the reference",
        "another formula, another guard at zero, or a gradient stopped in another place",
    )


def _weighted_sum(*results: Tensor | None) -> Tensor:
    """A scalar to differentiate: every number of the results with a weight of its own."""
    parts = [part.double().flatten() for part in results if part is not None]
    numbers = torch.cat(parts)
    return torch.cos(torch.arange(len(numbers), device=numbers.device)).double() @ numbers


def _gradient_of(total: Tensor, votes: Tensor) -> Tensor:
    if not total.requires_grad:
        return torch.zeros_like(votes)
    return torch.autograd.grad(total, votes, allow_unused=True, materialize_grads=True)[0]


def _gradient(subject: _Subject) -> float:
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
            mine = exact.flatten()[k].item()
            error = abs(slope - mine) / max(1.0, abs(slope))
            worst = max(worst, error)
            if not error <= GRADIENT_TOLERANCE:
                raise RoutingContractError(
                    "gradient",
                    f"autograd to give the slope of finite differences, {slope:.6g}",
                    f"{mine:.6g} came",
                    "a detach() or no_grad() on the way (declare stops_gradient if it is meant), "
                    "or a wrong hand-written backward",
                )
    return worst


def _hard_votes(subject: _Subject, dtype: torch.dtype, huge: float) -> Iterator[tuple[str, Tensor]]:
    for size in subject.sizes:
        votes = subject.votes(3, *size, dtype=dtype)
        yield "zero", torch.zeros_like(votes)
        yield "identical", votes[:, :1, :1].expand_as(votes).clone()
        yield "huge", votes * huge


def _assert_finite(clause: str, name: str, subject: _Subject, votes: Tensor, cause: str) -> None:
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


def _finite(subject: _Subject) -> float:
    cause = "a division by a norm without a guard at zero, or an exponential without a guard above"
    for dtype in (torch.float64, torch.float32):
        for name, votes in _hard_votes(subject, dtype, huge=1e4):
            _assert_finite("finite", name, subject, votes, cause)
    return 0.0


def _half_precision(subject: _Subject) -> float:
    cause = "squares, exponentials or long sums in half precision; compute them in float32"
    for dtype in (torch.float16, torch.bfloat16):
        # 300² is more than float16 can hold.
        for name, votes in _hard_votes(subject, dtype, huge=300):
            _assert_finite("half_precision", name, subject, votes, cause)
    return 0.0


def _meaning(subject: _Subject) -> float:
    worst = 1.0
    for n_in, n_out, size in subject.sizes:
        if min(n_in, n_out, size) < 2:
            continue
        votes = torch.zeros(n_in, n_out, size, dtype=torch.float64, device=subject.device)
        angle = torch.arange(n_in, device=subject.device) * (2 * torch.pi / n_in)
        votes[..., 0] = 3 * angle.cos()[:, None]
        votes[..., 1] = 3 * angle.sin()[:, None]
        votes[:, 0] = 3 / size**0.5
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


_CHECKS: dict[str, Callable[[_Subject], float]] = dict(
    zip(
        CLAUSES,
        (
            _call,
            _shape,
            _dtype,
            _keep,
            _coupling_sign,
            _normalisation,
            _batch_independence,
            _child_permutation,
            _parent_permutation,
            _first_iteration,
            _parity,
            _gradient,
            _finite,
            _half_precision,
            _meaning,
        ),
        strict=True,
    )
)
