"""A network of ten weights, to work out by hand what is pruned."""

import torch
from torch import nn


class Ten(nn.Module):
    """Ten weights of sizes 1 to 10, in a shuffled order over two convolutions."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 4, 1), nn.Conv2d(1, 6, 1)
        sizes = torch.tensor([3.0, -10, 1, 7, -2, 9, 5, -8, 4, 6])
        with torch.no_grad():
            self.one.weight.copy_(sizes[:4].view(4, 1, 1, 1))
            self.two.weight.copy_(sizes[4:].view(6, 1, 1, 1))

    def left(self):
        """The sizes that are not pruned."""
        both = torch.cat([self.one.weight.flatten(), self.two.weight.flatten()]).abs()
        return sorted(both[both > 0].tolist())
