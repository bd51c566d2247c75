"""The data model: what flows between the floors of the house.

Axis letters are the papers' own everywhere: `b` batch, `i` child, `j` parent, `d` pose, `t`
iteration. Grids are ordered (h, w, type). Every class is registered with pytree, so torch.export
saves it.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree

__all__ = [
    "Capsules",
    "Couple",
    "Grid",
    "Intervene",
    "Keep",
    "LayerTrace",
    "Output",
    "Routed",
    "ScoresAre",
    "Step",
    "Trace",
    "VoteMap",
    "Window",
]

# What to record of a routing: nothing, its last step, or every step.
Keep = Literal["none", "last", "steps"]
# (height, width, types): child i lies at row i // (width * types).
Grid = tuple[int, int, int]
# "lengths": of class capsules, or their activations. "logits": one class is present.
# "independent_logits": any number of classes is.
ScoresAre = Literal["lengths", "logits", "independent_logits"]


class Capsules(NamedTuple):
    """A set of capsules. For vector capsules the activation is the length of the pose."""

    pose: Tensor  # [*b, i, d]
    activation: Tensor | None = None  # [*b, i]


# What to do with the couplings [*b, i, j] of a layer, and with the capsules that leave it.
Couple = Callable[[Tensor], Tensor]
Intervene = Callable[[Capsules], Capsules]


class Window(NamedTuple):
    """What a convolutional capsule sees: `kernel` positions of its child grid, every type."""

    child_grid: Grid
    kernel: tuple[int, int]
    stride: tuple[int, int]

    @property
    def positions(self) -> tuple[int, int]:
        """How many windows there are, down and across; no padding."""
        (height, width, _), (k_h, k_w), (s_h, s_w) = self
        return (height - k_h) // s_h + 1, (width - k_w) // s_w + 1

    def of(self, values: Tensor) -> Tensor:
        """Show values [*b, n, d] of all children as the windows see them, [*b, p, i, d]; a view of
        them until it is flattened. Slot i is ordered (row, column, type) like the grid."""
        (k_h, k_w), (s_h, s_w) = self.kernel, self.stride
        grid = torch.unflatten(values, -2, self.child_grid)  # [*b, h, w, type, d]
        seen = grid.unfold(-4, k_h, s_h).unfold(-4, k_w, s_w)  # [*b, ph, pw, type, d, kh, kw]
        seen = seen.movedim((-2, -1), (-4, -3))  # [*b, ph, pw, kh, kw, type, d]
        return seen.flatten(-4, -2).flatten(-4, -3)

    def child_id(self, device: torch.device | None = None) -> Tensor:
        """Say which child lies in slot i of window p, [p, i]."""
        n = math.prod(self.child_grid)
        return self.of(torch.arange(n, device=device).unsqueeze(-1)).squeeze(-1)


class VoteMap(NamedTuple):
    """Everything between children and votes; `ops.materialise` makes the votes of it.

    With a window the votes are [*b, p, i, j, d]: i counts the slots of a window.
    """

    children: Capsules
    # vector pose: [i, j, d_out, d_in]; matrix pose: [i, j, side, side].
    # sharing "type": [types, j, ...]; sharing "all": [j, ...].
    weight: Tensor
    sharing: Literal["none", "type", "all"] = "none"
    pose: Literal["vector", "matrix"] = "vector"
    bias: Tensor | None = None  # [j, d], added to every vote of parent j
    window: Window | None = None
    coordinates: Tensor | None = None  # [i, d], added to every vote of child i


class Step(NamedTuple):
    """One iteration: the couplings, and the parents they gave."""

    children: Capsules | None  # None from an op; the layer that called it fills it in
    coupling: Tensor  # [*b, i, j]
    parents: Capsules


class Routed(NamedTuple):
    """What a routing returns: the parents, and the steps the caller asked to keep."""

    parents: Capsules
    steps: tuple[Step, ...] = ()
    scale: Tensor | None = None  # [*b, t], the mean distances that distance routing went by


@dataclass(frozen=True)
class LayerTrace:
    """One routed layer as analysis sees it."""

    name: str
    children: Capsules
    routed: Routed
    child_grid: Grid | None = None
    normalised_over: str = "parents"
    weight: Tensor | None = None
    parent_grid: Grid | None = None
    window: Window | None = None  # then couplings are [*b, p, i, j]


Trace = tuple[LayerTrace, ...]


@dataclass(frozen=True)
class Output:
    """What a network returns. A ConvNet has an empty trace, and no classes unless it has a vector
    for each of them."""

    scores: Tensor  # [b, n_classes]
    scores_are: ScoresAre
    classes: Capsules | None = None
    reconstruction: Tensor | None = None  # [b, c, h, w]
    trace: Trace = ()

    def probabilities(self) -> Tensor:
        """Give lengths as they are: squashed, each is the probability that its class is present,
        and they need not sum to one; unsquashed they have no bound. Logits through a softmax, those
        of independent classes through a sigmoid."""
        if self.scores_are == "lengths":
            return self.scores
        one_class = self.scores_are == "logits"
        return self.scores.softmax(-1) if one_class else self.scores.sigmoid()


def _register(kind: type, *words: str) -> None:
    """Tell pytree that the fields `words` are part of the structure: torch.export cannot reload a
    string among the tensors."""
    leaves = [field.name for field in fields(kind) if field.name not in words]

    def structure(value: Any) -> list[Any]:
        return [getattr(value, name) for name in words]

    def flatten(value: Any) -> tuple[list[Any], list[Any]]:
        return [getattr(value, name) for name in leaves], structure(value)

    def flatten_with_keys(value: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
        keyed = [(_pytree.GetAttrKey(name), getattr(value, name)) for name in leaves]
        return keyed, structure(value)

    def unflatten(values: Iterable[Any], said: list[Any]) -> Any:
        return kind(**dict(zip(leaves, values, strict=True)), **dict(zip(words, said, strict=True)))

    _pytree.register_pytree_node(
        kind,
        flatten,
        unflatten,
        serialized_type_name=f"torchcaps.types.{kind.__name__}",
        to_dumpable_context=lambda said: said,
        from_dumpable_context=lambda said: said,
        flatten_with_keys_fn=flatten_with_keys,
    )


for _tuple in (Capsules, Window, VoteMap, Step, Routed):
    _pytree._register_namedtuple(_tuple, serialized_type_name=f"torchcaps.types.{_tuple.__name__}")
_register(LayerTrace, "name", "normalised_over")
_register(Output, "scores_are")
