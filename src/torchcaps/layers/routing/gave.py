"""Whether what a forward gave is what a layer, a trace and a score can go by."""

from typing import Any

from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.types import Capsules, Keep, Routed, Step

# How the forward of a routing of one's own may end, where it has `coupling` and `pose`.
LAST_LINES = (
    "parents = tc.Capsules(pose, pose.norm(dim=-1)); "
    'steps = () if keep == "none" else (tc.Step(None, coupling, parents),); '
    "return tc.Routed(parents, steps)"
)


def check_gave(name: str, routed: Any, votes: Tensor, keep: Keep) -> Routed:
    """Refuse what the forward of class `name` gave of votes [*b, i, j, d], if it does not fit. Only
    shapes are looked at, so nothing waits for the device."""
    if not isinstance(routed, Routed):
        raise TorchcapsError(
            f"{name}.forward must return tc.Routed(parents, steps), but returned a "
            f"{type(routed).__name__}; end it with: {LAST_LINES}."
        )
    _check_parents(name, routed.parents, votes)
    if keep == "none":
        return routed
    if not routed.steps:
        raise TorchcapsError(
            f"{name}.forward recorded no step for keep={keep!r}; return tc.Routed(parents, "
            f"(tc.Step(None, coupling, parents),))."
        )
    for step in routed.steps:
        _check_step(name, step, votes)
    return routed


def _check_parents(name: str, parents: object, votes: Tensor) -> None:
    if not isinstance(parents, Capsules):
        raise TorchcapsError(
            f"{name}.forward must return its parents as tc.Capsules, but returned a "
            f"{type(parents).__name__}; end it with: {LAST_LINES}."
        )
    pose, activation = parents
    *batch, _, n_out, d_out = votes.shape
    if _shape(pose) != [*batch, n_out, d_out]:
        raise TorchcapsError(
            f"{name}.forward should give poses {[*batch, n_out, d_out]} from votes "
            f"{list(votes.shape)}, one a parent, but gave {_shape(pose)}; sum the votes over "
            f"the children, votes.sum(-3)."
        )
    if activation is not None and _shape(activation) != [*batch, n_out]:
        raise TorchcapsError(
            f"{name}.forward should give one activation a parent, {[*batch, n_out]}, but gave "
            f"{_shape(activation)}; for the lengths of poses write pose.norm(dim=-1)."
        )


def _check_step(name: str, step: object, votes: Tensor) -> None:
    if not isinstance(step, Step):
        raise TorchcapsError(
            f"{name}.forward should record each step as tc.Step(None, coupling, parents), but "
            f"recorded a {type(step).__name__}."
        )
    expected, found = list(votes.shape[:-1]), _shape(step.coupling)
    if found != expected:
        raise TorchcapsError(
            f"{name}.forward should record couplings [*batch, children, parents] = {expected}, but "
            f"recorded {found}; where they are the same for all images write "
            f"coupling.expand(votes.shape[:-1])."
        )


def _shape(value: object) -> list[int] | str:
    """Give its shape, or what it is if it has none."""
    return list(value.shape) if isinstance(value, Tensor) else type(value).__name__
