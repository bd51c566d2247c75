"""3-D convolutional capsules: the routed layer of DeepCaps [rajasegaran2019]."""

import math
from typing import final, get_args

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError, short
from torchcaps.layers.capsule_layer import check_children, check_grid, check_sizes
from torchcaps.ops.checks import check_dtypes, check_iterations
from torchcaps.ops.routing import Detach, SquashOver, conv3d_routing
from torchcaps.types import Capsules, Couple, Grid, Keep, Routed


@final
class Conv3dCapsules(nn.Module):
    """`types` maps of parents from maps of children, on a grid of the same height and width.

    Votes are one 3-D convolution: its filters `weight` [types * d_out, 1, d_in, kernel, kernel] see
    one child type at a time and are shared by all. A child of the routing is a whole map, so
    couplings are [*b, child type, parent] while the children of a step are the capsules as they
    came: row i of the couplings belongs to all children of type i.

    Arguments:
        child_grid: (height, width, types) of the children, which the parents keep but for the
            types.
        d_in: components of a child.
        types: how many types of parents lie at every position.
        d_out: components of a parent.
        iterations: how often couplings are made, from 1.
        bias: whether every type of parents has a learned vector added before the squash.
        squash_over: whose norm squashes a parent: "map", that of its type over all positions, or
            "pose", its own.
        detach: what is a constant to the gradient: "none", "votes", "states" or "coupling", as in
            `ops.dynamic_routing`.
        kernel: height and width of the filters, an odd number.

    >>> layer = Conv3dCapsules(child_grid=(4, 4, 32), d_in=8, types=32, d_out=8)
    >>> layer(Capsules(torch.rand(2, 512, 8))).parents.pose.shape
    torch.Size([2, 512, 8])
    """

    bias: nn.Parameter | None

    # The axis over which the couplings of a trace sum to one: positions and types together.
    normalised_over = "parents"
    window = None

    def __init__(
        self,
        *,
        child_grid: Grid,
        d_in: int,
        types: int,
        d_out: int,
        iterations: int = 3,
        bias: bool = True,
        squash_over: SquashOver = "map",
        detach: Detach = "none",
        kernel: int = 3,
    ):
        super().__init__()
        check_grid("Conv3dCapsules", child_grid)
        height, width, _ = child_grid
        check_sizes("Conv3dCapsules", d_in=d_in, types=types, d_out=d_out)
        if type(kernel) is not int or kernel < 1 or kernel % 2 == 0:
            raise TorchcapsError(
                f"Conv3dCapsules needs an odd kernel, which has a middle to lay on every position, "
                f"but got {short(kernel)}."
            )
        check_iterations(iterations)
        check_choice("squash_over", squash_over, get_args(SquashOver))
        self.child_grid: Grid = child_grid
        self.parent_grid: Grid = (height, width, types)
        self.n_in, self.n_out = math.prod(child_grid), math.prod(self.parent_grid)
        self.d_in, self.d_out = d_in, d_out
        self.iterations = iterations
        check_choice("detach", detach, get_args(Detach))
        self.squash_over: SquashOver = squash_over
        self.detach: Detach = detach
        self.weight = nn.Parameter(torch.empty(types * d_out, 1, d_in, kernel, kernel))
        nn.init.kaiming_normal_(self.weight)
        self.register_parameter("bias", None)
        if bias:
            self.bias = nn.Parameter(torch.full((types, d_out), 0.1))

    def votes(self, children: Capsules) -> Tensor:
        """Give votes [*b, child type, parent, d] of poses [*b, h * w * type, d]."""
        check_children(children, self.n_in, self.d_in)
        check_dtypes(children.pose, self.weight)
        *lead, _, _ = children.pose.shape
        types_in, types = self.child_grid[-1], self.parent_grid[-1]
        maps = children.pose.reshape(-1, *self.child_grid, self.d_in)
        maps = maps.permute(0, 3, 4, 1, 2)  # [b, type, d, h, w]
        middle = self.weight.shape[-1] // 2
        if torch.is_grad_enabled():
            # The kernel steps from type to type, so each is an image for itself; on a CPU the
            # gradient takes half as long that way, a prediction of small maps does not.
            made = nn.functional.conv2d(maps.flatten(0, 1), self.weight.squeeze(1), padding=middle)
            votes = torch.unflatten(made, 0, maps.shape[:2])
        else:
            stacked = maps.flatten(1, 2).unsqueeze(1)
            made = nn.functional.conv3d(
                stacked, self.weight, stride=(self.d_in, 1, 1), padding=(0, middle, middle)
            )
            votes = made.transpose(1, 2)
        # [b, types_in, types * d_out, h, w]
        votes = torch.unflatten(votes, 2, (types, self.d_out)).permute(0, 1, 4, 5, 2, 3)
        return votes.reshape(*lead, types_in, self.n_out, self.d_out)

    def forward(
        self, children: Capsules, *, keep: Keep = "none", couple: Couple | None = None
    ) -> Routed:
        routed = conv3d_routing(
            self.votes(children),
            parent_grid=self.parent_grid,
            iterations=self.iterations,
            bias=self.bias,
            squash_over=self.squash_over,
            detach=self.detach,
            keep=keep,
            couple=couple,
        )
        steps = tuple(step._replace(children=children) for step in routed.steps)
        return routed._replace(steps=steps)

    def extra_repr(self) -> str:
        return (
            f"child_grid={self.child_grid}, d_in={self.d_in}, parent_grid={self.parent_grid}, "
            f"d_out={self.d_out}"
        )
