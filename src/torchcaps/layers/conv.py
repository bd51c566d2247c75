"""Convolutional capsules: dense routing on every window of the child grid [tsai2020] Tables 6–11.

A parent at (x, y) sees kernel × kernel positions of every child type; the weights belong to
(kernel position, child type, parent type) and are the same for all windows. No padding.
"""

from typing import Any, final

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers.capsule_layer import CapsuleLayer, Pose, check_grid, check_sizes
from torchcaps.layers.routing import Routing
from torchcaps.types import Capsules, Grid, VoteMap, Window


@final
class ConvCapsules(CapsuleLayer):
    """`types` parents of `d_out` components at every window of `child_grid` (height, width, types).

    A child in several windows routes in each of them on its own; with EM routing and
    compete="all" the windows compete for it.

    Arguments:
        child_grid: (height, width, types) of the children.
        d_in: components of a child.
        types: how many types of parents every window has.
        d_out: components of a parent.
        kernel: height and width of a window, one number or two.
        stride: how far apart windows lie, one number or two.
        routing: a name of `ROUTINGS` or a routing object.
        pose: how weights act. "vector": W u. "matrix": poses are square matrices, M W, and d_in is
            d_out.
        vote_bias: whether a learned vector is added to all votes for a type.
        weight_std: the standard deviation that weights are drawn with.

    >>> layer = ConvCapsules(child_grid=(16, 16, 32), d_in=16, types=32, d_out=16, kernel=3,
    ...                      stride=2, pose="matrix", routing="inverted")
    >>> layer.parent_grid
    (7, 7, 32)
    """

    child_grid: Grid
    parent_grid: Grid
    window: Window

    def __init__(
        self,
        *,
        child_grid: Grid,
        d_in: int,
        types: int,
        d_out: int,
        kernel: int | tuple[int, int] = 3,
        stride: int | tuple[int, int] = 1,
        routing: str | Routing = "dynamic",
        pose: Pose = "vector",
        vote_bias: bool = False,
        weight_std: float = 0.1,
    ):
        super().__init__()
        kernel = _pair("kernel", kernel)
        stride = _pair("stride", stride)
        check_sizes("ConvCapsules", d_in=d_in, types=types, d_out=d_out)
        check_grid("ConvCapsules", child_grid)
        height, width, types_in = child_grid
        if kernel[0] > height or kernel[1] > width:
            raise TorchcapsError(
                f"a window of {kernel[0]}×{kernel[1]} does not fit into a child grid of "
                f"{height}×{width}; use a larger image, or a smaller kernel or stride below."
            )
        self.n_in, self.d_in, self.n_out, self.d_out = height * width * types_in, d_in, types, d_out
        self.pose: Pose = pose
        self.child_grid = child_grid
        self.window = Window(child_grid, kernel, stride)
        self.parent_grid = (*self.window.positions, types)
        slots = kernel[0] * kernel[1] * types_in
        self.weight = self.create_weight(slots, n_out=types, std=weight_std)
        self.bind(routing, n_in=slots, n_out=types, vote_bias=vote_bias)

    def vote_map(self, children: Capsules) -> VoteMap:
        return VoteMap(children, self.weight, "none", self.pose, self.vote_bias, window=self.window)

    def extra_repr(self) -> str:
        kernel, stride = self.window.kernel, self.window.stride
        return (
            f"child_grid={self.child_grid}, d_in={self.d_in}, types={self.n_out}, "
            f"d_out={self.d_out}, kernel={kernel}, stride={stride}"
        )


def _pair(name: str, value: Any) -> tuple[int, int]:
    """Give (down, across), whether one number came or two."""
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2:
        raise TorchcapsError(
            f"ConvCapsules needs {name} as a number or (down, across), but got {short(value)}."
        )
    for each in pair:
        check_sizes("ConvCapsules", **{name: each})
    down, across = pair
    return down, across
