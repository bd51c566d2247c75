"""Plain convolutional networks: what the papers compare their capsule networks with.

Conv(c, k, s) is c channels, a k×k kernel, stride s and a ReLU, FC(n) a linear layer of n units.
Nothing is padded but where "p1" stands. `norm` is batch normalisation, after the ReLU; `mean` takes
the mean over all positions of the map.

The vectors of 16 units of gu_convnet_cr, gu_convnet_r and gu_convnet_cr_sf are `Output.classes`:
[gu2021] Table 5 compares their dimensions with those of class capsules.

[gu2021] §3:
    convnet_fc           Conv(256, 5, 1) Conv(256, 5, 1) Conv(128, 5, 1) FC(328) ReLU FC(192) ReLU
                         FC(classes)
    convnet_avg          Conv(256, 9, 1) Conv(256, 9, 2) mean FC(classes)
    gu_convnet_fc_lk     convnet_fc with 9×9 kernels and fewer units
    gu_convnet_cr        Conv(256, 9, 1) Conv(256, 9, 2) FC(classes · 16); a logit is the sum of its
                         16 units; the decoder sees the units of one class
    gu_convnet_r         the same units, FC(classes) on them; the decoder sees them all
    gu_convnet_cr_sf     gu_convnet_cr, but maps squashed in vectors of 8, units in vectors of 16,
                         whose length is the score

[tsai2020] Tables 2, 3 and 12, §6:
    tsai_cnn             Conv(1024, 3, 2, p1) Conv(1024, 3, 2, p1) norm, 2×2 pooling,
                         Conv(1024, 3, 2, p1) norm, mean (2×2) FC(classes)
    tsai_dmm_cnn         Conv(1024, 3, 2, p1) Conv(1024, 3, 2) norm Conv(1024, 3, 1) norm, FC(640)
                         at every position, mean (6×6) FC(classes)
    tsai_dmm_cnn_fcpool  FC(640) on the whole map instead, no mean

`width` is that of the first convolution of two, and of the first two of three, the third of which
is half as wide. `kernel` is the kernel study of [gu2021] Table 3.
Its printed sizes are met but for convnet_avg with kernel 5, 1,647,882 parameters against 1.70M, and
with kernel 9, 5,332,234 against 5.30M.

Departures: none known.
Ambiguities:
1. The units of ConvNet-FC(LK) are not printed. Here they keep the ratio 328 : 192 and are as many
   as leave the network, without its decoder, no larger than CapsNet of the same kernel, image and
   classes with its decoder: 11,359,467 parameters against 11,361,808 for 36×36 pixels. One size for
   every kernel cannot be had: with kernel 11 the convolutions alone hold 11.93 M. Never fewer than
   41 and 24 units.
2. How "reconstruction and the margin loss" are put on a ConvNet, §3.2: scores become sigmoid
   values, which the margin loss takes for lengths; a decoder of 512, 1024 and the pixels sees the
   last hidden layer, nothing masked.
3. ConvNet-FC ends in a softmax. ConvNet-FC(LK) is shown overlapping digits alone, so its classes
   are independent.
4. "All Conv and FC are followed by a ReLU" cannot hold for the 160 units of ConvNet-CR: a sum of
   non-negative units is never less likely than one half. ConvNet-R has "the 160 activations of
   ConvNet-CR", so no ReLU there either.
5. The 160 units have no bias: then ConvNet-CR has "the same number of parameters as in CapsNet".
6. `primary_relu`: a ReLU before the primary squash, as "all Conv" says.
7. Without a target ConvNet-CR draws the class with the largest logit, since it predicts that one.
8. [tsai2020] prints three input channels for DiverseMultiMNIST; the printed 42.49M needs one.
9. Images of other sizes: the last pooling is a mean over whatever map there is.
"""

import math
from bisect import bisect_right

from torch import Tensor, nn

from torchcaps.layers import Decoder, PrimaryCapsules, feature_shape
from torchcaps.layers.backbone import simple_backbone
from torchcaps.layers.convolution import LargeConv2d
from torchcaps.layers.intervention import without_capsules
from torchcaps.models.images import prepared
from torchcaps.models.iterating import refuse_iterations
from torchcaps.models.preset import CIFAR, OVERLAID, SMALL, WIDE, NamedNetwork, listed
from torchcaps.ops.checks import check_keep
from torchcaps.ops.routing.common import capsules
from torchcaps.ops.squashing import squash
from torchcaps.types import Capsules, Keep, Output, ScoresAre

D_PRIMARY, D_CLASS = 8, 16


class Plain(NamedNetwork):
    """A network without capsules, called as those with capsules are."""

    image: tuple[int, int, int]

    @without_capsules
    def forward(
        self,
        image: Tensor,
        target: Tensor | None = None,
        *,
        keep: Keep = "none",
        iterations: int | None = None,
    ) -> Output:
        """Score images, and draw them again where there is a decoder; the arguments are those of
        `CapsuleNetwork`. Nothing is routed: `keep` changes nothing, and `iterations` is refused."""
        check_keep(keep)
        refuse_iterations(iterations)
        return self._answer(prepared(image, self.image, self), target)

    def _answer(self, image: Tensor, target: Tensor | None) -> Output:
        """Score images whose pixels are prepared; each network says how."""
        raise NotImplementedError


class ConvNet(Plain):
    """From images [b, c, h, w] in [0, 1] to features [b, n] to scores; the decoder, where there is
    one, draws from all features. With `d_class` the features are class vectors of so many
    components, which come out as `classes`; scores are not their lengths, so they have no
    activations."""

    def __init__(
        self,
        *,
        image: tuple[int, int, int],
        features: nn.Module,
        head: nn.Module,
        scores_are: ScoresAre,
        decoder: Decoder | None = None,
        d_class: int | None = None,
    ):
        super().__init__()
        self.image = image
        self.d_class = d_class
        self.features = features
        self.head = head
        self.scores_are: ScoresAre = scores_are
        self.decoder = decoder

    def _answer(self, image: Tensor, target: Tensor | None) -> Output:
        features = self.features(image)  # [b, n]
        # The decoder sees all features, as if they were the pose of one class.
        drawn = None if self.decoder is None else self.decoder(Capsules(features.unsqueeze(1)))
        vectors = None if self.d_class is None else features.unflatten(1, (-1, self.d_class))
        classes = None if vectors is None else Capsules(vectors)
        return Output(self.head(features), self.scores_are, classes, drawn)


@listed("gu_convnet_cr", SMALL, 10, "gu2021 §3.3")
class ConvNetCR(Plain):
    """A logit is the sum of the units of its class; the decoder sees the units of one class."""

    def __init__(
        self, *, image: tuple[int, int, int], n_classes: int, kernel: int = 9, width: int = 256
    ):
        super().__init__()
        self.image, self.n_classes = image, n_classes
        self.units = _units(image, n_classes, kernel, width)
        self.decoder = Decoder(n_classes=n_classes, d_in=D_CLASS, image=image)

    def _answer(self, image: Tensor, target: Tensor | None) -> Output:
        classes = Capsules(self.units(image).unflatten(1, (-1, D_CLASS)))
        logits = classes.pose.sum(-1)
        drawn = self.decoder(classes, logits.argmax(-1) if target is None else target)
        return Output(logits, "independent_logits", classes, drawn)


@listed("gu_convnet_cr_sf", SMALL, 10, "gu2021 §3.3")
class ConvNetCRSF(Plain):
    """ConvNet-CR squashed at both ends; [gu2021] calls it CapsNet without routing."""

    def __init__(
        self,
        *,
        image: tuple[int, int, int],
        n_classes: int,
        kernel: int = 9,
        width: int = 256,
        primary_relu: bool = True,
    ):
        super().__init__()
        self.image, self.n_classes = image, n_classes
        maps = _stack(image[0], kernel, (width, 1), (256, 2))
        self.primary = PrimaryCapsules(maps if primary_relu else maps[:-1], d_out=D_PRIMARY)
        n_in = math.prod(feature_shape(maps, image))
        self.units = nn.Linear(n_in, n_classes * D_CLASS, bias=False)
        self.decoder = Decoder(n_classes=n_classes, d_in=D_CLASS, image=image)

    def _answer(self, image: Tensor, target: Tensor | None) -> Output:
        units = self.units(self.primary(image).pose.flatten(1))
        classes = capsules(squash(units.unflatten(1, (-1, D_CLASS))))
        assert classes.activation is not None
        drawn = self.decoder(classes, target)
        return Output(classes.activation, "lengths", classes, drawn)


@listed("convnet_fc", WIDE, 10, "gu2021 §3")
def convnet_fc(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    kernel: int = 5,
    width: int = 256,
    reconstruction: bool = False,
    margin: bool = False,
) -> ConvNet:
    maps = _stack(image[0], kernel, (width, 1), (width, 1), (max(1, width // 2), 1))
    return _fully_connected(
        image, n_classes, maps, (328, 192), "lengths" if margin else "logits", reconstruction
    )


@listed("gu_convnet_fc_lk", OVERLAID, 10, "gu2021 §3.2")
def gu_convnet_fc_lk(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    kernel: int = 9,
    width: int = 256,
    reconstruction: bool = False,
    margin: bool = False,
) -> ConvNet:
    maps = _stack(image[0], kernel, (width, 1), (width, 1), (max(1, width // 2), 1))
    n_in = math.prod(feature_shape(maps, image))
    budget = _size_of_capsnet(image, n_classes, kernel, width)
    budget -= sum(p.numel() for p in maps.parameters())

    def cost(units: int) -> int:
        first, second = _two_widths(units)
        return (n_in + 1) * first + (first + 1) * second + (second + 1) * n_classes

    fits = bisect_right(range(2**16), budget, key=cost) - 1
    hidden = _two_widths(max(41, fits))
    scores_are: ScoresAre = "lengths" if margin else "independent_logits"
    return _fully_connected(image, n_classes, maps, hidden, scores_are, reconstruction)


@listed("convnet_avg", WIDE, 10, "gu2021 §3.1")
def convnet_avg(
    *, image: tuple[int, int, int], n_classes: int, kernel: int = 9, width: int = 256
) -> ConvNet:
    maps = _stack(image[0], kernel, (width, 1), (256, 2))
    return averaged(image, maps, n_classes, "logits")


@listed("gu_convnet_r", SMALL, 10, "gu2021 §3.3")
def gu_convnet_r(
    *, image: tuple[int, int, int], n_classes: int, kernel: int = 9, width: int = 256
) -> ConvNet:
    units = n_classes * D_CLASS
    return ConvNet(
        image=image,
        features=_units(image, n_classes, kernel, width),
        head=nn.Linear(units, n_classes),
        scores_are="independent_logits",
        decoder=_unmasked(units, image),
        d_class=D_CLASS,
    )


@listed("tsai_cnn_c10", CIFAR, 10, "tsai2020 Table 2")
@listed("tsai_cnn_c100", CIFAR, 100, "tsai2020 Table 3")
def tsai_cnn(*, image: tuple[int, int, int], n_classes: int) -> ConvNet:
    maps = nn.Sequential(
        simple_backbone(image[0], 1024),
        *_normed(stride=2, padding=1),
        nn.AvgPool2d(2),
        *_normed(stride=2, padding=1),
    )
    return averaged(image, maps, n_classes, "logits")


@listed("tsai_dmm_cnn", OVERLAID, 10, "tsai2020 Table 12")
def tsai_dmm_cnn(*, image: tuple[int, int, int], n_classes: int) -> ConvNet:
    maps = nn.Sequential(_dmm_maps(image[0]), nn.Conv2d(1024, 640, 1))
    return averaged(image, maps, n_classes, "independent_logits")


@listed("tsai_dmm_cnn_fcpool", OVERLAID, 10, "tsai2020 §6")
def tsai_dmm_cnn_fcpool(*, image: tuple[int, int, int], n_classes: int) -> ConvNet:
    maps = _dmm_maps(image[0])
    n_in = math.prod(feature_shape(maps, image))
    return ConvNet(
        image=image,
        features=nn.Sequential(maps, nn.Flatten(), nn.Linear(n_in, 640)),
        head=nn.Linear(640, n_classes),
        scores_are="independent_logits",
    )


def _stack(channels: int, kernel: int, *layers: tuple[int, int]) -> nn.Sequential:
    """Stack convolutions of (width, stride) without padding, a ReLU after each."""
    blocks: list[nn.Module] = []
    for width, stride in layers:
        blocks += [LargeConv2d(channels, width, kernel, stride), nn.ReLU(inplace=True)]
        channels = width
    return nn.Sequential(*blocks)


def _fully_connected(
    image: tuple[int, int, int],
    n_classes: int,
    maps: nn.Module,
    hidden: tuple[int, int],
    scores_are: ScoresAre,
    reconstruction: bool,
) -> ConvNet:
    first, second = hidden
    n_in = math.prod(feature_shape(maps, image))
    layers = (nn.Flatten(), nn.Linear(n_in, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU())
    scores: nn.Module = nn.Linear(second, n_classes)
    return ConvNet(
        image=image,
        features=nn.Sequential(maps, *layers),
        head=nn.Sequential(scores, nn.Sigmoid()) if scores_are == "lengths" else scores,
        scores_are=scores_are,
        decoder=_unmasked(second, image) if reconstruction else None,
    )


def _unmasked(features: int, image: tuple[int, int, int]) -> Decoder:
    return Decoder(n_classes=1, d_in=features, image=image, mask="none")


def _two_widths(units: int) -> tuple[int, int]:
    return units, round(units * 192 / 328)


def _size_of_capsnet(image: tuple[int, int, int], n_classes: int, kernel: int, width: int) -> int:
    """Count the parameters of CapsNet with its decoder, no class bias [gu2021] §3."""
    channels, *sides = image
    children = 32 * math.prod((side - 2 * kernel + 1) // 2 + 1 for side in sides)
    convolutions = (channels * kernel**2 + 1) * width + (width * kernel**2 + 1) * 256
    units = n_classes * D_CLASS
    decoder = (units + 1) * 512 + 513 * 1024 + 1025 * math.prod(image)
    return convolutions + children * D_PRIMARY * units + decoder


def _units(image: tuple[int, int, int], n_classes: int, kernel: int, width: int) -> nn.Sequential:
    maps = _stack(image[0], kernel, (width, 1), (256, 2))
    n_in = math.prod(feature_shape(maps, image))
    return nn.Sequential(maps, nn.Flatten(), nn.Linear(n_in, n_classes * D_CLASS, bias=False))


def averaged(
    image: tuple[int, int, int], maps: nn.Module, n_classes: int, scores_are: ScoresAre
) -> ConvNet:
    """Score by one linear layer of the mean over all positions of the maps."""
    channels, *_ = feature_shape(maps, image)
    features = nn.Sequential(maps, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = nn.Linear(channels, n_classes)
    return ConvNet(image=image, features=features, head=head, scores_are=scores_are)


def _normed(*, stride: int, padding: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(1024, 1024, 3, stride, padding), nn.ReLU(inplace=True), nn.BatchNorm2d(1024)


def _dmm_maps(channels: int) -> nn.Sequential:
    return nn.Sequential(
        simple_backbone(channels, 1024),
        *_normed(stride=2, padding=0),
        *_normed(stride=1, padding=0),
    )
