"""The data model: what flows between the floors of the house.

Axis letters are the papers' own everywhere: `b` batch, `i` child, `j` parent, `d` pose, `t`
iteration. Grids are ordered (h, w, type). Every class is registered with pytree, so torch.export
saves it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from torch import Tensor
from torch.utils import _pytree

__all__ = [
    "Capsules",
    "Grid",
    "Keep",
    "LayerTrace",
    "Output",
    "Routed",
    "Step",
    "Trace",
    "VoteMap",
]

# What to record of a routing: nothing, its last step, or every step.
Keep = Literal["none", "last", "steps"]
# (height, width, types): child i lies at row i // (width * types).
Grid = tuple[int, int, int]


class Capsules(NamedTuple):
    """A set of capsules. For vector capsules the activation is the length of the pose."""

    pose: Tensor  # [*b, i, d]
    activation: Tensor | None = None  # [*b, i]


class VoteMap(NamedTuple):
    """Everything between children and votes; `ops.materialise` makes the votes of it."""

    children: Capsules
    # vector pose: [i, j, d_out, d_in]; matrix pose: [i, j, side, side].
    # sharing "type": [types, j, ...]; sharing "all": [j, ...].
    weight: Tensor
    sharing: Literal["none", "type", "all"] = "none"
    pose: Literal["vector", "matrix"] = "vector"
    bias: Tensor | None = None  # [j, d], added to every vote of parent j


class Step(NamedTuple):
    """One iteration: the couplings, and the parents they gave."""

    children: Capsules | None  # None from an op; the layer that called it fills it in
    coupling: Tensor  # [*b, i, j]
    parents: Capsules


class Routed(NamedTuple):
    """What a routing returns: the parents, and the steps the caller asked to keep."""

    parents: Capsules
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class LayerTrace:
    """One routed layer as analysis sees it."""

    name: str
    children: Capsules
    routed: Routed
    child_grid: Grid | None = None
    normalised_over: str = "parents"
    weight: Tensor | None = None


Trace = tuple[LayerTrace, ...]


@dataclass(frozen=True)
class Output:
    """What a network returns. A ConvNet has no classes and an empty trace."""

    scores: Tensor  # [b, n_classes]
    scores_are: Literal["lengths", "logits"]
    classes: Capsules | None = None
    reconstruction: Tensor | None = None  # [b, c, h, w]
    trace: Trace = ()

    def probabilities(self) -> Tensor:
        """Lengths as they are (each the probability that its class is present; they need not sum to
        one), logits through a softmax."""
        return self.scores if self.scores_are == "lengths" else self.scores.softmax(-1)


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


for _tuple in (Capsules, VoteMap, Step, Routed):
    _pytree._register_namedtuple(_tuple, serialized_type_name=f"torchcaps.types.{_tuple.__name__}")
_register(LayerTrace, "name", "normalised_over")
_register(Output, "scores_are")
