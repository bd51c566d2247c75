"""How what operators give becomes `Routed`, and parameters become their arguments."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from torchcaps.ops.routing.common import capsules
from torchcaps.ops.routing.couple import replaced
from torchcaps.types import Capsules, Couple, Keep, Routed, Step, Window


def kept_of(keep: str, iterations: int) -> int:
    """Return of how many of the last iterations something is kept."""
    return {"none": 0, "last": 1, "steps": iterations}[keep]


def routed(
    votes: Tensor,
    poses: Sequence[Tensor] | Tensor,
    couplings: Tensor,
    keep: Keep,
    *,
    activations: bool = True,
) -> Routed:
    """Give parents and steps in shape and precision of the votes, from those of the iterations
    kept, of poses always the last; with activations, these are the lengths of the poses."""
    *lead, n_in, n_out, size = votes.shape
    parents = [_parents(pose.reshape(*lead, n_out, size), votes, activations) for pose in poses]
    couplings = couplings.reshape(len(couplings), *lead, n_in, n_out).to(votes.dtype)
    kept = () if keep == "none" else zip(couplings.unbind(), parents, strict=True)
    steps = tuple(Step(None, coupling, each) for coupling, each in kept)
    return Routed(parents[-1], steps)


def recoupled(
    routed: Routed,
    couplings: Tensor,
    keep: Keep,
    couple: Couple | None,
    parents_of: Callable[[Tensor], Tensor],
) -> Routed:
    """Replace the last couplings as `couple` says, and the parents by those that follow from them
    by `parents_of`, poses as operators give them. The last step must have been recorded, in
    `couplings` as operators give them, for parents are made before anything is rounded."""
    if couple is None:
        return routed
    made = replaced(couple, last_of(couplings, routed))
    if made is None:
        return routed._replace(steps=() if keep == "none" else routed.steps)
    return made_by(made, routed, keep, parents_of)


def last_of(couplings: Tensor, routed: Routed) -> Tensor:
    """Return the couplings of the last iteration as operators give them, in the shape of the
    votes."""
    return couplings[-1].reshape(routed.steps[-1].coupling.shape)


def made_by(
    coupling: Tensor, routed: Routed, keep: Keep, parents_of: Callable[[Tensor], Tensor]
) -> Routed:
    """Replace the parents by those that follow from these couplings of the last iteration by
    `parents_of`."""
    *before, last = routed.steps
    pose = parents_of(coupling).reshape(last.parents.pose.shape)
    parents = _parents(pose, last.parents.pose, last.parents.activation is not None)
    step = Step(None, coupling.to(last.coupling.dtype), parents)
    steps = () if keep == "none" else (*before, step)
    return routed._replace(parents=parents, steps=steps)


def _parents(pose: Tensor, votes: Tensor, activations: bool) -> Capsules:
    return capsules(pose, votes.dtype) if activations else Capsules(pose.to(votes.dtype))


def by_sample(value: Tensor, like: Tensor, window: Window | None) -> Tensor:
    """View a parameter that broadcasts to [*b, p, x, y] as [b or 1, p or 1, x, y]."""
    own = like.shape[-2:]
    value = value.expand(*value.shape[:-2], *own)
    if math.prod(value.shape[:-2]) == 1:
        return value.reshape(1, 1, *own)
    return value.expand(like.shape).reshape(*lanes_of(like.shape[:-2], window), *own)


def by_lane(value: Tensor, like: Tensor, window: Window | None) -> Tensor:
    """View it as [p or 1, b or 1, x, y]."""
    return by_sample(value, like, window).transpose(0, 1)


def lanes_of(lead: Sequence[int], window: Window | Sequence[int] | None) -> tuple[int, int]:
    """Count the samples and windows in the axes before the children."""
    if window:
        return math.prod(lead[:-1]), lead[-1]
    return math.prod(lead), 1


def speak_for_all_samples(*parameters: Tensor | None) -> bool:
    """Say whether no parameter differs between samples or windows. Of what is no tensor nobody can
    tell."""
    return all(
        x is None or (isinstance(x, Tensor) and math.prod(x.shape[:-2]) == 1) for x in parameters
    )


def of_all_samples(value: Tensor | None, *shape: int) -> Tensor | None:
    """Give a parameter of all samples in float32, with a number for every place."""
    if value is None:
        return None
    return value.float().reshape(value.shape[-2:]).expand(shape)


def outputs(
    like: Tensor, lanes: tuple[int, int], counts: tuple[int, int, int], iterations: int, keep: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Make places for sums, poses and couplings."""
    n_in, n_out, size = counts
    kept = kept_of(keep, iterations)
    return (
        like.new_empty(iterations, *lanes, n_out, size),
        like.new_empty(max(1, kept), *lanes, n_out, size),
        like.new_empty(kept, *lanes, n_in, n_out),
    )


def recorded(gradients: Tensor | None, t: int) -> Tensor | None:
    """Pick what was kept of iteration t, counted from the end, [p, b, …]."""
    kept = gradients is not None and -t <= len(gradients)
    return gradients[t].transpose(0, 1) if gradients is not None and kept else None
