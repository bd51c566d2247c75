"""Backbones: the plain convolutions below the capsules.

A ReLU writes over its input, which the convolution or the normalisation before it does not need in
its backward pass: one map less in memory, with the same numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers.capsule_layer import check_sizes
from torchcaps.layers.convolution import LargeConv2d, SmallConv2d, WholeMapConv2d

# (channels, height, width)
Maps = tuple[int, int, int]


def sabour_backbone(channels: int, *, kernel: int = 9, width: int = 256) -> nn.Sequential:
    """Make one 9×9 convolution with 256 channels and a ReLU [gu2021] §3, from [sabour2017]; other
    kernels in [gu2021] Table 3; a smaller width is ours, for a quick trunk.

    Arguments:
        channels: of the image.
        kernel: height and width of the filters.
        width: how many filters there are.

    >>> feature_shape(sabour_backbone(1), (1, 28, 28))
    (256, 20, 20)
    """
    _check_convolution("sabour_backbone", channels, width, kernel)
    return nn.Sequential(SmallConv2d(channels, width, kernel), nn.ReLU(inplace=True))


def _check_convolution(
    name: str, channels: int, width: int, kernel: object, stride: object = 1
) -> None:
    """Check a kernel and a stride, each of which may be a pair, as torch takes it."""
    check_sizes(name, channels=channels, width=width)
    for what, given in (("kernel", kernel), ("stride", stride)):
        for side in given if isinstance(given, tuple) else (given,):
            check_sizes(name, **{what: side})


def rectified(projection: nn.Module, primary_relu: bool) -> nn.Module:
    """Give the projection of primary capsules, with a ReLU before their squash if that is asked
    for."""
    return nn.Sequential(projection, nn.ReLU(inplace=True)) if primary_relu else projection


def efficient_backbone(
    channels: int,
    *,
    widths: Sequence[int] = (32, 64, 64, 128),
    kernels: Sequence[int] = (5, 3, 3, 3),
    strides: Sequence[int] = (1, 1, 1, 2),
) -> nn.Sequential:
    """Make convolutions, each with ReLU and batch normalisation, as Efficient-CapsNet [mazzia2021].

    Arguments:
        channels: of the image.
        widths: channels of each convolution.
        kernels: height and width of its filters.
        strides: how far apart they lie.

    >>> feature_shape(efficient_backbone(1), (1, 28, 28))
    (128, 9, 9)
    """
    if not len(widths) == len(kernels) == len(strides):
        raise TorchcapsError(
            f"efficient_backbone needs a kernel and a stride for each of its widths, but came with "
            f"{len(widths)} widths, {len(kernels)} kernels and {len(strides)} strides."
        )
    blocks: list[nn.Module] = []
    for c_out, kernel, stride in zip(widths, kernels, strides, strict=True):
        _check_convolution("efficient_backbone", channels, c_out, kernel, stride)
        blocks += [
            SmallConv2d(channels, c_out, kernel, stride),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(c_out),
        ]
        channels = c_out
    return nn.Sequential(*blocks)


def efficient_norb_backbone(channels: int) -> nn.Sequential:
    """Make the backbone of Efficient-CapsNet for stereo pairs: a first kernel of 7 with stride 2,
    leaky ReLU and instance normalisation [mazzia2021].

    Arguments:
        channels: of the image; a stereo pair has two.

    >>> feature_shape(efficient_norb_backbone(2), (2, 48, 48))
    (128, 8, 8)
    """
    blocks: list[nn.Module] = []
    for c_out, kernel, stride in zip((32, 64, 64, 128), (7, 3, 3, 3), (2, 1, 1, 2), strict=True):
        blocks += [
            SmallConv2d(channels, c_out, kernel, stride),
            nn.LeakyReLU(0.3, inplace=True),
            InstanceNorm(c_out, affine=True),
        ]
        channels = c_out
    return nn.Sequential(*blocks)


class InstanceNorm(nn.InstanceNorm2d):
    """Normalise as torch does, and give an empty batch back, which torch refuses."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.shape[0] else x


def whole_map(channels: int, height: int, width: int) -> WholeMapConv2d:
    """Make a depthwise convolution as large as the map: one value a channel is left, no positions
    [mazzia2021], [renzulli2025] §4.3.1.

    Arguments:
        channels: of the features.
        height: of the map.
        width: of the map.

    >>> whole_map(128, 9, 9)(torch.rand(2, 128, 9, 9)).shape
    torch.Size([2, 128, 1, 1])
    """
    check_sizes("whole_map", channels=channels, height=height, width=width)
    return WholeMapConv2d(channels, height, width)


def with_channels_last(network: nn.Module) -> nn.Module:
    """Lay the weights of every `nn.Conv2d` in it out with the channels last, in place.

    Their outputs then are laid out so too. `network.to(memory_format=torch.channels_last)` would
    do it to capsule matrices as well and refuse 3-D convolutions.

    Arguments:
        network: any module; it is changed and given back.

    >>> model = with_channels_last(create_model("efficient_capsnet"))
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            weight = module.weight
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    return network


def simple_backbone(
    channels: int,
    width: int,
    *,
    kernel: int = 3,
    stride: int = 2,
    padding: int = 1,
    norm: bool = False,
) -> nn.Sequential:
    """Make one convolution and a ReLU [tsai2020] Tables 8 and 9, batch normalisation between them
    in Table 6.

    Arguments:
        channels: of the image.
        width: how many filters there are.
        kernel: height and width of the filters.
        stride: how far apart they lie.
        padding: zeros around the image.
        norm: whether batch normalisation follows the convolution.

    >>> feature_shape(simple_backbone(3, 128), (3, 32, 32))
    (128, 16, 16)
    """
    _check_convolution("simple_backbone", channels, width, kernel, stride)
    between = (nn.BatchNorm2d(width),) if norm else ()
    return nn.Sequential(
        nn.Conv2d(channels, width, kernel, stride, padding), *between, nn.ReLU(inplace=True)
    )


def resnet_backbone(channels: int, *, width: int = 128) -> nn.Sequential:
    """Make a 3×3 convolution with 64 channels, three residual blocks of 64, four of `width`
    [tsai2020] A.1: 16×16×128 from 32×32 pixels.

    Departures: none known.
    Ambiguities: "four residual blocks with stride 2" give 16×16 only if the first alone has it.
    The text has 128 channels for every network, but the sizes printed for dynamic routing with this
    backbone (12.45M and 36.04M) ask for `width=256`: 4,521,024 parameters, then a 9×9 convolution
    with stride 2 and padding 4 to 32 types of 8 components on 8×8 positions.

    Arguments:
        channels: of the image.
        width: channels of the last four blocks.

    >>> feature_shape(resnet_backbone(3), (3, 32, 32))
    (128, 16, 16)
    """
    return residual_backbone(channels, (64, 3), (width, 4))


def residual_backbone(channels: int, *stages: tuple[int, int]) -> nn.Sequential:
    """Make a 3×3 convolution, then `stages` of (width, how many residual blocks). Every stage but
    the first halves the map.

    Convolutions have no bias, since batch normalisation follows each of them.

    Arguments:
        channels: of the image.
        stages: (width, how many residual blocks), one a stage.

    >>> feature_shape(residual_backbone(3, (64, 2), (128, 2)), (3, 32, 32))
    (128, 16, 16)
    """
    _check_stages(channels, stages)
    width = stages[0][0]
    stem = normalised(channels, width, 3, 1)
    return nn.Sequential(*stem, nn.ReLU(inplace=True), *_residual_blocks(*stages))


def _check_stages(channels: int, stages: Sequence[object]) -> None:
    check_sizes("residual_backbone", channels=channels)
    for stage in stages or (None,):
        if not isinstance(stage, tuple | list) or len(stage) != 2:
            raise TorchcapsError(
                f"residual_backbone needs stages as pairs, (width, how many residual blocks), but "
                f"got {'none' if stage is None else short(stage)}; write residual_backbone("
                f"{short(channels)}, (64, 2), (128, 2))."
            )
        check_sizes("residual_backbone", width=stage[0], blocks=stage[1])


class ImagenetMaps(nn.Sequential):
    """A ResNet for ImageNet up to its last maps, a thirty-second of the image's height and width.

    A 7×7 convolution and a maximum over 3×3 halve the map each. Four stages follow, as those of
    `residual_backbone`; `blocks` says how many blocks each has. With `bottleneck`, a block gives
    four times the width of its 3×3 convolution.
    """

    # The mean and the deviation by which images are normalised, under the name that timm gives it.
    pretrained_cfg: Mapping[str, Any]

    def __init__(
        self, channels: int, blocks: Sequence[int] = (2, 2, 2, 2), *, bottleneck: bool = False
    ):
        wider = 4 if bottleneck else 1
        widths = (64, 128, 256, 512)
        stages = zip((wider * width for width in widths), blocks, strict=True)
        super().__init__(
            nn.Conv2d(channels, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            *_residual_blocks(*stages, c_in=64, wider=wider),
        )
        self.blocks, self.pretrained_cfg = blocks, {}


def _residual_blocks(
    *stages: tuple[int, int], c_in: int | None = None, wider: int = 1
) -> list[nn.Module]:
    c_in = stages[0][0] if c_in is None else c_in
    blocks: list[nn.Module] = []
    for stage, (c_out, many) in enumerate(stages):
        for block in range(many):
            stride = 2 if stage and not block else 1
            blocks.append(_ResidualBlock(c_in, c_out, stride=stride, wider=wider))
            c_in = c_out
    return blocks


class _ResidualBlock(nn.Module):
    """ReLU(two 3×3 convolutions + shortcut), where the shortcut is a 1×1 convolution if the shape
    changes; `wider` than 1, a 3×3 convolution between two of 1×1."""

    def __init__(self, c_in: int, c_out: int, *, stride: int, wider: int = 1):
        super().__init__()
        width = c_out // wider
        convolutions = [(c_in, width, 3, stride), (width, c_out, 3, 1)]
        if wider > 1:
            convolutions = [(c_in, width, 1, 1), (width, width, 3, stride), (width, c_out, 1, 1)]
        parts: list[nn.Module] = []
        for each in convolutions:
            parts += [*normalised(*each), nn.ReLU(inplace=True)]
        # The last ReLU comes after the sum.
        self.residual = nn.Sequential(*parts[:-1])
        same = stride == 1 and c_in == c_out
        self.shortcut = nn.Sequential(*(() if same else normalised(c_in, c_out, 1, stride)))

    def forward(self, features: Tensor) -> Tensor:
        return torch.relu_(self.residual(features).add_(self.shortcut(features)))

    def maps_after(self, maps: Maps) -> Maps | None:
        return maps_after(self.residual, maps)


def normalised(c_in: int, c_out: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    """Make a convolution that keeps the size but for its stride, and its batch normalisation."""
    convolution = SmallConv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(c_out)


# A side that is enough for any backbone of small kernels; nothing is computed on it.
LARGE = 512
# What `maps_after` knows: modules that keep every map, that normalise it, that slide over it.
KEPT = (nn.Identity, nn.ReLU, nn.LeakyReLU)
NORMALISED = (nn.BatchNorm2d, nn.InstanceNorm2d, InstanceNorm)
SLID = (nn.Conv2d, LargeConv2d, SmallConv2d, WholeMapConv2d, nn.MaxPool2d, nn.AvgPool2d)


class ImageTooSmall(TorchcapsError):
    """An image that does not pass through the convolutions. `found` says so without a remedy, for
    callers that know a better one."""

    def __init__(self, found: str):
        self.found = found
        super().__init__(f"{found}; use a larger image or smaller kernels.")


def feature_shape(module: nn.Module, image: tuple[int, int, int]) -> tuple[int, int, int]:
    """Give the (channels, height, width) that `module` makes of an image, without computing
    anything.

    Arguments:
        module: takes images [b, c, h, w] and gives feature maps.
        image: (channels, height, width) of the images.

    >>> feature_shape(sabour_backbone(1), (1, 28, 28))
    (256, 20, 20)
    """
    if worked_out := maps_after(module, image):
        return worked_out
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    shadow = {name: tensor.detach().to("meta") for name, tensor in state.items()}

    dtype = next((each.dtype for each in module.parameters() if each.is_floating_point()), None)

    def maps_of(*size: int) -> object:
        # Two images, because batch normalisation refuses to train on a single value.
        images = torch.empty(2, *size, device="meta", dtype=dtype)
        return torch.func.functional_call(module, shadow, images)

    try:
        features = maps_of(*image)
    except (RuntimeError, ValueError, TypeError) as error:
        _check_channels(module, image)
        why = (str(error) or type(error).__name__).splitlines()[0]
        channels, height, width = image
        kernels = [side for tensor in shadow.values() for side in tensor.shape[2:]]
        large = max(LARGE, height, width, 4 * sum(kernels))
        try:
            maps_of(channels, large, large)
        except (RuntimeError, ValueError, TypeError):
            raise TorchcapsError(
                f"{type(module).__name__} should make feature maps of images [batch, {channels}, "
                f"{height}, {width}], but does not take them, nor larger ones ({why}); give the "
                f"convolutions of a network for images."
            ) from error
        raise ImageTooSmall(
            f"an image of (channels, height, width) = {image} does not pass through the "
            f"convolutions ({why})"
        ) from None
    if not isinstance(features, Tensor) or features.ndim != 4:
        what = list(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise TorchcapsError(
            f"capsules need a feature map [batch, channels, height, width], but two images give "
            f"{what}; leave out the pooling, the flattening and the classifier at the end."
        )
    channels, height, width = features.shape[1:]
    return channels, height, width


def maps_after(module: nn.Module, maps: Maps) -> Maps | None:
    """Work out by arithmetic what `feature_shape` says, for common modules and those that define
    `maps_after`; None where it takes a forward pass on the meta device, which imports sympy."""
    kind, (channels, height, width) = type(module), maps
    if module._forward_hooks or module._forward_pre_hooks:
        return None
    if kind.forward is nn.Sequential.forward:
        found: Maps | None = maps
        for part in module.children():
            found = found and maps_after(part, found)
        return found
    if kind in NORMALISED:
        # Instance normalisation refuses a map of one value.
        alone = height * width == 1 and kind is not nn.BatchNorm2d
        return maps if module.num_features == channels and not alone else None
    if kind not in SLID:
        own = getattr(module, "maps_after", None)
        return maps if kind in KEPT else own and own(maps)
    made = getattr(module, "out_channels", channels)
    if getattr(module, "in_channels", channels) != channels or module.padding in ("same", "valid"):
        return None
    if getattr(module, "padding_mode", "zeros") != "zeros" or getattr(module, "ceil_mode", False):
        return None
    dilation = getattr(module, "dilation", 1)
    options = (module.kernel_size, module.stride, module.padding, dilation)
    kernel, stride, padding, dilation = (e if isinstance(e, tuple) else (e, e) for e in options)
    height, width = (
        (side + 2 * padding[k] - dilation[k] * (kernel[k] - 1) - 1) // stride[k] + 1
        for k, side in enumerate((height, width))
    )
    return (made, height, width) if min(height, width) > 0 else None


def _check_channels(module: nn.Module, image: tuple[int, int, int]) -> None:
    first = next((part for part in module.modules() if isinstance(part, nn.Conv2d)), None)
    if first is None or first.in_channels == image[0]:
        return
    last = first.in_channels == image[2]
    raise TorchcapsError(
        f"the first convolution takes {first.in_channels} channels, but an image of (channels, "
        f"height, width) = {image} has {image[0]}; "
        + (
            f"channels come first: ({image[2]}, {image[0]}, {image[1]})."
            if last
            else f"give image=({first.in_channels}, {image[1]}, {image[2]}), or a "
            f"convolution that takes {image[0]}."
        )
    )
