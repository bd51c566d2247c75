"""Convolutions that networks are built of: `nn.Conv2d`, where it pays by fewer multiplications.

Each is `nn.Conv2d` to whoever saves, compiles, exports or traces it. They are private: networks
take them, and what a network gives does not depend on the way that they take.
"""

from torchcaps.layers.convolution.large import LargeConv2d
from torchcaps.layers.convolution.small import SmallConv2d
from torchcaps.layers.convolution.whole_map import WholeMapConv2d

__all__ = ["LargeConv2d", "SmallConv2d", "WholeMapConv2d"]
