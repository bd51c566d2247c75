"""Starving capsules and cancelling gradients [mitterreiter2023] Figs. 10–12, [peer2022] §6.

Norms, over the images of a batch:
    of capsule i mean ‖∂L/∂u_i‖,    of matrix ij ‖∂L/∂W_ij‖
A capsule with neither length nor gradient starves. For gradients g and g′ of two losses, those of x
and −x with different labels, say:
    cos(g, g′),    χ = 1 − ‖g + g′‖ / (‖g‖ + ‖g′‖)
χ is 0 where the two add up and 1 where they cancel.

Departures: none; χ is ours.
Ambiguities: two gradients of zero do not cancel: χ and cos are 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps._checks import check_finite, check_shape
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_trace
from torchcaps.errors import TorchcapsError
from torchcaps.types import Trace


@dataclass(frozen=True)
class LayerGradients:
    """Children and weights of one routed layer."""

    name: str
    capsules: Tensor = quantity("loss per length", "mean norm of the gradient of each child")  # [i]
    matrices: Tensor | None = quantity("loss per weight", "norm of the gradient of each matrix")


@dataclass(frozen=True)
class GradientNorms(Result):
    """One row a routed layer, from the bottom up."""

    layers: tuple[LayerGradients, ...]


@dataclass(frozen=True)
class Cancellation:
    """Two gradients of one tensor, or of "all" of them as one vector."""

    name: str
    cosine: float = quantity("cosine", "1 the same direction, −1 the opposite one")
    chi: float = quantity("share", "1 minus the norm of the sum over the sum of the norms")


@dataclass(frozen=True)
class GradientCancellation(Result):
    """One row a tensor, then one of all."""

    weights: tuple[Cancellation, ...]


def gradient_norms(loss: Tensor, trace: Trace) -> GradientNorms:
    """Give norms of the gradients that reach the children and the matrices of every layer.

    Arguments:
        loss: one number, computed from the output that holds the trace; its graph is kept.
        trace: of that output, recorded with gradients.

    >>> gradient_norms(loss, out.trace)
    """
    check_trace(trace)
    tensors = [each for layer in trace for each in (layer.children.pose, layer.weight)]
    differentiable = [each for each in tensors if each is not None and each.requires_grad]
    if not loss.requires_grad or not differentiable:
        raise TorchcapsError(
            "the loss has no gradient; compute it from an output that was made without "
            "torch.no_grad."
        )
    if loss.numel() != 1:
        raise TorchcapsError(
            f"gradients are those of one number, but the loss came as {list(loss.shape)}; sum it, "
            f"or take its mean."
        )
    found = torch.autograd.grad(loss, differentiable, retain_graph=True, allow_unused=True)
    by_tensor = {id(each): grad for each, grad in zip(differentiable, found, strict=True)}
    poses = by_tensor.keys() & {id(layer.children.pose) for layer in trace}
    # Weights are those of every output, poses of this one alone.
    if poses and all(by_tensor[pose] is None for pose in poses):
        raise TorchcapsError(
            "the loss does not depend on this trace; compute it from the output that the trace is "
            "of."
        )
    rows = []
    for layer in trace:
        pose = _norm(by_tensor.get(id(layer.children.pose)), layer.children.pose, -1)
        check_finite(f"layer {layer.name}", pose)
        matrices = None
        if layer.weight is not None:
            matrices = _norm(by_tensor.get(id(layer.weight)), layer.weight, (-2, -1))
        rows.append(LayerGradients(layer.name, pose.flatten(0, -2).mean(0), matrices))
    return GradientNorms(tuple(rows))


def _norm(gradient: Tensor | None, of: Tensor, over: int | tuple[int, int]) -> Tensor:
    gradient = torch.zeros_like(of) if gradient is None else gradient
    norm: Tensor = torch.linalg.vector_norm(gradient.detach().cpu().double(), dim=over)
    return norm


def gradient_cancellation(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor]
) -> GradientCancellation:
    """Say how far two gradients cancel, for each tensor and for all as one vector.

    Arguments:
        first: gradients of one loss by the name of the tensor.
        second: those of another loss, of the same tensors.

    >>> gradient_cancellation(first, second)
    """
    if not first or first.keys() != second.keys():
        raise TorchcapsError(
            f"gradients are compared tensor by tensor, but the first are of {sorted(first)} and "
            f"the second of {sorted(second)}."
        )
    one, two = (
        {name: each[name].detach().cpu().double().flatten() for name in first}
        for each in (first, second)
    )
    for name in first:
        check_shape(f"the second gradient of {name}", second[name], first[name].shape)
        for each in (one[name], two[name]):
            check_finite(f"gradient {name}", each)
    rows = [_cancellation(name, one[name], two[name]) for name in first]
    whole = _cancellation("all", torch.cat([*one.values()]), torch.cat([*two.values()]))
    return GradientCancellation((*rows, whole))


def _cancellation(name: str, one: Tensor, two: Tensor) -> Cancellation:
    norms = float(one.norm()), float(two.norm())
    cosine = float(one @ two) / (norms[0] * norms[1]) if all(norms) else 0.0
    chi = 1 - float((one + two).norm()) / sum(norms) if any(norms) else 0.0
    return Cancellation(name, cosine, chi)
