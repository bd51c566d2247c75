"""What the native operators cost, counted as in `ops.fused.cost`: products that make votes each
time they are made, those of their gradients, and the sums and agreements that are products in the
plain op.

The workspace is the children once more, parents of every iteration, those that each thread sums by
itself, and couplings of a few children.
"""

from typing import Any

import torch
from torch import Tensor

from torchcaps.ops.fused.cost import COSTS, Cost, _register
from torchcaps.ops.native import dynamic

__all__ = ["COSTS"]


def _sizes(pose: Tensor, weight: Tensor, kind: str) -> tuple[int, int, int, int]:
    """FLOPs of all votes and of one multiply-add for each of their numbers; bytes of the children
    and of the parents."""
    (batch, n_in, d_in), n_out = pose.shape, weight.shape[-3]
    size, inner = (d_in, weight.shape[-2]) if kind == "matrix" else weight.shape[-2:]
    agreement = 2 * batch * n_in * n_out * size
    return agreement * inner, agreement, 4 * pose.numel(), 4 * batch * n_out * size


def _forward(pose: Tensor, weight: Tensor, *arguments: Any) -> Cost:
    _, _, _, prior, _, kind, iterations, *_ = arguments
    products, agreement, children, parents = _sizes(pose, weight, kind)
    routed = iterations - (prior is None)
    threads = torch.get_num_threads()
    flops = iterations * products + (2 * routed - (prior is not None)) * agreement
    return Cost(flops, children + (1 + threads) * parents)


def _backward(
    of_poses: Tensor | None,
    of_couplings: Tensor | None,
    sums: Tensor,
    kept: Tensor,
    pose: Tensor,
    weight: Tensor,
    *arguments: Any,
) -> Cost:
    *_, kind, _, _, _, detach, needs = arguments
    products, agreement, children, parents = _sizes(pose, weight, kind)
    iterations = len(sums)
    deep = detach == "none" or (detach == "votes" and any(needs[4:]))
    # Back through the iterations, each with its couplings and the gradient of its logits.
    back = iterations - 1 if deep else 0
    flops = back * (products + 3 * agreement)
    if any(needs[:4]):
        terms = iterations if deep or detach in ("states", "coupling") else 1
        again = not (kept.numel() and not any(needs[4:]))
        flops += (again + needs[0] + needs[1]) * products + (1 + 2 * again) * terms * agreement
    held = (2 * iterations + 1 + torch.get_num_threads()) * parents
    return Cost(flops, children + held)


for _operator, _cost in ((dynamic._forward, _forward), (dynamic._backward, _backward)):
    _packet = _operator._opoverload.overloadpacket
    COSTS[_packet] = _cost
    _register(_packet, _cost)
