"""Distance routing of γ-capsules as a module."""

from typing import Any, final, get_args

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice, check_flag
from torchcaps.errors import TorchcapsError
from torchcaps.layers.routing.base import OpRouting, named
from torchcaps.ops.checks import check_iterations
from torchcaps.ops.routing import DetachVotes, Scale
from torchcaps.ops.squashing import Squash
from torchcaps.types import Routed


@named("distance")
@final
class DistanceRouting(OpRouting):
    """`ops.distance_routing` of γ-capsules, with its bias.

    scale="batch" measures distances over the batch, as public code does. In evaluation it goes by
    their running mean, so that an image's result does not depend on its neighbours. That mean is
    the buffer `running_scale`: weights loaded without it predict far off, and a warning says so.
    It holds one mean for every update of training; where a network is evaluated with more
    iterations, further updates go by the last of them.

    Arguments:
        iterations: how often couplings are made, from 1.
        scale: over what the mean distance is taken: "sample", one image, through windows each of
            them alone, or "batch".
        bias: whether every parent has a learned vector added before the squash.
        squash: the length of a parent: "hinton", "exp" or "none", as in `ops.squash`.
        detach: what is a constant to the gradient: "none", "votes" or "iterations", as in
            `ops.distance_routing`.

    >>> DenseCapsules(n_in=8, d_in=4, n_out=3, d_out=6, routing=DistanceRouting(scale="batch"))
    """

    algorithm = "distance"
    sees_activations = True
    told = ("iterations", "scale", "bias", "squash", "detach")
    bias: nn.Parameter | None
    running_scale: Tensor
    MOMENTUM = 0.1

    def __init__(
        self,
        *,
        iterations: int = 3,
        scale: Scale = "sample",
        bias: bool = False,
        squash: Squash = "hinton",
        detach: DetachVotes = "none",
    ):
        super().__init__()
        check_iterations(iterations)
        check_choice("scale", scale, get_args(Scale))
        check_choice("squash", squash, get_args(Squash))
        check_choice("detach", detach, get_args(DetachVotes))
        check_flag("bias", bias)
        self.iterations = iterations
        self.scale: Scale = scale
        self.squash: Squash = squash
        self.detach: DetachVotes = detach
        self._has_bias = bias
        self.has_parameters = bias or scale == "batch"
        self.register_parameter("bias", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self._has_bias:
            self.bias = nn.Parameter(torch.full((n_out, d_out), 0.1))
        if self.scale == "batch":
            self.register_buffer("running_scale", torch.ones(self.iterations - 1))

    def options(self) -> dict[str, Any]:
        stored = self.scale == "batch" and not self.training
        return super().options() | ({"scale": self._stored()} if stored else {})

    def finished(self, routed: Routed) -> Routed:
        distances, pose = routed.scale, routed.parents.pose
        if self.scale != "batch" or not self.training or distances is None or not pose.numel():
            return routed
        # A call with other iterations than the network was made with teaches none of its means.
        if len(distances) == len(self.running_scale):
            self._learn(distances)
        return routed

    @torch.no_grad()
    def _learn(self, distances: Tensor) -> None:
        try:
            self.running_scale.lerp_(distances.to(self.running_scale), self.MOMENTUM)
        except RuntimeError:
            if not torch._C._are_functorch_transforms_active():
                raise
            raise TorchcapsError(
                "γ routing in training mode moves its mean distances in place, which this "
                "transform of torch.func does not allow; call eval() of the network before it."
            ) from None

    def _stored(self) -> Tensor:
        """Give the running mean of every update."""
        updates, known = self.iterations - 1, len(self.running_scale)
        if updates <= known:
            return self.running_scale[:updates]
        if not known:
            raise TorchcapsError(
                f"this γ routing was trained with one iteration, so it has no mean distances, "
                f"which {self.iterations} iterations need; train it with two or more."
            )
        return torch.cat([self.running_scale, self.running_scale[-1:].expand(updates - known)])
