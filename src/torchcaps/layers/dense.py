"""Dense capsules: every child votes for every parent [renzulli2025] §2.1."""

import inspect
from typing import Any, Literal, Self, final

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice, check_shape
from torchcaps.errors import TorchcapsError
from torchcaps.layers.after import check_names, children_after
from torchcaps.layers.capsule_layer import CapsuleLayer, Pose, check_grid, check_sizes
from torchcaps.layers.routing import Routing
from torchcaps.types import Capsules, Grid, VoteMap

# Which children have one matrix for a parent: each its own, those of one type, all of them.
Sharing = Literal["none", "type", "all"]


@final
class DenseCapsules(CapsuleLayer):
    """`n_out` parents of `d_out` components from `n_in` children of `d_in`.

    Arguments:
        n_in: how many children there are.
        d_in: components of a child.
        n_out: how many parents there are.
        d_out: components of a parent.
        routing: a name of `ROUTINGS` or a routing object.
        pose: how weights act. "vector": W u. "matrix": poses are square matrices, M W, and d_in is
            d_out.
        sharing: which children share matrices. "none": each has its own. "type": those of one type,
            for which `child_grid` is needed. "all": all of them.
        child_grid: (height, width, types), where the children lie; None: nowhere.
        coordinates: what is added to the votes, because with shared matrices a parent cannot know
            where its children are [hinton2018]. False: nothing. True: row and column as shares of
            the grid. A tensor [n_in, d_out]: as it is, for networks that count otherwise.
        vote_bias: whether a learned vector is added to all votes for a parent.
        weight_std: the standard deviation that weights are drawn with. It decides whether stacked
            layers learn at all: squashed lengths must neither vanish nor saturate layer after
            layer. 0.1, the custom for one layer, silences five of them.

    >>> layer = DenseCapsules(n_in=1152, d_in=8, n_out=10, d_out=16)
    >>> layer(Capsules(torch.rand(2, 1152, 8))).parents.pose.shape
    torch.Size([2, 10, 16])
    """

    own_coordinates: Tensor | None

    def __init__(
        self,
        *,
        n_in: int,
        d_in: int,
        n_out: int,
        d_out: int,
        routing: str | Routing = "dynamic",
        pose: Pose = "vector",
        sharing: Sharing = "none",
        child_grid: Grid | None = None,
        coordinates: bool | Tensor = False,
        vote_bias: bool = False,
        weight_std: float = 0.1,
    ):
        super().__init__()
        check_sizes("DenseCapsules", n_in=n_in, d_in=d_in, n_out=n_out, d_out=d_out)
        check_choice("sharing", sharing, ("none", "type", "all"))
        self.n_in, self.d_in, self.n_out, self.d_out = n_in, d_in, n_out, d_out
        self.pose: Pose = pose
        self.sharing: Sharing = sharing
        self.child_grid = child_grid
        self.coordinates = coordinates is True
        own = _own(coordinates, (n_in, d_out))
        self.register_buffer("own_coordinates", None if own is None else own.detach().clone())
        if child_grid is not None:
            check_grid("DenseCapsules", child_grid)
        if self.coordinates and d_out < (4 if pose == "matrix" else 2):
            raise TorchcapsError(
                f"coordinates fill two components of a vote, so poses need at least "
                f"{4 if pose == 'matrix' else 2}, but d_out is {d_out}."
            )
        height, width, types = self._grid(needed=self.coordinates or sharing == "type")
        if height * width * types != n_in:
            raise TorchcapsError(
                f"child_grid {child_grid} holds {height * width * types} children, but n_in is "
                f"{n_in}."
            )
        kinds = {"none": (n_in,), "type": (types,), "all": ()}[sharing]
        self.weight = self.create_weight(*kinds, n_out=n_out, std=weight_std)
        self.bind(routing, n_in=n_in, n_out=n_out, vote_bias=vote_bias)

    @classmethod
    def after(
        cls,
        *below: nn.Module,
        n_out: int,
        d_out: int,
        image: tuple[int, int, int] | None = None,
        **options: Any,
    ) -> Self:
        """Give the layer that fits what lies below it: its `n_in`, `d_in` and `child_grid` are
        found.

        Arguments:
            below: a capsule layer; or a backbone and its primary capsules, in their order.
            n_out: how many parents there are.
            d_out: components of a parent.
            image: (channels, height, width), which primary capsules need and capsule layers do not.
            options: whatever else the layer takes.

        >>> primary = PrimaryCapsules(nn.Conv2d(3, 32, 9, stride=2), d_out=8)
        >>> hidden = DenseCapsules.after(primary, image=(3, 24, 32), n_out=16, d_out=8)
        >>> classes = DenseCapsules.after(hidden, n_out=7, d_out=16)
        >>> hidden.n_in, classes.n_in
        (384, 16)
        """
        found = children_after(below, image)
        known = {"image", *inspect.signature(cls).parameters} - found.keys()
        check_names("DenseCapsules.after", options, known)
        return cls(**found, n_out=n_out, d_out=d_out, **options)

    def vote_map(self, children: Capsules) -> VoteMap:
        where = self.own_coordinates
        if self.coordinates:
            where = self._coordinates(children.pose)
        return VoteMap(
            children, self.weight, self.sharing, self.pose, self.vote_bias, coordinates=where
        )

    def _grid(self, *, needed: bool) -> Grid:
        if self.child_grid is None and needed:
            raise TorchcapsError(
                'DenseCapsules needs child_grid=(height, width, types) for sharing="type" and for '
                "coordinates, to know where its children lie."
            )
        return self.child_grid or (1, 1, self.n_in)

    def _coordinates(self, like: Tensor) -> Tensor:
        """Give row and column of every child as shares of the grid, [i, d], all else zero.

        In matrix poses they go to the first two rows of the right-hand column, the translation of
        an affine map; in vector poses to the first two components.
        """
        height, width, types = self._grid(needed=True)
        rows = (torch.arange(height, dtype=like.dtype, device=like.device) + 0.5) / height
        columns = (torch.arange(width, dtype=like.dtype, device=like.device) + 0.5) / width
        side = self.weight.shape[-1]
        first, second = (side - 1, 2 * side - 1) if self.pose == "matrix" else (0, 1)
        where = like.new_zeros(height, width, types, self.d_out)
        where[..., first] = rows.view(-1, 1, 1)
        where[..., second] = columns.view(-1, 1)
        return where.flatten(0, 2)

    def extra_repr(self) -> str:
        return f"n_in={self.n_in}, d_in={self.d_in}, n_out={self.n_out}, d_out={self.d_out}"


def _own(coordinates: bool | Tensor, shape: tuple[int, int]) -> Tensor | None:
    """Check coordinates that somebody gives; None where there are none, or those of the grid."""
    if isinstance(coordinates, bool):
        return None
    so = "they are added to the votes of each child; True takes those of the grid"
    check_shape("coordinates", coordinates, shape, so)
    return coordinates
