"""A capsule head for a backbone of one's own: primary capsules, then class capsules.

1×1 convolution (or another kernel) to types × d_primary channels, squash – n_classes × d_class
class capsules, every primary capsule votes for each of them. A class scores by the length of its
capsule.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, final

import torch
from torch import Tensor, nn

from torchcaps._checks import check_floating
from torchcaps.errors import TorchcapsError
from torchcaps.layers.after import check_names, children_after, features_after
from torchcaps.layers.capsule_layer import check_sizes
from torchcaps.layers.dense import DenseCapsules
from torchcaps.layers.intervention import by_layer, leaving, named
from torchcaps.layers.primary import PrimaryCapsules
from torchcaps.layers.routing import Routing, as_routing, make_routing
from torchcaps.layers.routing.table import all_routing_options, no_use
from torchcaps.types import Couple, Grid, Intervene, Keep, LayerTrace, Output, Trace


@final
class CapsuleHead(nn.Module):
    """From a feature map [b, c, h, w] to class scores: primary capsules, then class capsules.

    `CapsuleHead.after(backbone, …)` makes one that fits a backbone. `head(features)` returns an
    `Output`; with keep="last" or "steps" the output holds a trace, which `analysis` and `viz` read.
    `couple` and `intervene` are those of a network, of the layers "primary" and "classes".

    Arguments:
        primary: from the feature map to capsules of `primary.d_out` components.
        classes: from these to one capsule a class; its routing must give activations.
        grid: (height, width, types) of the primary capsules, height × width × types in all.

    >>> backbone = sabour_backbone(1, width=32)
    >>> head = CapsuleHead.after(backbone, image=(1, 28, 28), n_classes=7)
    >>> head(backbone(torch.rand(2, 1, 28, 28))).scores.shape
    torch.Size([2, 7])
    """

    def __init__(self, primary: PrimaryCapsules, classes: DenseCapsules, *, grid: Grid):
        super().__init__()
        if not classes.routing.gives_activations:
            raise TorchcapsError(
                f"a head scores by the activations of its classes, and "
                f"{type(classes.routing).__name__} gives none; take another routing."
            )
        if math.prod(grid) != classes.n_in:
            raise TorchcapsError(
                f"the grid {tuple(grid)} holds {math.prod(grid)} capsules, but the class capsules "
                f"were built for {classes.n_in} children; CapsuleHead.after(backbone, …) finds "
                f"both."
            )
        self.primary = primary
        self.classes = classes
        self.grid = grid

    @classmethod
    def after(
        cls,
        backbone: nn.Module,
        *,
        image: tuple[int, int, int],
        n_classes: int,
        types: int = 8,
        d_primary: int = 8,
        d_class: int = 16,
        kernel: int = 1,
        stride: int = 1,
        routing: str | Routing = "dynamic",
        weight_std: float = 0.1,
        **options: Any,
    ) -> Self:
        """Give the head that fits the feature maps which `backbone` makes of images of one size.

        The backbone is looked at, not run: no memory is taken, and it stays as it is.

        Arguments:
            backbone: any module from images [b, *image] to feature maps [b, c, h, w].
            image: (channels, height, width) of the images.
            n_classes: how many class capsules there are.
            types: how many primary capsules there are at each position of the map.
            d_primary: components of a primary capsule.
            d_class: components of a class capsule.
            kernel: side of the convolution that makes the primary capsules.
            stride: its stride; 2 leaves a quarter of the positions.
            routing: a name of `ROUTINGS`, or a routing that belongs to no layer yet.
            weight_std: standard deviation of the class capsules' first weights.
            options: those of a routing that is given by its name, such as `iterations`.

        >>> backbone = nn.Sequential(nn.Conv2d(3, 32, 5, stride=2), nn.ReLU())
        >>> head = CapsuleHead.after(backbone, image=(3, 24, 32), n_classes=7)
        >>> head(backbone(torch.rand(2, 3, 24, 32))).scores.shape
        torch.Size([2, 7])
        """
        check_sizes(
            "CapsuleHead",
            n_classes=n_classes,
            types=types,
            d_primary=d_primary,
            d_class=d_class,
            kernel=kernel,
            stride=stride,
        )
        routing = cls._routing(routing, options)
        channels, height, width = features_after(backbone, image)
        if kernel > min(height, width):
            raise TorchcapsError(
                f"a kernel of {kernel}×{kernel} does not fit on the {height}×{width} map that the "
                f"backbone makes of {tuple(image)}; use kernel={min(height, width)} or less."
            )
        projection = nn.Conv2d(channels, types * d_primary, kernel, stride)
        primary = PrimaryCapsules(projection, d_out=d_primary)
        below = children_after((primary,), (channels, height, width))
        classes = DenseCapsules(
            **below, n_out=n_classes, d_out=d_class, routing=routing, weight_std=weight_std
        )
        return cls(primary, classes, grid=below["child_grid"])

    @classmethod
    def _routing(cls, routing: str | Routing, options: Mapping[str, Any]) -> Routing:
        """Give the routing, with those options that are its own; there are no others."""
        found = as_routing(routing)
        names = {*inspect.signature(cls.after).parameters} - {"options"}
        taken = inspect.signature(type(found)).parameters
        for name in options:
            if isinstance(routing, str) and name in all_routing_options().difference(taken):
                raise no_use(routing, name, options[name])
        check_names("CapsuleHead.after", options, {*names, *taken})
        if not options:
            return found
        if isinstance(routing, Routing):
            raise TorchcapsError(
                f"a routing that is given as an object has its options already, so "
                f"{', '.join(options)} would do nothing; say it where {type(routing).__name__}(…) "
                f"is made."
            )
        return make_routing(routing, **options)

    def forward(
        self,
        features: Tensor,
        *,
        keep: Keep = "none",
        couple: Couple | Mapping[str, Couple] | None = None,
        intervene: Mapping[str, Intervene] | None = None,
    ) -> Output:
        self._check_features(features)
        changes = named("intervene", intervene, ["primary", "classes"])
        children = leaving("primary", self.primary(features), changes)
        couple = by_layer(couple, ["classes"]).get("classes")
        routed = self.classes(children, keep=keep, couple=couple)
        parents = leaving("classes", routed.parents, changes)
        routed = routed._replace(parents=parents)
        trace: Trace = ()
        if keep != "none":
            over = self.classes.routing.normalised_over
            seen = LayerTrace("classes", children, routed, self.grid, over, self.classes.weight)
            trace = (seen,)
        if parents.activation is None:
            raise TorchcapsError(
                f"the class capsules of {type(self.classes.routing).__name__} carry no activation, "
                f"so they cannot score; let its forward give tc.Capsules(pose, pose.norm(dim=-1))."
            )
        return Output(parents.activation, "lengths", parents, trace=trace)

    if TYPE_CHECKING:
        __call__: Callable[..., Output]

    def _check_features(self, features: Tensor) -> None:
        """Refuse images that did not pass the backbone, the usual slip, and other dtypes."""
        projection = self.primary.projection
        if not isinstance(projection, nn.Conv2d):
            return
        is_map = isinstance(features, Tensor) and features.ndim == 4
        if not is_map or features.shape[1] != projection.in_channels:
            got = list(features.shape) if isinstance(features, Tensor) else type(features).__name__
            remedy = "; write head(backbone(images))"
            if isinstance(features, Tensor) and features.ndim == 3:
                remedy = ", which lacks the batch axis; write head(backbone(images[:1]))"
                remedy += " for one image"
            raise TorchcapsError(
                f"a head takes the feature maps of its backbone, [batch, {projection.in_channels}, "
                f"height, width], but got {got}{remedy}."
            )
        positions = _positions(projection, features)
        if positions != tuple(self.grid[:2]):
            expected, came = (" × ".join(map(str, each)) for each in (self.grid[:2], positions))
            raise TorchcapsError(
                f"this head has primary capsules at {expected} positions, rows × columns, but "
                f"features {list(features.shape)} have {came} for them; are height and width "
                f"exchanged, or are the images of another size than the head was made for?"
            )
        dtype = projection.weight.dtype
        if not features.is_floating_point():
            check_floating("feature maps", features, f"convert them with features.to({dtype})")
        if features.dtype != dtype and not torch.is_autocast_enabled(features.device.type):
            raise TorchcapsError(
                f"feature maps and the weights of a head must share a dtype, but are "
                f"{features.dtype} and {dtype}; convert the features with features.to({dtype}), or "
                f"the head with head.to({features.dtype})."
            )


def _positions(projection: nn.Conv2d, features: Tensor) -> tuple[int, ...]:
    """Give the height and width of what a convolution makes of these features."""
    sides = tuple(features.shape[2:])
    if projection.padding == "same":
        return sides
    padding = (0, 0) if isinstance(projection.padding, str) else projection.padding
    each = zip(
        sides, padding, projection.dilation, projection.kernel_size, projection.stride, strict=True
    )
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in each)
