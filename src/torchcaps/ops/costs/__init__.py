"""What operators cost, one file for each way to meet votes: tiles of PyTorch, lanes of native
kernels; what an algorithm computes is the same in both."""

from torchcaps.ops.costs import convolution, lanes, tiles  # noqa: F401, they register costs
from torchcaps.ops.costs.base import COSTS, Cost

__all__ = ["COSTS", "Cost"]
