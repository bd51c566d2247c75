"""The common shape of a capsule network: backbone, primary capsules, layers, head or decoder."""

import math
from collections.abc import Mapping
from typing import Any, cast, get_args

from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError
from torchcaps.layers import AttentionCapsules, CapsuleLayer, route_concurrently
from torchcaps.layers.intervention import by_layer, leaving, named
from torchcaps.layers.schedule import Schedule, check_have_routings, routed_in_a_row
from torchcaps.models.images import prepared
from torchcaps.models.iterating import routed_so_often
from torchcaps.models.preset import NamedNetwork
from torchcaps.types import (
    Capsules,
    Couple,
    Grid,
    Intervene,
    Keep,
    LayerTrace,
    Output,
    Routed,
    ScoresAre,
)


class CapsuleNetwork(NamedNetwork):
    """From images [b, c, h, w] in [0, 1] to class scores, a reconstruction and a trace.

    A class scores by the activation of its capsule, or with a `head` by one linear map of its pose,
    the same for every class [tsai2020] §2; `head_scores` says what those logits mean.

    Arguments:
        image: (channels, height, width) of the images.
        backbone: from images to features.
        primary: from features to the lowest capsules.
        primary_grid: (height, width, types), where those lie.
        layers: capsule layers by their names, from below; the last has a capsule a class.
        decoder: from class capsules to images, such as `layers.Decoder`; None: there is none.
        head: from the pose of a class capsule to its score; None: classes score by activation.
        head_scores: what those scores are: "logits", "independent_logits" or "lengths".
        schedule: "sequential": layers route one after the other. "concurrent": all at the same
            time.

    >>> create_model("capsnet").layers["classes"].routing.iterations
    3
    """

    _routes = True

    def __init__(
        self,
        *,
        image: tuple[int, int, int],
        backbone: nn.Module,
        primary: nn.Module,
        primary_grid: Grid,
        layers: Mapping[str, CapsuleLayer | AttentionCapsules],
        decoder: nn.Module | None = None,
        head: nn.Module | None = None,
        head_scores: ScoresAre = "logits",
        schedule: Schedule = "sequential",
    ):
        super().__init__()
        check_choice("schedule", schedule, get_args(Schedule))
        self.image = image
        self.backbone = backbone
        self.primary = primary
        self.primary_grid = primary_grid
        self.layers = nn.ModuleDict(layers)
        self.decoder = decoder
        self.head = head
        self.head_scores: ScoresAre = head_scores
        self.schedule: Schedule = schedule
        if schedule == "concurrent":
            self._common_iterations()
        self._check_primary_grid()

    def forward(
        self,
        image: Tensor,
        target: Tensor | None = None,
        *,
        keep: Keep = "none",
        couple: Couple | Mapping[str, Couple] | None = None,
        intervene: Mapping[str, Intervene] | None = None,
        iterations: int | None = None,
    ) -> Output:
        """Go from images to scores.

        Arguments:
            image: pixels [b, c, h, w].
            target: [b] tells the decoder which class to draw, [b, m] which m of them, one by one;
                without it the class with the highest score is drawn.
            keep: what the trace records of each layer: nothing, the last step, every step.
            couple: a function on the couplings [b, i, j] of the last iteration of every layer, or
                one for each layer that is named; from its result the parents are made, and the
                trace records it.
            intervene: functions on the capsules that leave a layer, by its name; "primary" is that
                of the primary capsules.
            iterations: how often all layers route in this call, if not as often as the network was
                made to; `analysis.MeasureFixedPoint` says whether they come to rest.
        """
        image = prepared(image, self.image, self)
        layers = self._layers()
        functions = by_layer(couple, list(layers))
        changes = named("intervene", intervene, ["primary", *layers])
        capsules: Capsules = self.primary(self.backbone(image))
        capsules = leaving("primary", capsules, changes)
        changes.pop("primary", None)
        with routed_so_often(self, iterations):
            if self.schedule == "sequential":
                routed = routed_in_a_row(layers, capsules, keep, functions, changes)
            else:
                routed = route_concurrently(
                    layers,
                    capsules,
                    iterations=self._common_iterations(),
                    keep=keep,
                    couple=functions,
                    intervene=changes,
                )
        capsules = routed[list(layers)[-1]].parents
        scores, scores_are = self._score(capsules)
        drawn = None
        if self.decoder is not None:
            # Not left to the decoder, which knows poses alone: those of EM routing have any length.
            drawn = self.decoder(capsules, scores.argmax(-1) if target is None else target)
        trace = self._trace(routed) if keep != "none" else ()
        return Output(scores, scores_are, capsules, drawn, trace)

    def _trace(self, routed: Mapping[str, Routed]) -> tuple[LayerTrace, ...]:
        trace = []
        grid: Grid | None = self.primary_grid
        for name, layer in self._layers().items():
            # With a concurrent schedule the children of the last step, not the last ones.
            children = routed[name].steps[-1].children
            assert children is not None
            trace.append(traced(name, layer, children, routed[name], grid))
            grid = layer.parent_grid
        return tuple(trace)

    def _score(self, classes: Capsules) -> tuple[Tensor, ScoresAre]:
        if self.head is not None:
            return self.head(classes.pose).squeeze(-1), self.head_scores
        if classes.activation is None:
            raise TorchcapsError(
                "the class capsules carry no activation, so they cannot score; give the network a "
                "head, or the last layer a routing with activations, such as tc.Capsules(pose, "
                "pose.norm(dim=-1))."
            )
        return classes.activation, "lengths"

    def _layers(self) -> dict[str, CapsuleLayer]:
        return cast(dict[str, CapsuleLayer], dict(self.layers.items()))

    def _check_primary_grid(self) -> None:
        """The trace says by this grid where the children of the first layer lie."""
        name, first = next(iter(self._layers().items()))
        grid = tuple(self.primary_grid)
        if first.child_grid is not None and grid != tuple(first.child_grid):
            raise TorchcapsError(
                f"primary_grid={grid} is not the child_grid={tuple(first.child_grid)} that layer "
                f"{name} was built for; give both the (height, width, types) of the primary "
                f"capsules."
            )
        if math.prod(grid) != first.n_in:
            raise TorchcapsError(
                f"primary_grid={grid} holds {math.prod(grid)} capsules, but layer {name} was built "
                f"for {first.n_in} children; give the (height, width, types) of the primary "
                f"capsules."
            )
        # As many capsules may lie in another way. A convolution says how many types there are.
        primary: Any = self.primary
        projection = getattr(primary, "projection", None)
        if isinstance(projection, nn.Conv2d):
            types = projection.out_channels // primary.d_out
            if grid[2] != types:
                raise TorchcapsError(
                    f"primary_grid={grid} has {grid[2]} types, but the projection of the primary "
                    f"capsules makes {types}, {projection.out_channels} channels of poses with "
                    f"{primary.d_out} components; give their (height, width, types)."
                )

    def _common_iterations(self) -> int:
        check_have_routings(self._layers())
        counts = [getattr(layer.routing, "iterations", 1) for layer in self._layers().values()]
        if min(counts) != max(counts):
            raise TorchcapsError(
                f"layers that route at once need one number of iterations, but have "
                f"{sorted(set(counts))}."
            )
        return int(counts[0])


def traced(
    name: str, layer: Any, children: Capsules, routed: Routed, grid: Grid | None
) -> LayerTrace:
    """Say of a layer what analysis looks at; `grid` is where its children lie."""
    # Attention, and 3-D convolutional capsules, route by themselves.
    over = (layer.routing if isinstance(layer, CapsuleLayer) else layer).normalised_over
    seen = (layer.weight, layer.parent_grid, layer.window)
    return LayerTrace(name, children, routed, grid, over, *seen)
