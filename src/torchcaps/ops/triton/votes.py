"""What Triton kernels make votes of, how they cut them into tiles, and the gradients of it.

A sample that is seen through windows counts as one sample for each of them, and its children are
the slots of the window.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.fused.tiles import MadeOf, vote_dtype
from torchcaps.ops.triton.runtime import interpreted, launch
from torchcaps.types import VoteMap, Window

__all__ = ["Blocks", "Shape", "Votes", "blocks_of", "fits", "padded", "shape_of", "shared_out"]

# Numbers of parents that a program has at once, and of weights; a product has sixteen of every axis
# at least.
TILE, WEIGHTS, LEAST = 4096, 8192, 16
# So many programs keep a large GPU busy; with fewer children each would only load its parents.
PROGRAMS, CHILDREN = 512, 4
# Warps of a program. With fewer, differentiation does not fit into registers.
WARPS = 8


def fits(vote_map: VoteMap) -> bool:
    """Whether kernels can make votes like these."""
    *_, columns, inner = vote_map.weight.shape
    return (
        vote_map.children.pose.device.type != "meta"
        and vote_dtype(vote_map) in (torch.float32, torch.float16, torch.bfloat16)
        and max(LEAST, padded(columns)) * max(LEAST, padded(inner)) <= WEIGHTS
    )


def padded(size: int) -> int:
    """To a power of two."""
    return 1 << max(0, size - 1).bit_length()


class Shape(NamedTuple):
    """The sizes of a call; a matrix pose has some rows, all of which meet the same weights."""

    batch: int
    children: int
    parents: int
    types: int
    rows: int
    columns: int
    inner: int
    windows: int
    grid: int  # children of a sample, of which a window sees some

    @property
    def size(self) -> int:
        return self.rows * self.columns


def shape_of(votes: MadeOf) -> Shape:
    samples, windows, children, parents, _ = votes.counts()
    _, grid, d_in = votes.pose.shape
    types = 1 if votes.sharing == "all" else len(votes.weight)
    is_matrix, sizes = votes.kind == "matrix", votes.weight.shape[-2:]
    columns, inner = reversed(sizes) if is_matrix else sizes
    rows = d_in // inner if is_matrix else 1
    return Shape(samples * windows, children, parents, types, rows, columns, inner, windows, grid)


class Blocks(NamedTuple):
    """A tile: samples and parents, and the padded sizes of a pose."""

    lanes: int
    rows: int
    parents: int
    columns: int
    inner: int


def blocks_of(shape: Shape) -> Blocks:
    rows, columns = padded(shape.rows), padded(shape.columns)
    inner = max(LEAST, padded(shape.inner))
    lanes = max(1, LEAST // rows)
    least = max(1, LEAST // columns)
    most = min(TILE // (lanes * rows), WEIGHTS // inner) // columns
    parents = max(least, min(most, padded(shape.parents)))
    return Blocks(lanes, rows, parents, columns, inner)


def shared_out(children: int, tiles: int, least: int) -> tuple[int, int]:
    """Into how many splits children are parted where there are so many tiles, and of what size."""
    splits = max(1, min(-(-PROGRAMS // max(1, tiles)), children // least))
    size = -(-children // splits)
    return -(-children // size), size


class Votes:
    """The arguments that all kernels for one vote map share. Poses are [b, n, d], and poses and
    weights are rounded to `multiplied`."""

    def __init__(self, votes: MadeOf, multiplied: torch.dtype = torch.float32):
        self.pose, self.weight = votes.pose.contiguous(), votes.weight.contiguous()
        self.vote_bias, self.coordinates = (
            None if x is None else x.contiguous() for x in (votes.bias, votes.coordinates)
        )
        self.is_matrix, self.multiplied = votes.kind == "matrix", multiplied
        self.shape = shape_of(votes)
        self.blocks = blocks_of(self.shape)
        self.tiles = -(-self.shape.parents // self.blocks.parents)
        self.lanes = -(-self.shape.batch // self.blocks.lanes)
        self.window, self.child_id = votes.vote_map.window, None
        if self.window is not None:
            self.child_id = self.window.child_id(votes.pose.device).contiguous()

    def empty(self, *sizes: int) -> Tensor:
        return torch.empty(sizes, dtype=torch.float32, device=self.pose.device)

    def parents(self, *lead: int) -> Tensor:
        """[*lead, b, j, d]"""
        return self.empty(*lead, self.shape.batch, self.shape.parents, self.shape.size)

    def by_lane(self, least: int, tiles: int = 1) -> tuple[int, int]:
        """Splits of the children of a sample, and their size, for programs that have some samples
        and one of so many tiles."""
        return shared_out(self.shape.children, self.lanes * tiles, least)

    def by_child(self) -> tuple[int, int]:
        """Splits of the children that share weights, and their size, for programs that have every
        sample."""
        return shared_out(self.shape.children // self.shape.types, self.shape.types, 1)

    def made_of(self) -> tuple[Tensor | None, ...]:
        return self.pose, self.weight, self.vote_bias, self.coordinates, self.child_id

    def sizes(self, children: int | None = None) -> tuple[int, ...]:
        shape = self.shape
        first = (shape.batch, children or shape.children, shape.parents, shape.types)
        return *first, shape.windows, shape.grid

    def run(self, kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
        launch(kernel, programs, self.pose, *arguments, **constants)

    def constants(self, multiplied: torch.dtype | None = None) -> dict[str, Any]:
        # Not before: who has no Triton can import everything else.
        from triton import language

        shape, blocks = self.shape, self.blocks
        by_column, by_inner = (1, shape.columns) if self.is_matrix else (shape.inner, 1)
        rounded = {
            torch.float32: language.float32,
            torch.float16: language.float16,
            torch.bfloat16: language.bfloat16,
        }[multiplied or self.multiplied]
        is_exact = torch.get_float32_matmul_precision() == "highest"
        return {
            "ROWS": shape.rows,
            "COLUMNS": shape.columns,
            "INNER": shape.inner,
            "BB": blocks.lanes,
            "RP": blocks.rows,
            "BJ": blocks.parents,
            "CP": blocks.columns,
            "KP": blocks.inner,
            "BY_COLUMN": by_column,
            "BY_INNER": by_inner,
            "ROUND": rounded,
            # The interpreter would multiply the bits of bfloat16 as if they were whole numbers.
            "DOT": language.float32 if interpreted() else rounded,
            "PRECISION": "ieee" if is_exact else "tf32",
            "num_warps": WARPS,
        }

    def gradients(self, needs: Sequence[bool]) -> list[Tensor | None]:
        """Places for those of pose, weight, vote bias and coordinates, as the programs of
        `by_child` write them."""
        shape, (splits, _) = self.shape, self.by_child()
        sizes = (
            (shape.batch, shape.children, self.pose.shape[-1]),
            (splits, *self.weight.shape),
            (splits * shape.types, shape.parents, shape.size),
            (shape.children, shape.size),
        )
        return [
            self.empty(*size) if need else None for size, need in zip(sizes, needs, strict=True)
        ]

    def gathered(self, written: Sequence[Tensor | None]) -> list[Tensor | None]:
        """What was written there as the tensors lie."""
        of_pose, of_weight, of_vote_bias, of_coordinates = written
        if of_pose is not None and self.window is not None:
            of_pose = _of_children(of_pose.unflatten(0, (-1, self.shape.windows)), self.window)
        if of_weight is not None:
            is_one = len(of_weight) == 1
            of_weight = of_weight.view(self.weight.shape) if is_one else of_weight.sum(0)
        if of_vote_bias is not None:
            of_vote_bias = of_vote_bias.sum(0)
        return [of_pose, of_weight, of_vote_bias, of_coordinates]


def _of_children(of_slots: Tensor, window: Window) -> Tensor:
    """[b, n, d] from [b, p, i, d], in an order that is always the same."""
    (k_h, k_w), (s_h, s_w), (high, wide) = window.kernel, window.stride, window.positions
    batch, *_, size = of_slots.shape
    slots = of_slots.view(batch, high, wide, k_h, k_w, window.child_grid[2], size)
    grid = of_slots.new_zeros(batch, *window.child_grid, size)
    for row in range(k_h):
        for column in range(k_w):
            seen = grid[:, row::s_h, column::s_w][:, :high, :wide]
            seen += slots[:, :, :, row, column]
    return grid.flatten(1, 3)
