"""The laws every routing keeps, as one function: check your own routing against them.

    def my_routing(votes, *, keep="none"): ...
    assert_routing_contract(my_routing)

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

A routing that takes `poses`, those of the children, is given the mean of each child's votes, and so
is a reference that takes them: they change places with the children and not with the parents.
A routing with parameters is a closure over them that brings them to the votes, `bias.to(votes)`, in
dtype and device. It has one size: pass `sizes=[(i, j, d)]`.
Parameters that belong to a parent (a bias) or to a pair (a prior) make capsules individuals, which
may not change places: say so by `interchangeable`.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.testing.laws import LAWS
from torchcaps.testing.subject import SIZES, RoutingContractError, RoutingLike, Subject

__all__ = ["CLAUSES", "RoutingContractError", "assert_routing_contract"]

CLAUSES = tuple(LAWS)


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
    """Find the largest error of every clause; RoutingContractError at the first broken one.

    Arguments:
        routing: a function on votes [*b, i, j, d] with `keep`, such as those of `ops`, or a module.
        reference: a slow, trusted twin: votes -> (parent poses, last couplings), differentiable;
            the parent activations are a third where they are not the lengths of the poses.
        first_iteration: votes -> couplings [*b, i, j] of the first iteration, in closed form.
        normalised_over: the axis on which couplings sum to one: "parents", "children", or "none"
            where nothing competes.
        interchangeable: which capsules have no parameters of their own: "both", "children",
            "parents" or "neither".
        leftover: some of a child's mass may go to nobody.
        fixed_coupling: couplings do not depend on the votes, or not by how much they agree, as when
            many iterations of a normalisation enlarge what scattered votes leave; exempt from
            `meaning`.
        batch_statistics: samples influence each other by design; exempt from `batch_independence`.
        stops_gradient: something is a constant to the gradient by design; exempt from `gradient`,
            so give a `reference` that stops it in the same place.
        sizes: (i, j, d) of the votes; at least one should have i, j and d above 1, or `meaning` has
            nothing to say.
        device: where the votes lie.
        tolerance: the largest error that a clause allows.

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
    subject = Subject(
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
    return {name: check(subject) for name, check in LAWS.items() if not exempt.get(name)}
