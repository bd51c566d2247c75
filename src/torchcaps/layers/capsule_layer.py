"""What dense and convolutional capsule layers share: votes, then routing."""

import math
import warnings
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice, check_number, check_shape
from torchcaps.errors import TorchcapsError, short
from torchcaps.layers.hooks import has_hooks, stepped
from torchcaps.layers.routing import Routing, as_routing
from torchcaps.layers.routing.base import couple_for
from torchcaps.ops.checks import check_tensor
from torchcaps.ops.votes import materialise
from torchcaps.types import Capsules, Couple, Grid, Keep, Routed, Step, VoteMap, Window

Pose = Literal["vector", "matrix"]
# Four terabytes in float32; torch says nothing of use where it cannot even count the bytes.
MOST_WEIGHTS = 2**40


class CapsuleLayer(nn.Module, ABC):
    """A layer owns the weights between children and votes, and a routing.

    A final class says how its children lie and makes `weight` with `create_weight`.
    """

    n_in: int  # all children
    d_in: int
    n_out: int  # the parents of one window
    d_out: int
    child_grid: Grid | None = None
    parent_grid: Grid | None = None
    window: Window | None = None
    pose: Pose
    weight: nn.Parameter
    vote_bias: nn.Parameter | None

    @abstractmethod
    def vote_map(self, children: Capsules) -> VoteMap:
        """Give everything between these children and their votes."""

    @final
    def bind(self, routing: str | Routing, *, n_in: int, n_out: int, vote_bias: bool) -> None:
        """Take a routing and tell it how many children one parent sees, and how many compete."""
        self.routing: Routing = as_routing(routing)
        sizes = {"n_in": n_in, "n_out": n_out, "d_in": self.d_in, "d_out": self.d_out}
        self.routing.bind(**sizes, window=self.window)
        # [peer2022] §4.2; 0.1 is the value of public code.
        bias = nn.Parameter(torch.full((n_out, self.d_out), 0.1)) if vote_bias else None
        self.register_parameter("vote_bias", bias)

    @final
    def create_weight(self, *shared: int, n_out: int, std: float) -> nn.Parameter:
        """Draw normal weights of one matrix for each of the `shared` kinds of children and
        parent."""
        check_number("weight_std", std)
        check_choice("pose", self.pose, ("vector", "matrix"))
        matrix = (self.d_out, self.d_in)
        if self.pose == "matrix":
            side = math.isqrt(self.d_in)
            if self.d_in != self.d_out or side**2 != self.d_in:
                raise TorchcapsError(
                    f"matrix poses are square and keep their size, but came with d_in={self.d_in} "
                    f'and d_out={self.d_out}; use 4, 9, 16, … for both, or pose="vector".'
                )
            matrix = (side, side)
        # Weights on the meta device hold nothing, and drawing them there would import sympy.
        is_meta = torch.get_default_device().type == "meta"
        if not is_meta and math.prod((*shared, n_out, *matrix)) > MOST_WEIGHTS:
            raise TorchcapsError(
                f"{type(self).__name__} of {short(list(shared))} × {short(n_out)} matrices "
                f"{short(list(matrix))} would have more weights than any machine holds; choose "
                f"fewer or smaller capsules."
            )
        weight = torch.empty(*shared, n_out, *matrix)
        return nn.Parameter(weight if is_meta else weight.normal_().mul_(std))

    def forward(
        self, children: Capsules, *, keep: Keep = "none", couple: Couple | None = None
    ) -> Routed:
        """Route. `couple` is a function on the couplings of the last iteration, [*b, i, j], or
        [*b, p, i, j] through windows, by whose result the parents are made and which `keep`
        records."""
        routed = self.routing.route(
            self._map(children), self._activation(children), keep=keep, couple=couple
        )
        if self.window is None and not routed.steps:
            return routed
        steps = tuple(
            step._replace(children=children, parents=self._flat(step.parents))
            for step in routed.steps
        )
        return routed._replace(parents=self._flat(routed.parents), steps=steps)

    @final
    def votes(self, children: Capsules) -> Tensor | VoteMap:
        """Give what `step` goes by: [*b, i, j, d], or [*b, p, i, j, d] through windows, or the map
        of votes that are better not stored."""
        vote_map = self._map(children)
        return vote_map if self.routing.fuses(vote_map) else materialise(vote_map)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        kept = self.routing.state_dict(prefix=f"{prefix}routing.")
        own = {f"{prefix}routing.{name}" for name, _ in self.routing.named_buffers()} & set(kept)
        missing = sorted(own - set(state_dict))
        # A state of other parts of the network is meant to lack the whole layer. With strict=True
        # torch refuses after this warning; with strict=False it would be silent.
        if missing and f"{prefix}weight" in state_dict:
            warnings.warn(
                f"the loaded weights have no {', '.join(missing)}, buffers that evaluation goes "
                f"by, so predictions will be far off; load a whole state_dict(), or train for some "
                f"steps before evaluating.",
                stacklevel=2,
            )

    def _map(self, children: Capsules) -> VoteMap:
        check_children(children, self.n_in, self.d_in)
        return self.vote_map(children)

    @final
    def step(
        self,
        children: Capsules,
        parents: Capsules | None,
        *,
        votes: Tensor | VoteMap | None = None,
        keep: Keep = "none",
        couple: Couple | None = None,
    ) -> Step:
        """Take one iteration from the present parents, or the first one; `votes` when they are
        known. A step that nobody keeps may come without its coupling."""
        votes = self.votes(children) if votes is None else votes
        if parents is not None:
            pose, activation = parents
            if self.window is not None:
                grid = (math.prod(self.window.positions), -1)
                pose = torch.unflatten(pose, -2, grid)
                activation = None if activation is None else torch.unflatten(activation, -1, grid)
            parents = Capsules(pose, activation)
        if isinstance(votes, VoteMap):
            asked = couple_for(self.routing.fused_step, couple)
            step = self.routing.fused_step(votes, parents, keep=keep, **asked)
        else:
            step = self._step(votes, self._activation(children), parents, keep, couple)
        return step._replace(children=children, parents=self._flat(step.parents))

    def _step(
        self,
        votes: Tensor,
        activation: Tensor | None,
        parents: Capsules | None,
        keep: Keep,
        couple: Couple | None,
    ) -> Step:
        """Take one step of the routing, which is a call of it where somebody put a hook on it."""
        # No function within this one: what its parameters are annotated with is no part of a graph.
        step = partial(self._step_of_routing, parents)
        if has_hooks(self.routing):
            return stepped(self.routing, step, votes, activation, keep=keep, couple=couple)
        return step(votes, activation, couple=couple)

    def _step_of_routing(
        self,
        parents: Capsules | None,
        votes: Tensor,
        activation: Tensor | None,
        *,
        couple: Couple | None,
        **_: Any,
    ) -> Step:
        asked = couple_for(self.routing.step, couple)
        return self.routing.step(votes, activation, parents, **asked)

    def _activation(self, children: Capsules) -> Tensor | None:
        if children.activation is None or self.window is None:
            return children.activation
        return self.window.of(children.activation.unsqueeze(-1)).squeeze(-1)

    def _flat(self, parents: Capsules) -> Capsules:
        """Lay windows one after the other: parents ordered (h, w, type)."""
        if self.window is None:
            return parents
        pose, activation = parents
        flat = None if activation is None else activation.flatten(-2, -1)
        return Capsules(pose.flatten(-3, -2), flat)


def check_capsules(children: Capsules) -> None:
    if not isinstance(children, Capsules):
        raise TorchcapsError(
            f"a capsule layer takes Capsules, but got a {type(children).__name__}; wrap the poses: "
            f"layer(Capsules(poses))."
        )
    pose, activation = children
    check_tensor("pose", pose)
    if activation is not None:
        check_tensor("activation", activation)
    if activation is not None and activation.shape != pose.shape[:-1]:
        check_shape("activation", activation, pose.shape[:-1], "every capsule has one")


def check_children(children: Capsules, n_in: int, d_in: int) -> None:
    """Refuse other children than those that a layer was built for."""
    check_capsules(children)
    if children.pose.shape[-2:] != (n_in, d_in):
        raise TorchcapsError(
            f"this layer was built for {n_in} children of {d_in} components [*batch, {n_in}, "
            f"{d_in}], but poses came with shape {list(children.pose.shape)}; does the image size "
            f"differ from the one the network was created with?"
        )


def check_grid(layer: str, grid: Grid) -> None:
    if not isinstance(grid, tuple | list) or len(grid) != 3:
        raise TorchcapsError(
            f"{layer} needs child_grid=(height, width, types), but got {short(grid)}."
        )
    check_sizes(layer, **dict(zip(("height", "width", "types_in"), grid, strict=True)))


def check_sizes(layer: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool):
            raise TorchcapsError(f"{layer} needs {name} as a whole number, but got {short(size)}.")
        if size < 1:
            raise TorchcapsError(f"{layer} needs {name} of at least 1, but got {size}.")


def first_weight(module: nn.Module) -> Tensor | None:
    """Give the first of `module.parameters()`, which make names on the way to it."""
    for weight in module._parameters.values():
        if weight is not None:
            return weight
    for part in module._modules.values():
        found = None if part is None else first_weight(part)
        if found is not None:
            return found
    return None
