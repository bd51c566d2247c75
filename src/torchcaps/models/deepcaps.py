"""DeepCaps [rajasegaran2019], as [renzulli2025] §4.2 uses it.

Conv(128, 3×3) ReLU, batch norm – four cells – n_classes × 32 class capsules by dynamic routing from
the capsules of cells 4 and 3 – decoder by transposed convolutions.

A cell halves the map and adds two ways through it, each of 32 types:
    A    = ConvCaps(below), stride 2
    skip = ConvCaps(A)
    B    = ConvCaps(ConvCaps(A))
    out  = B + skip
Capsules have 4 components in cell 1, 8 in the others. ConvCaps routes once, so it is a 3×3
convolution without a bias whose capsules are squashed; only the skip of cell 4 routes more often,
by a 3-D convolution.

deepcaps      as in [rajasegaran2019]
rem_deepcaps  no decoder: 8,441,600 parameters on MNIST, the 8.4M of [renzulli2025] Table 9

`routing`, `bias` and `agreement` are those of the class capsules, `iterations` and `detach` those
of both routed layers, `squash_over` that of the skip of cell 4. With uniform routing that skip
keeps its first, even couplings.

The trace has two layers. `cell_4_skip`: a child is a whole map of one type, for so it routes; its
pose is that of its capsules, one after the other (h, w, d), its activation the root mean square of
their lengths, so that it stays below one. `classes`: the capsules of cell 4, then those of cell 3,
each ordered (h, w, type); child i of cell 4 is parent i of the layer before plus B, and as a sum
of two may be longer than one.

Departures:
1. Maps are padded by one pixel on every side. The code of [rajasegaran2019] pads an even map below
   and to the right alone where it is halved; sizes agree, positions lie one pixel apart.
Ambiguities:
1. Glorot's start needs the numbers of inputs and outputs of a weight. In the code of
   [rajasegaran2019] a kernel has six axes, for which its Keras took the root of the kernel's size
   for both, so σ = size^(−1/4), as here. With the usual numbers the lengths of the capsules,
   squashed seven times on the shortest way, are zero in float32 in cell 4.
2. The class bias: off; the printed size of [renzulli2025] fits both. The code of [rajasegaran2019]
   has one, 13,359,424 parameters on 64×64×3 without the decoder, and starts it at lengths near 0.6,
   so that its matrices may start near zero. Here they start as in public code of [renzulli2025],
   `weight_std` = 0.05; Glorot for every matrix alone, 0.22, saturates the classes of 64×64 pixels.
3. The text squashes the first map into capsules of one component, its code does not; nor do we.
4. Batch norm: ε = 1e-3 and 1 % of a new batch, the defaults of the code's Keras. So lengths in
   evaluation are right after some hundreds of steps, not before.
5. rem_deepcaps is the network of [rajasegaran2019], as [renzulli2025] B.1 says, with votes constant
   in all but the last iteration, as in its public code. Unlike here that code has a bias in every
   convolution; squashes each pose where the 3-D routing squashes a map (`squash_over="pose"`);
   reads three of the eight components of a pose in that layer, since its kernel is 3 deep and its
   stride 8; has no ReLU in the stem, and squashes its maps as capsules of one component; adds the
   class bias in the last iteration alone; and keeps 1 % of the old mean in batch norm.
6. Any image goes through, even one pixel; but where maps are mostly padding lengths vanish, and
   with sides of less than some 17 pixels little is left in cell 4 to learn from.
"""

import math
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from torchcaps.layers import (
    Conv3dCapsules,
    DeconvDecoder,
    DenseCapsules,
    Routing,
    UniformRouting,
    feature_shape,
)
from torchcaps.layers.backbone import Maps, maps_after
from torchcaps.layers.convolution import SmallConv2d
from torchcaps.layers.intervention import by_layer, leaving, named
from torchcaps.layers.primary import poses_of
from torchcaps.models.images import prepared
from torchcaps.models.iterating import routed_so_often
from torchcaps.models.network import traced
from torchcaps.models.options import ITERATES
from torchcaps.models.preset import SMALL, NamedNetwork, hands_on, listed
from torchcaps.models.stack import routed_by
from torchcaps.ops.routing import Detach, SquashOver
from torchcaps.ops.routing.common import capsules, lengths
from torchcaps.ops.squashing import squash_known as g
from torchcaps.types import Capsules, Couple, Grid, Intervene, Keep, Output, Routed, Trace

WIDTH, TYPES = 128, 32
D_CELLS, D_CLASS = (4, 8, 8, 8), 32


@final
class DeepCaps(NamedNetwork):
    """From images [b, c, h, w] in [0, 1] to lengths of classes, a reconstruction and a trace."""

    _routes = True

    def __init__(
        self,
        *,
        image: tuple[int, int, int],
        n_classes: int,
        routing: str | Routing,
        bias: bool,
        iterations: int,
        detach: Detach,
        squash_over: SquashOver,
        weight_std: float,
        decoder: DeconvDecoder | None,
        **of_routing: Any,
    ):
        super().__init__()
        self.image = image
        *d_below, d_pose = D_CELLS
        cells, channels = [], WIDTH
        for d in d_below:
            cells.append(_Cell(channels, d))
            channels = TYPES * d
        self.backbone = nn.Sequential(_stem(image[0]), *cells)
        self.halved = _ConvCaps(channels, d_pose, stride=2)
        self.residual = _twice(d_pose)
        grid_3 = _grid(self.backbone, image)
        grid_4 = _grid(nn.Sequential(self.backbone, self.halved), image)
        is_uniform = routing == "uniform" or isinstance(routing, UniformRouting)
        skip = Conv3dCapsules(
            child_grid=grid_4,
            d_in=d_pose,
            types=TYPES,
            d_out=d_pose,
            # One iteration leaves couplings even: the uniform twin routes nowhere.
            iterations=1 if is_uniform else iterations,
            squash_over=squash_over,
            detach=detach,
        )
        options: dict[str, Any] = {"squash": "hinton", "detach": detach} | of_routing
        classes = DenseCapsules(
            n_in=math.prod(grid_4) + math.prod(grid_3),
            d_in=d_pose,
            n_out=n_classes,
            d_out=D_CLASS,
            weight_std=weight_std,
            **routed_by(routing, bias=bias, iterations=iterations, **options),
        )
        self.layers = nn.ModuleDict({"cell_4_skip": skip, "classes": classes})
        self.decoder = decoder

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
        """Go from images to scores; the arguments are those of `CapsuleNetwork`; nothing is called
        "primary" here."""
        image = prepared(image, self.image, self)
        functions = by_layer(couple, list(self.layers))
        changes = named("intervene", intervene, list(self.layers))
        skip, classes = self.layers["cell_4_skip"], self.layers["classes"]
        assert isinstance(skip, Conv3dCapsules)
        assert isinstance(classes, DenseCapsules)
        cell_3 = self.backbone(image)  # [b, type * d, h, w]
        halved = self.halved(cell_3)
        below, function = capsules(poses_of(halved, skip.d_in)), functions.get("cell_4_skip")
        with routed_so_often(self, iterations):
            skipped: Routed = skip(below, keep=keep, couple=function)
            skipped = skipped._replace(parents=leaving("cell_4_skip", skipped.parents, changes))
            cell_4 = poses_of(self.residual(halved), skip.d_out) + skipped.parents.pose
            children = capsules(torch.cat([cell_4, poses_of(cell_3, classes.d_in)], dim=1))
            routed: Routed = classes(children, keep=keep, couple=functions.get("classes"))
        routed = routed._replace(parents=leaving("classes", routed.parents, changes))
        scores = routed.parents.activation
        assert scores is not None
        trace: Trace = ()
        if keep != "none":
            maps = _whole_maps(halved)
            steps = tuple(step._replace(children=maps) for step in skipped.steps)
            skipped = skipped._replace(steps=steps)
            trace = (
                traced("cell_4_skip", skip, maps, skipped, (1, 1, TYPES)),
                # Two grids joined are none.
                traced("classes", classes, children, routed, None),
            )
        drawn = None
        if self.decoder is not None:
            # As in CapsuleNetwork: poses of EM routing have any length.
            drawn = self.decoder(routed.parents, scores.argmax(-1) if target is None else target)
        return Output(scores, "lengths", routed.parents, drawn, trace)


@listed("deepcaps", (3, 64, 64), 10, "rajasegaran2019", shared=ITERATES)
@listed(
    "rem_deepcaps", SMALL, 10, "renzulli2025 §4.2", shared=ITERATES, detach="votes", decoder=False
)
@hands_on("iterations bias detach squash_over agreement")
def deepcaps(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "dynamic",
    bias: bool = False,
    squash_over: SquashOver = "map",
    weight_std: float = 0.05,
    decoder: bool = True,
    **of_routing: Any,
) -> DeepCaps:
    return DeepCaps(
        image=image,
        n_classes=n_classes,
        routing=routing,
        bias=bias,
        squash_over=squash_over,
        weight_std=weight_std,
        decoder=DeconvDecoder(d_in=D_CLASS, image=image) if decoder else None,
        **of_routing,
    )


class _ConvCaps(nn.Module):
    """Maps of `TYPES` types of capsules from any maps [b, c, h, w], routed once."""

    def __init__(self, channels: int, d_out: int, *, stride: int = 1):
        super().__init__()
        self.projection = SmallConv2d(
            channels, TYPES * d_out, 3, stride=stride, padding=1, bias=False
        )
        weight = self.projection.weight
        bound = math.sqrt(3) * weight.numel() ** -0.25  # of σ = size^(−1/4)
        nn.init.uniform_(weight, -bound, bound)
        self.d_out = d_out

    def forward(self, maps: Tensor) -> Tensor:
        poses = torch.unflatten(self.projection(maps), 1, (-1, self.d_out))  # [b, type, d, h, w]
        return g(poses, axes=2).flatten(1, 2)

    def maps_after(self, maps: Maps) -> Maps | None:
        return maps_after(self.projection, maps)


class _Cell(nn.Module):
    """Cells 1 to 3: no skip of theirs routes."""

    def __init__(self, channels: int, d_pose: int):
        super().__init__()
        self.halved = _ConvCaps(channels, d_pose, stride=2)
        self.skip = _ConvCaps(TYPES * d_pose, d_pose)
        self.residual = _twice(d_pose)

    def forward(self, maps: Tensor) -> Tensor:
        halved = self.halved(maps)
        added: Tensor = self.residual(halved) + self.skip(halved)
        return added

    def maps_after(self, maps: Maps) -> Maps | None:
        return maps_after(self.halved, maps)


def _twice(d_pose: int) -> nn.Sequential:
    return nn.Sequential(*(_ConvCaps(TYPES * d_pose, d_pose) for _ in range(2)))


def _stem(channels: int) -> nn.Sequential:
    convolution = SmallConv2d(channels, WIDTH, 3, padding=1)
    nn.init.xavier_uniform_(convolution.weight)
    assert convolution.bias is not None
    nn.init.zeros_(convolution.bias)
    # Keras' momentum, 0.99, is the share that stays; torch's is the share that comes.
    norm = nn.BatchNorm2d(WIDTH, eps=1e-3, momentum=0.01)
    return nn.Sequential(convolution, nn.ReLU(inplace=True), norm)


def _grid(maps: nn.Module, image: tuple[int, int, int]) -> Grid:
    _, height, width = feature_shape(maps, image)
    return height, width, TYPES


def _whole_maps(maps: Tensor) -> Capsules:
    """Give a capsule for every type of maps [b, type * d, h, w]."""
    pose = maps.unflatten(1, (TYPES, -1)).permute(0, 1, 3, 4, 2).flatten(2)  # [b, type, h * w * d]
    positions = math.prod(maps.shape[-2:])
    return Capsules(pose, lengths(pose) / math.sqrt(positions))
