"""A depthwise convolution with kernels as large as the map: a product of two vectors a channel.

On a CPU it is several times faster than a convolution, forwards and backwards.

Departures: none. Ambiguities: none.
"""

import torch
from torch import Tensor


def whole_map_convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `torch.nn.functional.conv2d` of maps [b, c, h, w] and kernels [c, 1, h, w] in c
    groups, as [b, c, 1, 1]."""
    kernels = weight.flatten(1)  # [c, h w]
    if x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous():
        # Channels lie next to each other: all are summed at once.
        values = (x.permute(0, 2, 3, 1).flatten(1, 2) * kernels.t()).sum(1)
    elif len(x) == 1:
        values = (x.flatten(2) * kernels).sum(-1)
    else:
        by_channel = x.flatten(2).transpose(0, 1)  # [c, b, h w]
        values = torch.bmm(by_channel, kernels.unsqueeze(-1)).squeeze(-1).t().contiguous()
    if bias is not None:
        values = values + bias
    return values.view(*values.shape, 1, 1)
