"""What the operators with a backward pass of their own do alike.

The dispatcher's lists hold tensors alone, so a gradient that nobody wants travels as an empty one.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torchcaps.errors import TorchcapsError

__all__ = ["check_derivatives", "listed", "once", "refuse_twice", "shapes_listed", "wanted"]


def check_derivatives() -> None:
    """Refuse the derivatives that an operator with a backward pass of its own does not have:
    forward mode would take it for a constant, and say zero."""
    if torch.compiler.is_compiling() or not differentiates_functions():
        return
    raise TorchcapsError(
        "routing without stored votes has gradients by backward(), but none in forward mode or "
        'through torch.func; for these call use_backend(model, "plain"), or route '
        "ops.materialise(vote_map)."
    )


def differentiates_functions() -> bool:
    """Whether a derivative of torch.func is under way, or one in forward mode."""
    if forward_ad._current_level >= 0:
        return True
    if not torch._C._are_functorch_transforms_active():
        return False
    functorch = torch._C._functorch
    kinds = functorch.TransformType
    stack = functorch.get_interpreter_stack() or ()
    return any(each.key() in (kinds.Grad, kinds.Jvp) for each in stack)


def listed(gradients: Sequence[Tensor | None], like: Tensor) -> list[Tensor]:
    """As an operator gives them back."""
    return [like.new_empty((0,)) if x is None else x for x in gradients]


def shapes_listed(
    tensors: Sequence[Tensor | None], needs: Sequence[bool], like: Tensor
) -> list[Tensor]:
    """What `listed` will give for the gradients of these tensors, for tracing; contiguous."""
    pairs = zip(tensors, needs, strict=True)
    return listed([x.new_empty(x.shape) if x is not None and n else None for x, n in pairs], like)


def wanted(ctx: Any, gradients: Sequence[Tensor], needs: Sequence[bool]) -> tuple[Any, ...]:
    """As autograd takes them: of the tensors, then nothing for each of `ctx.options`."""
    mine = (x if need else None for x, need in zip(gradients, needs, strict=True))
    return (*mine, *(None,) * len(ctx.options))


def once(backward: Any, what: str, plain: str) -> None:
    """Have a routing that gives gradients refuse in one sentence to be differentiated itself."""
    refuse_twice(backward, what, f"route ops.materialise(vote_map) with ops.{plain}")


def refuse_twice(backward: Any, what: str, instead: str) -> None:
    """The same of any operator; `instead` is what to do."""

    def refuse(ctx: Any, *_: Any) -> None:
        raise TorchcapsError(
            f"{what} gives gradients, but no gradients of gradients; where these are needed, as by "
            f"create_graph=True, {instead}."
        )

    backward.register_autograd(refuse)
