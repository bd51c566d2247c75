"""What the ops ask of their arguments, said in one sentence each.

Checks look at shapes and dtypes, so that they cost nothing and hold under torch.compile. Two look
at values, where `may_look` says that this is cheap.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import get_args

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from torchcaps._checks import check_choice, check_floating, check_number, is_whole
from torchcaps.errors import TorchcapsError, short
from torchcaps.types import Keep

KEEPS = get_args(Keep)
AS_IT_IS = nullcontext()


def check_tensor(argument: str, value: object) -> None:
    """Make sure that `value` is a tensor that holds every number, which lists, arrays, sparse and
    nested ones do not."""
    if not isinstance(value, Tensor):
        raise TorchcapsError(
            f"{argument} must be a torch.Tensor, but came as {type(value).__name__}; make one "
            f"with torch.as_tensor({argument})."
        )
    if value.is_nested:
        raise TorchcapsError(
            f"{argument} must be one dense tensor, but came as a nested one, of pieces with sizes "
            f"of their own; bring them to one size, and take torch.stack({argument}.unbind())."
        )
    if value.layout != torch.strided:
        raise TorchcapsError(
            f"{argument} must be a dense tensor, but came as {value.layout}; convert it with "
            f"{argument}.to_dense()."
        )


def check_votes(votes: Tensor) -> None:
    check_tensor("votes", votes)
    if votes.ndim < 3:
        raise TorchcapsError(
            f"votes must have the axes [*batch, child, parent, pose], at least three, "
            f"but came with shape {list(votes.shape)}; one child or one parent still needs its "
            f"axis: use unsqueeze."
        )
    check_floating("votes", votes, "convert them with votes.float()")
    if 0 in votes.shape[-3:]:
        raise TorchcapsError(
            f"votes need at least one child, one parent and one pose component, "
            f"but came with shape {list(votes.shape)}; only batch axes may be empty."
        )


def check_keep(keep: str) -> None:
    check_choice("keep", keep, KEEPS)


def check_dtypes(pose: Tensor, weight: Tensor) -> None:
    """Refuse child poses that the weights of a layer cannot be multiplied with."""
    check_floating("the pose of votes", pose, "convert it with pose.float()")
    check_floating("the weight of votes", weight, "convert it with weight.float()")
    if pose.dtype != weight.dtype and not torch.is_autocast_enabled(pose.device.type):
        raise TorchcapsError(
            f"child poses and weights must share a dtype, but are {pose.dtype} and "
            f"{weight.dtype}; convert one of them, e.g. model.to({pose.dtype})."
        )


def check_iterations(iterations: int) -> None:
    if not is_whole(iterations) or iterations < 1:
        raise TorchcapsError(
            f"iterations counts the uniform first pass, so it must be a whole number from 1, "
            f"but came as {short(iterations)}; for no routing at all take "
            f"routing='uniform', in ops uniform_routing."
        )


def check_factor(argument: str, factor: float | Tensor) -> None:
    """Make sure that it is a number, or a tensor that holds a single one."""
    if not isinstance(factor, Tensor):
        check_number(argument, factor)
    elif factor.numel() != 1:
        raise TorchcapsError(
            f"{argument} must be one number for all votes, but came as a tensor of shape "
            f"{list(factor.shape)}; children and parents have no factors of their own."
        )


def check_device(votes: Tensor, **others: Tensor | None) -> None:
    """Make sure that all are where the votes are, but for single numbers, which PyTorch takes
    anywhere."""
    for argument, value in others.items():
        if value is not None and value.ndim and value.device != votes.device:
            raise TorchcapsError(
                f"{argument} must be where the votes are, on {votes.device}, but is on "
                f"{value.device}; move it with {argument}.to({str(votes.device)!r})."
            )


def check_broadcast(argument: str, value: Tensor | None, shape: Sequence[int], axes: str) -> None:
    """Make sure that `value` broadcasts to the trailing axes `shape` of the votes, and never
    enlarges them."""
    if value is None:
        return
    check_tensor(argument, value)
    if value.shape == shape[len(shape) - value.ndim :]:
        return
    sizes = list(value.shape)
    fits = len(sizes) <= len(shape) and all(
        size in (1, allowed)
        for size, allowed in zip(reversed(sizes), reversed(shape), strict=False)
    )
    if not fits:
        raise TorchcapsError(
            f"{argument} must broadcast to {axes} = {list(shape)}, but has shape {sizes}; "
            f"was it made for a layer of another size?"
        )


def may_look(tensor: Tensor) -> bool:
    """Say whether values may be checked: looking stalls an accelerator and breaks a compiled
    graph."""
    return tensor.device.type == "cpu" and has_values(tensor)


def has_values(tensor: Tensor) -> bool:
    """Say whether there are values to look at, wherever they are."""
    if torch.compiler.is_compiling():
        return False
    if tensor.is_meta or isinstance(tensor, FakeTensor):  # It has a shape alone.
        return False
    # Under torch.func.vmap one tensor has as many values as lanes, and no answer holds for all.
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def is_finite(tensor: Tensor) -> bool:
    """Say whether all values are. Their sum says so in one pass, unless it overflows by itself."""
    return math.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())


def check_classes(target: Tensor, n_classes: int, *, argument: str = "target") -> None:
    """Make sure that class indices name a class; looked at only where that is free."""
    if not may_look(target) or not target.numel():
        return
    ends = target.aminmax() if target.numel() > 1 else (target, target)
    low, high = ends[0].item(), ends[1].item()
    if low < 0 or high >= n_classes:
        raise TorchcapsError(
            f"{argument} must be 0 to {n_classes - 1} for {n_classes} classes, but came with "
            f"numbers from {low} to {high}; count classes from 0."
        )


def one_hot(index: Tensor, n: int, dtype: torch.dtype) -> Tensor:
    """Give [*index, n], one where the index says. torch's own looks at values, which gradients of
    single samples, vmap(grad), do not allow."""
    zeros = torch.zeros(*index.shape, n, dtype=dtype, device=index.device)
    return zeros.scatter(-1, index.unsqueeze(-1), 1.0)


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Keep iterations in the precision of their input. The meta device has no autocast to turn off;
    a graph may be run under one, so it gets the context in any case."""
    kind = tensor.device.type
    if kind == "cpu" and not (torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()):
        return AS_IT_IS
    if not torch.amp.is_autocast_available(kind):
        return AS_IT_IS
    return torch.autocast(kind, enabled=False)


def widen(tensor: Tensor) -> Tensor:
    """Give half precision as float32: squares, exponentials and long sums need the range."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
