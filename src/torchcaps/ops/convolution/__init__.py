"""Convolutions by fewer multiplications: large kernels through Fourier space, small ones by
Winograd's minimal filtering, kernels as large as the map as products of vectors. Private; layers
that take them are in `layers.convolution`."""

from torchcaps.ops.convolution.fourier import fourier_convolution
from torchcaps.ops.convolution.whole_map import whole_map_convolution
from torchcaps.ops.convolution.winograd import winograd_convolution

__all__ = ["fourier_convolution", "whole_map_convolution", "winograd_convolution"]
