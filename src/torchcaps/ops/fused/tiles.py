"""Votes a tile at a time: a tile is made, used and forgotten, and made again when it is needed.

    û_ij = W_ij u_i + bias_j + x_i      as in `ops.votes`, for a few children i and lanes b at once

A lane is a sample, or a sample seen through one window. Lanes lie next to each other in memory, so
sums over children, softmax over parents and dot products of poses all run along them. A tile of
votes is [t, j, d, p, b]: t types of children, each with weights of its own, at p positions that
share them. Where nobody shares, every child is a type at one position; where all share, there is
one type. Matrix poses are r rows of k components that meet the same weights: [r, k] outside a tile,
[k, r] inside it.

A tile has at most TILE_BYTES, unless one vote has more: two or three of them fit into the cache of
a core, and memory that is used again costs no page faults.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from torchcaps.ops.checks import check_broadcast, check_device, check_tensor, widen
from torchcaps.ops.tracing import check_derivatives
from torchcaps.ops.votes import _per_type
from torchcaps.types import Capsules, VoteMap, Window

TILE_BYTES = 2 << 20
# Lanes are cut first, where a tile of all of them would hold fewer children than this.
CHILDREN = 4
# So many parents are summed in one line without a loss.
FEW_PARENTS = 32


class Lanes(NamedTuple):
    """Some windows of some samples; without a window there is one."""

    windows: slice
    batch: slice

    def of(self, values: Tensor) -> Tensor:
        """Give their part of values [window, batch, …], a view; axes of size one stand for all
        lanes."""
        windows, batch = (
            part if size > 1 else slice(None)
            for part, size in zip(self, values.shape[:2], strict=True)
        )
        return values[windows, batch]


class Tile(NamedTuple):
    """Some children of some lanes."""

    types: slice
    positions: slice
    lanes: Lanes


class Counts(NamedTuple):
    """Sizes of the votes of a vote map, in the order of their axes."""

    samples: int
    windows: int
    children: int
    parents: int
    size: int


class MadeOf(NamedTuple):
    """A vote map as an operator takes it (`ops.operators`), without the activations of children."""

    pose: Tensor
    weight: Tensor
    bias: Tensor | None  # [j, d]
    coordinates: Tensor | None  # [i, d]
    sharing: str
    kind: str
    # The numbers of a `Window` one after the other; without a window there are none.
    window: Sequence[int]
    # Votes are made in this precision.
    dtype: torch.dtype

    @property
    def vote_map(self) -> VoteMap:
        """The vote map again: the dispatcher knows no tuples."""
        window = None
        if self.window:
            height, width, types, *rest = self.window
            window = Window((height, width, types), (rest[0], rest[1]), (rest[2], rest[3]))
        children, sharing, kind = Capsules(self.pose), cast(Any, self.sharing), cast(Any, self.kind)
        return VoteMap(children, self.weight, sharing, kind, self.bias, window, self.coordinates)

    def in_one_batch(self) -> "MadeOf":
        """Lay samples along one axis."""
        pose = self.pose
        return self._replace(pose=pose.reshape(math.prod(pose.shape[:-2]), *pose.shape[-2:]))

    def widened(self) -> "MadeOf":
        """Convert children and weights to the precision of votes."""
        return self._replace(pose=self.pose.to(self.dtype), weight=self.weight.to(self.dtype))

    def counts(self) -> Counts:
        return counts_of(self.vote_map)


def counts_of(vote_map: VoteMap) -> Counts:
    """Count the sizes of the votes, which need not be possible."""
    pose, window = vote_map.children.pose, vote_map.window
    children, windows = pose.shape[-2], 1
    if window is not None:
        children = math.prod(window.kernel) * window.child_grid[-1]
        windows = math.prod(window.positions)
    size = pose.shape[-1] if vote_map.pose == "matrix" else vote_map.weight.shape[-2]
    samples, parents = math.prod(pose.shape[:-2]), vote_map.weight.shape[-3]
    return Counts(samples, windows, children, parents, size)


def made_of(vote_map: VoteMap, votes: Tensor) -> MadeOf:
    """Make what an operator is given of a vote map with votes like these."""
    n_in, n_out, size = votes.shape[-3:]
    # Of one number: `votes` stands for more than there is memory.
    dtype = widen(votes.new_empty(())).dtype
    bias, coordinates, window = vote_map.bias, vote_map.coordinates, vote_map.window
    return MadeOf(
        vote_map.children.pose,
        vote_map.weight,
        None if bias is None else bias.to(dtype).expand(n_out, size),
        None if coordinates is None else coordinates.to(dtype).expand(n_in, size),
        vote_map.sharing,
        vote_map.pose,
        [] if window is None else [*window.child_grid, *window.kernel, *window.stride],
        dtype,
    )


def vote_like(vote_map: VoteMap) -> Tensor:
    """Make a tensor of one number with the shape and dtype that the votes would have. What
    `materialise` refuses is refused in the same words; derivatives that no form without votes has
    are too."""
    check_derivatives()
    pose, weight = vote_map.children.pose, vote_map.weight
    check_tensor("pose", pose)
    seen, _ = _per_type(vote_map._replace(children=Capsules(_few(vote_map))))
    *_, positions, types, size = seen.shape
    n_in, n_out = positions * types, weight.shape[-3]
    if vote_map.pose == "vector":
        size = weight.shape[-2]
    lead = [*pose.shape[:-2]]
    if vote_map.window is not None:
        lead.append(math.prod(vote_map.window.positions))
    if vote_map.bias is not None:
        check_broadcast("bias", vote_map.bias, (n_out, size), "[parent, pose]")
    if vote_map.coordinates is not None:
        check_broadcast("coordinates", vote_map.coordinates, (n_in, size), "[child, pose]")
    check_device(pose, bias=vote_map.bias, coordinates=vote_map.coordinates)
    return pose.new_empty((), dtype=vote_dtype(vote_map)).expand(*lead, n_in, n_out, size)


def vote_dtype(vote_map: VoteMap) -> torch.dtype:
    """Return the dtype that the votes would have."""
    pose = vote_map.children.pose
    dtype, kind = pose.dtype, pose.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        dtype = dtype if dtype == torch.float64 else torch.get_autocast_dtype(kind)
    for moved_by in (vote_map.bias, vote_map.coordinates):
        if moved_by is not None:
            dtype = torch.promote_types(dtype, moved_by.dtype)
    return dtype


def _few(vote_map: VoteMap) -> Tensor:
    """Take children enough for a check of sizes: looking through windows copies what they see."""
    pose = vote_map.children.pose
    return pose if vote_map.window is None else pose.flatten(0, -3)[:1] if pose.ndim > 2 else pose


class TiledVotes:
    """Makes the votes of a vote map in `dtype`, a tile at a time.

    Parents are [j, d, b] in a tile and [window, batch, j, d] outside.
    """

    def __init__(self, vote_map: VoteMap, dtype: torch.dtype):
        pose, self.weight = vote_map.children.pose, vote_map.weight
        if vote_map.sharing == "all":
            self.weight = self.weight.unsqueeze(0)
        self.dtype, self.is_matrix = dtype, vote_map.pose == "matrix"
        *lead, self.n_children, self.d_in = pose.shape
        self.n_batch = math.prod(lead)
        self.types, self.n_out, rows, columns = self.weight.shape
        self.rows = rows if self.is_matrix else 1
        self.k, self.columns = (rows, columns) if self.is_matrix else (columns, rows)
        self.d_out = self.rows * self.columns
        self.window, self.n_windows, self.n_in = vote_map.window, 1, self.n_children
        if self.window is not None:
            # [window, slot]: which child lies there
            self.child_id = self.window.child_id(pose.device)
            self.n_windows, self.n_in = self.child_id.shape
        self.positions = self.n_in // self.types
        # [child, d, batch]
        flat = pose.reshape(self.n_batch, self.n_children * self.d_in).to(dtype)
        self.children = flat.t().contiguous().view(self.n_children, self.d_in, self.n_batch)
        self._scratch: dict[str, Tensor] = {}
        self.bias, self.coordinates = None, None
        if vote_map.bias is not None:
            wide = vote_map.bias.to(dtype).expand(self.n_out, self.d_out)
            self.bias = self._turned(wide).unsqueeze(-1).unsqueeze(-1)  # [j, d, 1, 1]
        if vote_map.coordinates is not None:
            wide = vote_map.coordinates.to(dtype).expand(self.n_in, self.d_out)
            lying = self._turned(wide).view(self.positions, self.types, 1, self.d_out, 1)
            self.coordinates = lying.permute(1, 2, 3, 0, 4)  # [t, 1, d, p, 1]

    def lanes(self) -> Iterator[Lanes]:
        """Give all lanes, in parts that let a tile hold some children."""
        most = max(1, TILE_BYTES // (CHILDREN * self._pair_bytes))
        in_batch = min(self.n_batch, most)
        for windows in _parts(self.n_windows, max(1, most // max(1, in_batch))):
            for batch in _parts(self.n_batch, in_batch):
                yield Lanes(windows, batch)

    def tiles(self, lanes: Lanes) -> Iterator[Tile]:
        """Give all children, for these lanes."""
        return self._tiles(lanes, self._pair_bytes * self.count(lanes))

    def wide_tiles(self, lanes: Lanes) -> Iterator[Tile]:
        """Return tiles where no votes are made: as many bytes of children and weights."""
        child_bytes = self.d_in * self.count(lanes) * self.dtype.itemsize
        weight_bytes = self.n_out * self.k * self.columns * self.dtype.itemsize
        return self._tiles(lanes, max(child_bytes, weight_bytes))

    def _tiles(self, lanes: Lanes, bytes_a_child: int) -> Iterator[Tile]:
        most = max(1, TILE_BYTES // bytes_a_child)
        for types in _parts(self.types, max(1, most // self.positions)):
            for positions in _parts(self.positions, most):
                yield Tile(types, positions, lanes)

    def count(self, lanes: Lanes) -> int:
        return size_of(lanes.windows) * size_of(lanes.batch)

    def seen(self, tile: Tile) -> Tensor:
        """Return the children of a tile, [t, k, r, p, b]."""
        types, positions, (_, batch) = tile
        if self.window is None:
            grid = self.children.view(1, self.positions, self.types, *self._inner)
            part = grid[:, positions, types, ..., batch]
        else:
            part = self.children[..., batch].index_select(0, self._ids(tile).flatten())
            part = part.view(*self._ids(tile).shape, *part.shape[1:-1], part.shape[-1])
            part = torch.unflatten(part, -2, (self.rows, self.k))
        # [window, p, t, r, k, batch]
        return part.permute(2, 4, 3, 1, 0, 5).flatten(-2)

    def votes(self, tile: Tile, seen: Tensor) -> Tensor:
        """Return the votes of a tile, [t, j, d, p, b], in memory that the next tile uses again."""
        weight, places = self._matrices(tile), seen.shape[-2:]
        votes = self.scratch("votes", len(weight), self.n_out, self.d_out, *places)
        torch.bmm(weight, seen.flatten(2), out=votes.view(*weight.shape[:2], -1))
        if self.bias is not None:
            votes += self.bias
        if self.coordinates is not None:
            votes += self.coordinates[tile.types, ..., tile.positions, :]
        return votes

    def total(self, lanes: Lanes) -> Tensor:
        """Return Σ_i û_ij as [j, d, b]: children that share weights are summed first, then one
        product."""
        total = self.parents(lanes)
        flat = total.view(self.n_out * self.columns, -1)
        for tile in self.wide_tiles(lanes):
            seen = self.seen(tile).sum(-2)  # [t, k, r, b]
            if tile.positions.start == 0:
                weight = self._matrices(tile).transpose(0, 1).flatten(1)  # [j d, t k]
            flat.addmm_(weight, seen.view(weight.shape[1], -1))
        if self.bias is not None:
            total += self.n_in * self.bias.squeeze(-1)
        if self.coordinates is not None:
            total += self.coordinates.sum((0, 3))
        return total

    def along(self, votes: Tensor, parents: Tensor) -> Tensor:
        """Return ⟨û_ij, x_j⟩ as [t, j, p, b] of the votes of a tile and parents [j, d, b]."""
        return self.times(votes, parents.unsqueeze(-2)).sum(2)

    def times(self, votes: Tensor, other: Tensor) -> Tensor:
        """Multiply the votes of a tile by numbers, in memory that the next product uses again: new
        memory of that size costs more than the product."""
        return torch.mul(votes, other, out=self.scratch("product", *votes.shape))

    def scratch(self, name: str, *shape: int) -> Tensor:
        """Return memory that the next tile uses again."""
        size = math.prod(shape)
        known = self._scratch.get(name)
        if known is None or known.numel() < size:
            known = self._scratch[name] = self.children.new_empty(size)
        return known[:size].view(shape)

    def parents(self, lanes: Lanes) -> Tensor:
        """Return zeros [j, d, b]."""
        return self.children.new_zeros(self.n_out, self.d_out, self.count(lanes))

    def to_lanes(self, pose: Tensor) -> Tensor:
        """Lay parents [window, batch, j, d] as [j, d, b]."""
        return self._turned(pose.flatten(0, 1)).movedim(0, -1).contiguous()

    def from_lanes(self, parents: Tensor, lanes: Lanes) -> Tensor:
        """Lay parents [j, d, b] as [window, batch, j, d]."""
        pose = self.turned_back(parents.movedim(-1, 0))
        return torch.unflatten(pose, 0, (size_of(lanes.windows), size_of(lanes.batch)))

    def of_couplings(self, values: Tensor, tile: Tile) -> Tensor:
        """View the part [t, j, p, window, batch] that a tile has of values [window, batch, i, j];
        axes of size one stand for all lanes."""
        grid = torch.unflatten(tile.lanes.of(values), 2, (self.positions, self.types))
        return grid[:, :, tile.positions, tile.types].permute(3, 4, 2, 0, 1)

    def couplings_shape(self, tile: Tile) -> tuple[int, ...]:
        """Return the shape [t, j, p, b]."""
        return size_of(tile.types), self.n_out, size_of(tile.positions), self.count(tile.lanes)

    def by_lane(self, coupling: Tensor, lanes: Lanes) -> Tensor:
        """View [t, j, p, b] as [t, j, p, window, batch]."""
        return torch.unflatten(coupling, -1, (size_of(lanes.windows), size_of(lanes.batch)))

    @property
    def _pair_bytes(self) -> int:
        """Count the bytes of one child and lane, to all parents."""
        return self.n_out * self.d_out * self.dtype.itemsize

    @property
    def _inner(self) -> tuple[int, int, int]:
        return self.rows, self.k, self.n_batch

    def _ids(self, tile: Tile) -> Tensor:
        """Give [window, p, t]"""
        grid = self.child_id.view(self.n_windows, self.positions, self.types)
        return grid[tile.lanes.windows, tile.positions, tile.types]

    def _matrices(self, tile: Tile) -> Tensor:
        """Give [t, j columns, k]"""
        weight = self.weight[tile.types].to(self.dtype)
        return (weight.transpose(-1, -2) if self.is_matrix else weight).flatten(1, 2)

    def _turned(self, pose: Tensor) -> Tensor:
        """Turn the last axis from the order (row, column) to (column, row)."""
        grid = torch.unflatten(pose, -1, (self.rows, self.columns))
        return grid.transpose(-1, -2).flatten(-2)

    def turned_back(self, pose: Tensor) -> Tensor:
        grid = torch.unflatten(pose, -1, (self.columns, self.rows))
        return grid.transpose(-1, -2).flatten(-2)


class VoteGradients:
    """Sums up gradients of what votes are made of, tile by tile from gradients of votes."""

    def __init__(self, tiled: TiledVotes, pose: bool, weight: bool, bias: bool, coordinates: bool):
        self.tiled = tiled
        children = tiled.children
        self.pose = torch.zeros_like(children) if pose else None
        # Products write this order faster than that of the weights.
        turned = (tiled.types, tiled.k, tiled.n_out * tiled.columns)
        self.weight = children.new_zeros(turned) if weight else None
        self.bias = children.new_zeros(tiled.n_out, tiled.d_out) if bias else None
        grid = (tiled.positions, tiled.types, tiled.d_out)
        self.coordinates = children.new_zeros(grid) if coordinates else None
        self.any = pose or weight or bias or coordinates

    def add(self, tile: Tile, seen: Tensor, gradient: Tensor) -> None:
        """Add the gradients of votes [t, j, d, p, b] made of children [t, k, r, p, b]."""
        flat = gradient.view(gradient.shape[0], self.tiled.n_out * self.tiled.columns, -1)
        if self.weight is not None:
            self._add_weight(tile, flat, seen.flatten(2))
        if self.pose is not None:
            weight = self.tiled._matrices(tile)
            self.add_pose(tile, torch.bmm(weight.transpose(1, 2), flat).view(seen.shape))
        if self.bias is not None:
            self.bias += gradient.sum((0, 3, 4))
        if self.coordinates is not None:
            part = gradient.sum((1, 4)).permute(2, 0, 1)
            self.coordinates[tile.positions, tile.types] += part

    def add_to_total(self, lanes: Lanes, gradient: Tensor) -> None:
        """Add the gradient of Σ_i û_ij, [j, d, b]."""
        flat = gradient.view(1, self.tiled.n_out * self.tiled.columns, -1)
        for tile in self.tiled.wide_tiles(lanes):
            seen = self.tiled.seen(tile)  # [t, k, r, p, b]
            every = flat.expand(seen.shape[0], -1, -1)
            if self.weight is not None:
                self._add_weight(tile, every, seen.sum(-2).flatten(2))
            if self.pose is not None:
                weight = self.tiled._matrices(tile)
                same = torch.bmm(weight.transpose(1, 2), every)
                same = same.view(*seen.shape[:3], 1, seen.shape[-1])
                self.add_pose(tile, same.expand(seen.shape))
        if self.bias is not None:
            self.bias += self.tiled.n_in * gradient.sum(-1)
        if self.coordinates is not None:
            self.coordinates += gradient.sum((0, 2))

    def of(self, vote_map: VoteMap) -> list[Tensor | None]:
        """Give gradients as pose, weight, bias and coordinates lie, not rounded: others may be
        added."""
        pose, weight, bias, coordinates = self.pose, self.weight, self.bias, self.coordinates
        if pose is not None:
            # Turned as a matrix: torch is slower by far with more axes.
            pose = pose.flatten(0, 1).t().contiguous().view(vote_map.children.pose.shape)
        if weight is not None:
            weight = self._laid_back(weight).view(vote_map.weight.shape)
        if bias is not None:
            bias = self.tiled.turned_back(bias)
        if coordinates is not None:
            coordinates = self.tiled.turned_back(coordinates).flatten(0, 1)
        return [pose, weight, bias, coordinates]

    def _add_weight(self, tile: Tile, gradient: Tensor, seen: Tensor) -> None:
        """Add the gradient of weights, of votes [t, j columns, b] made of children [t, k, b]."""
        assert self.weight is not None
        self.weight[tile.types].baddbmm_(seen, gradient.transpose(1, 2))

    def _laid_back(self, turned: Tensor) -> Tensor:
        """Lay [t, k, j columns] as the weights lie. In place: a type has the same block in both."""
        tiled = self.tiled
        laid = turned.view(tiled.weight.shape)
        for types in _parts(tiled.types, max(1, TILE_BYTES // turned[0].nbytes)):
            block = torch.unflatten(turned[types].clone(), -1, (tiled.n_out, tiled.columns))
            laid[types] = block.permute((0, 2, 1, 3) if tiled.is_matrix else (0, 2, 3, 1))
        return laid

    def add_pose(self, tile: Tile, gradient: Tensor) -> None:
        """Add the gradient of children [t, k, r, p, b]."""
        assert self.pose is not None
        types, positions, (windows, batch) = tile
        parts = torch.unflatten(gradient, -1, (size_of(windows), size_of(batch)))
        parts = parts.permute(4, 3, 0, 2, 1, 5)  # [window, p, t, r, k, batch]
        if self.tiled.window is None:
            grid = self.pose.view(self.tiled.positions, self.tiled.types, *self.tiled._inner)
            grid[positions, types, ..., batch] += parts[0]
        else:
            ids = self.tiled._ids(tile).flatten()
            self.pose[..., batch].index_add_(0, ids, parts.flatten(3, 4).flatten(0, 2))


def softmax_over_parents(logits: Tensor) -> Tensor:
    """Return the softmax of logits [t, j, p, b] over parents. PyTorch adds up along such an axis in
    one line, where many parents lose digits; `sum` does so in blocks, and divides once more."""
    c = logits.softmax(1)
    return c if c.shape[1] <= FEW_PARENTS else c.div_(c.sum(1, keepdim=True))


def _parts(count: int, most: int) -> Iterator[slice]:
    """Cut 0 … count into parts of nearly equal size, none larger than `most`."""
    parts = math.ceil(count / most) if count else 0
    for n in range(parts):
        yield slice(count * n // parts, count * (n + 1) // parts)


def size_of(part: slice) -> int:
    return int(part.stop - part.start)
