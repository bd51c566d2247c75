"""What operators cost, one file for each way to meet votes: tiles of PyTorch, lanes of processors,
blocks of GPUs; what an algorithm computes is the same in all of them."""

from torchcaps.ops.costs import blocks, convolution, lanes, tiles  # noqa: F401, they register costs
from torchcaps.ops.costs.base import COSTS, Cost

__all__ = ["COSTS", "Cost"]
