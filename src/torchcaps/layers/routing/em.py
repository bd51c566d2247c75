"""EM routing as a module."""

import math
from collections.abc import Callable
from typing import Any, Literal, final, get_args

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError, short
from torchcaps.layers.routing.base import OpRouting, named
from torchcaps.ops.checks import check_iterations, widen
from torchcaps.ops.routing import Compete, EMVariant, LambdaSchedule
from torchcaps.ops.routing.em import MEANT, check_em_numbers
from torchcaps.ops.squashing import EPSILON
from torchcaps.types import Capsules, Routed


@named("em")
@final
class EMRouting(OpRouting):
    """`ops.em_routing` with its costs β_a and β_u, one pair a parent (a parent type in windows).

    Children need activations: those of `EMPrimaryCapsules`, or lengths.

    Arguments:
        iterations: how many M-steps there are, from 1.
        variant: whose reading: "paper", "official" or "gritzman", as in `ops.em_routing`.
        compete: with "all" the windows that see a child share it, with "window" each has it to
            itself.
        lambda_: the inverse temperature of activations.
        lambda_schedule: whether it grows over the iterations, "growing", or not, "constant".
        variance_floor: the least variance of a parent; None: that of the variant.
        unit_poses: whether parents get the pose a_j μ_j / ‖μ_j‖, as in public code of [peer2022]:
            means of narrow layers shrink from layer to layer, directions do not. Ours are smooth
            where a mean is near zero; "code" has the norm of that code, by which a mean of one
            component has next to no gradient.

    >>> DenseCapsules(n_in=8, d_in=16, n_out=3, d_out=16, pose="matrix", routing=EMRouting())
    """

    algorithm = "em"
    sees_activations = True
    told = (
        *("beta_a", "beta_u", "iterations", "variant", "compete"),
        *("lambda_", "lambda_schedule", "variance_floor"),
    )
    beta_a: nn.Parameter
    beta_u: nn.Parameter

    def __init__(
        self,
        *,
        iterations: int = 3,
        variant: EMVariant = "paper",
        compete: Compete = "window",
        lambda_: float = 0.01,
        lambda_schedule: LambdaSchedule = "growing",
        variance_floor: float | None = None,
        unit_poses: bool | Literal["code"] = False,
    ):
        super().__init__()
        check_iterations(iterations)
        check_choice("variant", variant, get_args(EMVariant), meant=MEANT)
        check_choice("compete", compete, get_args(Compete))
        check_choice("lambda_schedule", lambda_schedule, get_args(LambdaSchedule))
        if not isinstance(unit_poses, int | str) or unit_poses not in (False, True, "code"):
            raise TorchcapsError(
                f'unit_poses must be False, True or "code", but came as {short(unit_poses)}.'
            )
        check_em_numbers(lambda_, variance_floor)
        self.iterations = iterations
        self.variant: EMVariant = variant
        self.compete: Compete = compete
        self.lambda_ = lambda_
        self.lambda_schedule: LambdaSchedule = lambda_schedule
        self.variance_floor = variance_floor
        self.unit_poses = unit_poses

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self.compete == "all":
            self._check_window()
            self.normalised_over = "parents_and_positions"
        a, u = torch.zeros(n_out), torch.zeros(n_out)
        if self.variant == "paper":  # as public code of [peer2022]
            a, u = a.normal_(0, 0.1), u.normal_(0, 0.1)
        elif self.variant == "official":  # as its code, for windows and for classes
            at_a, at_u = (1.0, 2.0) if self.window is None else (0.5, 0.5)
            a, u = a.fill_(at_a), u.fill_(at_u)
        else:  # as its code
            a = nn.init.trunc_normal_(a, -1000, 500, -2000, 0)
            u = u.uniform_(-1, 1).mul_(math.sqrt(6 / (n_out + d_out)))
        self.beta_a, self.beta_u = nn.Parameter(a), nn.Parameter(u)

    def options(self) -> dict[str, Any]:
        child_id = None
        if self.compete == "all" and self.window is not None:
            child_id = self.window.child_id(self.beta_a.device)
        return super().options() | {"child_id": child_id}

    def finished(self, routed: Routed) -> Routed:
        if not self.unit_poses:
            return routed
        norm = _norm_of_code if self.unit_poses == "code" else _smooth_norm
        steps = tuple(step._replace(parents=_unit(step.parents, norm)) for step in routed.steps)
        return routed._replace(parents=_unit(routed.parents, norm), steps=steps)

    def _check_window(self) -> None:
        if self.window is None:
            raise TorchcapsError(
                'compete="all" is for convolutional capsules, where several windows see a child; '
                'a dense layer has one window: use compete="window".'
            )


def _unit(capsules: Capsules, norm: Callable[[Tensor], Tensor]) -> Capsules:
    """Give poses as long as their activations."""
    mean, activation = capsules
    assert activation is not None
    wide = widen(mean)
    return Capsules((wide / norm(wide)).to(mean.dtype) * activation.unsqueeze(-1), activation)


def _smooth_norm(mean: Tensor) -> Tensor:
    return torch.sqrt(mean.square().sum(-1, keepdim=True) + EPSILON)


def _norm_of_code(mean: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(mean + EPSILON, dim=-1, keepdim=True)
    return norm + EPSILON
