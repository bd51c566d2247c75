"""Squash functions: shrink a pose to a length in [0, 1), keep its direction.

hinton  g(s) = ‖s‖² / (1 + ‖s‖²) · s / ‖s‖      [gu2021] Eq. 3, [peer2022] Alg. 1; from sabour2017
exp     g(s) = (1 − exp(−‖s‖)) · s / ‖s‖        [mitterreiter2023] Eq. 1; from mazzia2021
none    g(s) = s                                [gu2021] ablation "Squash-fn ✗"

Departures:
1. The norm that divides is sqrt(‖s‖² + ε) with ε = 1e-8, so value and gradient exist at s = 0.
2. s is squared as it comes. Beyond ‖s‖ = 1.8e19 its square overflows in float32: there exp gives
   zero, and hinton NaN.
Ambiguities: the papers give no ε; public code has 1e-6 to 1e-20. 1e-8 shortens a length by ε/2‖s‖²
of itself, less than float32 resolves once ‖s‖ > 0.3.

Near zero the two differ where it matters: the Jacobian of exp tends to the identity, that of hinton
to zero, so stacked layers starve under hinton unless their weights are large.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps._checks import check_choice, check_floating
from torchcaps.ops.checks import check_tensor, widen

Squash = Literal["hinton", "exp", "none"]
KINDS = get_args(Squash)
EPSILON = 1e-8


def squash(pose: Tensor, kind: Squash = "hinton") -> Tensor:
    """Squash the last axis. The scale depends on s² alone, so g(−s) = −g(s) holds bit for bit.

    Arguments:
        pose: [*b, d]; the last axis is squashed.
        kind: which length g gives. "hinton": ‖s‖²/(1+‖s‖²). "exp": 1 − exp(−‖s‖). "none": the pose
            stays as it is.

    >>> squash(torch.tensor([3.0, 4.0])).norm()
    tensor(0.9615)
    """
    check_choice("squash", kind, KINDS)
    check_tensor("pose", pose)
    check_floating("poses", pose, "convert them with pose.float()")
    return squash_known(pose, kind)


def squash_known(pose: Tensor, kind: Squash = "hinton", axes: int | tuple[int, ...] = -1) -> Tensor:
    """Squash poses that were checked, or made of such, along any axes: for one image checks take as
    long."""
    if kind == "none":
        return pose
    s = widen(pose)
    square = (s * s).sum(axes, keepdim=True)
    norm = torch.sqrt(square + EPSILON)
    if kind == "hinton":
        scale = square / (1 + square) / norm
    else:
        minus = -norm
        scale = torch.expm1(minus) / minus
    return (s * scale).to(pose.dtype)
