"""The data model: what flows between the floors of the house.

Axis letters are the papers' own everywhere: `b` batch, `i` child, `j` parent, `d` pose, `t`
iteration. Grids are ordered (h, w, type). Every class is registered with pytree, so torch.export
saves it.
"""

from typing import Literal, NamedTuple

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


class LayerTrace(NamedTuple):
    """One routed layer as analysis sees it."""

    name: str
    children: Capsules
    routed: Routed
    child_grid: Grid | None = None
    normalised_over: str = "parents"
    weight: Tensor | None = None


Trace = tuple[LayerTrace, ...]


class Output(NamedTuple):
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


for _kind in (Capsules, VoteMap, Step, Routed, LayerTrace, Output):
    _pytree._register_namedtuple(_kind, serialized_type_name=f"torchcaps.types.{_kind.__name__}")
