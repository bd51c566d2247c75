"""Convolutions that networks are built of: `nn.Conv2d`, where it pays by fewer multiplications.

Each is `nn.Conv2d` to whoever saves, compiles, exports or traces it. They are private: networks
take them, and what a network gives does not depend on the way that they take.
"""

from typing import cast, final

import torch
from torch import Tensor, nn

from torchcaps.ops.checks import without_autocast
from torchcaps.ops.convolution import whole_map_convolution, winograd
from torchcaps.ops.convolution.fourier import Pair, fourier_convolution, saving
from torchcaps.ops.convolution.laid_out import in_graphs, laid_out_convolution
from torchcaps.ops.native.build import available
from torchcaps.ops.tracing import is_looked_through

# Multiplications a direct convolution must have to one through Fourier space, which has more to
# move; where they are twice as many, both take about as long.
WORTH = 2.5
# Predicting so many images, a kernel is laid out anew for about as long as it is multiplied.
FEW = 4
# What autocast casts.
NARROW = {torch.float32, torch.bfloat16, torch.float16}


@final
class LargeConv2d(nn.Conv2d):
    """`nn.Conv2d` that trains large kernels through Fourier space on a CPU where that takes far
    fewer multiplications; see `ops.convolution.fourier`. It does so with zero padding, without
    groups and dilation, and where gradients are wanted: without them a direct convolution is as
    fast and takes less memory.

    In torch.inference_mode, and in graphs of torch.compile without gradients, a few images are
    convolved with weights that are laid out once; see `ops.convolution.laid_out`.

    `is_direct = True`, or `use_backend(network, "plain")`, turns both off. torch.compile, but for
    what is laid out, torch.export, torch.jit.trace and torch.func take it for an ordinary
    convolution.
    """

    is_direct: bool = False

    def forward(self, x: Tensor) -> Tensor:
        if _is_predicted(self, x, self.weight, self.bias):
            return _predicted(self, x, self.weight, self.bias)
        if torch.compiler.is_compiling() or is_looked_through() or not self.pays(x):
            return super().forward(x)
        dtype = torch.get_autocast_dtype("cpu") if _casts() else x.dtype
        with without_autocast(x):
            maps, kernels = x.to(dtype), self.weight.to(dtype)
            return fourier_convolution(maps, kernels, self.bias, **self._how())

    def pays(self, x: Tensor) -> bool:
        """Say whether maps [b, c, h, w] go through Fourier space. What does not fit goes directly,
        and torch says why."""
        if self.is_direct or x.device.type != "cpu" or x.ndim != 4:
            return False
        if not (torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)):
            return False
        dtypes = {x.dtype, self.weight.dtype}
        if not (dtypes <= NARROW if _casts() else len(dtypes) == 1 and x.is_floating_point()):
            return False
        if self.groups != 1 or self.dilation != (1, 1) or isinstance(self.padding, str):
            return False
        if self.padding_mode != "zeros" or x.shape[1] != self.in_channels:
            return False
        return saving(x.shape, self.weight.shape, **self._how()) >= WORTH

    def _how(self) -> dict[str, Pair]:
        return {"stride": cast(Pair, self.stride), "padding": cast(Pair, self.padding)}


def _casts() -> bool:
    return torch.is_autocast_enabled("cpu")


@final
class SmallConv2d(nn.Conv2d):
    """`nn.Conv2d` that computes 3×3 kernels with stride 1 by Winograd's minimal filtering, on a CPU
    with a compiler and in float32; see `ops.convolution.winograd`. It does so without groups and
    dilation, with zero padding, and where there are channels and positions enough for it to pay.

    A few images are predicted as by `LargeConv2d`.

    `is_direct = True`, or `use_backend(network, "plain")`, turns both off. So do autocast,
    torch.compile, but for what is laid out, torch.export, torch.jit.trace and torch.func, to which
    it is an ordinary convolution.
    """

    is_direct: bool = False

    def forward(self, x: Tensor) -> Tensor:
        # Read once: a parametrization makes it anew each time.
        weight, bias = self.weight, self.bias
        if _is_predicted(self, x, weight, bias):
            return _predicted(self, x, weight, bias)
        # What most often says no comes first: for one image asking takes longer than adding.
        if (
            self.kernel_size != (3, 3)
            or self.stride != (1, 1)
            or torch.compiler.is_compiling()
            or is_looked_through()
            or not self._pays(x, weight, bias)
        ):
            y: Tensor = self._conv_forward(x, weight, bias)
            return y
        return winograd.winograd_convolution(x, weight, bias, padding=int(self.padding[0]))

    def pays(self, x: Tensor) -> bool:
        """Say whether maps [b, c, h, w] go that way. What does not fit goes directly, and torch
        says why."""
        return self._pays(x, self.weight, self.bias)

    def _pays(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        if self.kernel_size != (3, 3) or self.stride != (1, 1) or self.is_direct or x.ndim != 4:
            return False
        padding, shape = self.padding, x.shape
        if isinstance(padding, str) or padding[0] != padding[1]:
            return False
        if not winograd.pays(shape, weight.shape, padding[0]) or shape[1] != self.in_channels:
            return False
        if self.dilation != (1, 1) or self.groups != 1 or self.padding_mode != "zeros":
            return False
        given = [x, weight] if bias is None else [x, weight, bias]
        if any(each.device.type != "cpu" or each.dtype != torch.float32 for each in given):
            return False
        return not torch.is_autocast_enabled("cpu") and available()


@final
class WholeMapConv2d(nn.Conv2d):
    """`nn.Conv2d` of one kernel a channel, as large as the map, which leaves one value a channel.
    On a CPU it is computed as products of vectors, see `ops.convolution.whole_map`.

    `is_direct = True`, or `use_backend(network, "plain")`, turns that off. So do autocast and maps
    of other sizes, and torch.export, torch.jit.trace and torch.func, to which it is an ordinary
    convolution.
    """

    is_direct: bool = False

    def __init__(self, channels: int, height: int, width: int):
        super().__init__(channels, channels, (height, width), groups=channels)

    def forward(self, x: Tensor) -> Tensor:
        if is_looked_through() or not self._fits(x):
            return super().forward(x)
        return whole_map_convolution(x, self.weight, self.bias)

    def _fits(self, x: Tensor) -> bool:
        if self.is_direct or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return False
        shape = (self.in_channels, *self.kernel_size)
        # Half precision is rounded less often by a convolution.
        fits = x.ndim == 4 and x.shape[1:] == shape and x.dtype in (torch.float32, torch.float64)
        return fits and x.dtype == self.weight.dtype


def _is_predicted(
    conv: LargeConv2d | SmallConv2d, x: Tensor, weight: Tensor, bias: Tensor | None
) -> bool:
    """Say whether these are a few maps [b, c, h, w], convolved sooner with weights that are laid
    out once: in torch.inference_mode, and in graphs without gradients, which cannot ask for it."""
    # Nothing is asked that makes objects, for it is asked for one image too.
    return (
        not torch.is_grad_enabled()
        and (torch.compiler.is_compiling() or torch.is_inference_mode_enabled())
        and not conv.is_direct
        and x.ndim == 4
        and 0 < x.shape[0] <= FEW
        and x.dtype == weight.dtype == torch.float32
        and x.is_cpu
        and weight.is_cpu
        and (bias is None or (bias.is_cpu and bias.dtype == torch.float32))
        and conv.padding_mode == "zeros"
        and not isinstance(conv.padding, str)
        and x.shape[1] == weight.shape[1] * conv.groups
        and not _casts()
        and not is_looked_through()
    )


def _predicted(
    conv: LargeConv2d | SmallConv2d, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    convolve = in_graphs if torch.compiler.is_compiling() else laid_out_convolution
    padding = cast(Pair, conv.padding)
    return convolve(x, weight, bias, padding, conv.stride, conv.dilation, conv.groups)
