"""The sum of all votes through windows, Σ_i û_ij, as one convolution.

On a GPU it is rounded as any convolution of PyTorch, in float32 to TensorFloat-32 unless
torch.backends.cudnn.allow_tf32 = False.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchcaps.types import VoteMap, Window

# Copies of children for one convolution; larger ones cost page faults.
CHUNK_BYTES = 8 << 20


class WindowSums:
    """A pose is a matrix of `rows` that meet the same weights, a vector one of one row, so this is
    a convolution from (type, k) to (j, c) channels with (b, row) as its batch."""

    def __init__(self, vote_map: VoteMap, window: Window, dtype: torch.dtype):
        self.vote_map, self.window, self.dtype = vote_map, window, dtype
        self.is_matrix = vote_map.pose == "matrix"
        pose, weight = vote_map.children.pose, vote_map.weight.to(dtype)
        weight = weight.unsqueeze(0) if vote_map.sharing == "all" else weight
        weight = weight.transpose(-1, -2) if self.is_matrix else weight
        self.kinds, self.n_out, self.columns, self.k = weight.shape
        self.rows = self.k if self.is_matrix else 1
        *lead, _, _ = pose.shape
        self.images = pose.reshape(math.prod(lead), *window.child_grid, self.rows, self.k)
        self.slots = math.prod(window.kernel) * window.child_grid[2]
        # Slots are ordered (row, column, type), whichever of them share weights.
        weight = weight.repeat(self.slots // self.kinds, 1, 1, 1)
        weight = torch.unflatten(weight, 0, (*window.kernel, -1)).permute(3, 4, 2, 5, 0, 1)
        filters = weight.flatten(2, 3).flatten(0, 1)  # [(j, c), (type, k), kh, kw]
        # Not `contiguous`, which leaves any stride to axes of size one, and convolutions may not.
        self.filters = filters.clone(memory_format=torch.channels_last)

    def sums(self) -> Tensor:
        """Give [b, p, j, d]"""
        grid = (*self.window.positions, self.n_out, self.rows, self.columns)
        sums = self.filters.new_empty(len(self.images), *grid)
        for part in self._parts():
            maps = self._convolved(self._maps(part))
            _copy(sums[part], self._grid(maps, self.n_out))
        sums = sums.flatten(-2).flatten(1, 2)
        if self.vote_map.bias is not None:
            sums += self.slots * self.vote_map.bias
        if self.vote_map.coordinates is not None:
            sums += self.vote_map.coordinates.sum(0)
        return sums

    def gradients(
        self, of_sums: Tensor, pose: bool, weight: bool, bias: bool, coordinates: bool
    ) -> list[Tensor | None]:
        """Return the gradients of pose, weight, bias and coordinates, from those of sums [b, p, j,
        d], not rounded: others may be added."""
        of_images = torch.empty_like(self.images, dtype=self.dtype) if pose else None
        of_filters = torch.zeros_like(self.filters) if weight else None
        grid = torch.unflatten(of_sums, -1, (self.rows, self.columns))
        grid = torch.unflatten(grid, 1, self.window.positions)  # [b, h, w, j, row, c]
        for part in self._parts() if pose or weight else ():
            of_maps, of_part, _ = torch.ops.aten.convolution_backward(
                _channels(grid[part]),
                self._maps(part),
                self.filters,
                None,
                self.window.stride,
                (0, 0),
                (1, 1),
                False,
                (0, 0),
                1,
                (pose, weight, False),
            )
            if of_images is not None:
                _copy(of_images[part], self._grid(of_maps, self.window.child_grid[2]))
            if of_filters is not None:
                of_filters += of_part
        return [
            None if of_images is None else of_images.view(self.vote_map.children.pose.shape),
            None if of_filters is None else self._of_weight(of_filters),
            self.slots * of_sums.sum((0, 1)) if bias else None,
            of_sums.sum((0, 1, 2)).repeat(self.slots, 1) if coordinates else None,
        ]

    def _convolved(self, maps: Tensor) -> Tensor:
        filters, stride = self.filters, self.window.stride
        if maps.shape[1] == 1 and stride[0] != stride[1]:
            # oneDNN, by which PyTorch computes, gets some of these wrong, but none of two channels.
            maps, filters = (pad(x, (0, 0, 0, 0, 0, 1)) for x in (maps, filters))
        return torch.conv2d(maps, filters, stride=stride)

    def _parts(self) -> Iterator[slice]:
        """Part the images into some at a time."""
        step = max(1, CHUNK_BYTES // (self.images.shape[1:].numel() * self.dtype.itemsize))
        for start in range(0, len(self.images), step):
            yield slice(start, min(start + step, len(self.images)))

    def _maps(self, part: slice) -> Tensor:
        return _channels(self.images[part].to(self.dtype))

    def _grid(self, maps: Tensor, n: int) -> Tensor:
        """Give maps [(b, row), (n, c), h, w] as poses [b, h, w, n, row, c]."""
        grid = torch.unflatten(torch.unflatten(maps, 1, (n, -1)), 0, (-1, self.rows))
        return grid.permute(0, 4, 5, 2, 1, 3)

    def _of_weight(self, of_filters: Tensor) -> Tensor:
        types = (self.window.child_grid[2], self.k)
        grid = torch.unflatten(torch.unflatten(of_filters, 1, types), 0, (self.n_out, self.columns))
        slots = grid.permute(4, 5, 2, 0, 1, 3).flatten(0, 2)  # [slot, j, c, k]
        weight = torch.unflatten(slots, 0, (-1, self.kinds)).sum(0)
        weight = weight.transpose(-1, -2) if self.is_matrix else weight
        return weight.reshape(self.vote_map.weight.shape)


def _channels(grid: Tensor) -> Tensor:
    """Give poses [b, h, w, n, row, c] as maps [(b, row), (n, c), h, w], channels last."""
    by_row = grid.permute(0, 4, 1, 2, 3, 5)
    if not by_row.is_contiguous():
        by_row = torch.empty_like(by_row, memory_format=torch.contiguous_format)
        _copy(by_row, grid.permute(0, 4, 1, 2, 3, 5))
    return by_row.flatten(4).flatten(0, 1).permute(0, 3, 1, 2)


def _copy(to: Tensor, what: Tensor) -> None:
    """Copy, 16 bytes for one number where as many lie together: rows of poses are short, and number
    by number this takes up to four times as long."""
    if to.dtype == what.dtype and all(_in_pieces(x) for x in (to, what)):
        to, what = to.view(torch.complex128), what.view(torch.complex128)
    to.copy_(what)


def _in_pieces(x: Tensor) -> bool:
    places = (x.shape[-1], x.storage_offset(), *x.stride()[:-1])
    return x.stride(-1) == 1 and all(place * x.itemsize % 16 == 0 for place in places)
