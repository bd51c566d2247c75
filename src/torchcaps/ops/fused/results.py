"""How what operators give becomes `Routed`, and parameters become their arguments."""

import math
from collections.abc import Callable, Iterable

from torch import Tensor

from torchcaps.ops.routing.common import capsules
from torchcaps.ops.routing.couple import replaced
from torchcaps.types import Capsules, Couple, Keep, Routed, Step, Window


def kept_of(keep: str, iterations: int) -> int:
    """Return of how many of the last iterations something is kept."""
    return {"none": 0, "last": 1, "steps": iterations}[keep]


def routed(
    votes: Tensor,
    poses: Iterable[Tensor],
    couplings: Tensor,
    keep: Keep,
    couple: Couple | None,
    parents_of: Callable[[Tensor], Tensor],
    *,
    activations: bool = True,
) -> Routed:
    """Give parents and steps in shape and precision of the votes, from those that were `recorded`,
    of poses always the last; with activations, these are the lengths of the poses. Where `couple`
    replaces the last couplings, their poses follow by `parents_of`, before anything is rounded."""
    *lead, n_in, n_out, size = votes.shape

    def parents(pose: Tensor) -> Capsules:
        pose = pose.reshape(*lead, n_out, size)
        return capsules(pose, votes.dtype) if activations else Capsules(pose.to(votes.dtype))

    found = [*poses]
    if keep == "none" and couple is None:
        return Routed(parents(found[-1]))
    each = [*couplings.reshape(len(couplings), *lead, n_in, n_out).unbind()]
    made = replaced(couple, each[-1])
    if made is not None:
        each[-1], found[-1] = made, parents_of(made)
    pairs = zip(each, found, strict=True)
    steps = tuple(Step(None, c.to(votes.dtype), parents(pose)) for c, pose in pairs)
    return Routed(steps[-1].parents, () if keep == "none" else steps)


def by_sample(value: Tensor, like: Tensor, window: Window | None) -> Tensor:
    """View a parameter that broadcasts to [*b, p, x, y] as [b or 1, p or 1, x, y]."""
    own = like.shape[-2:]
    value = value.expand(*value.shape[:-2], *own)
    if math.prod(value.shape[:-2]) == 1:
        return value.reshape(1, 1, *own)
    lead = like.shape[:-2]
    lanes = (math.prod(lead[:-1]), lead[-1]) if window else (math.prod(lead), 1)
    return value.expand(like.shape).reshape(*lanes, *own)


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
