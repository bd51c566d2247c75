"""Whether a layer runs to be seen, or differentiated otherwise than by backward()."""

import torch
from torch.autograd import forward_ad

from torchcaps.errors import TorchcapsError
from torchcaps.ops.constant import constant


def is_looked_through() -> bool:
    """Say whether somebody wants to see a convolution, not what it is made of: torch.export,
    torch.jit.trace, torch.func. torch.compile wants what is fast, except inside those."""
    # The level is read once more here, where torch.compile sees it: a graph that was made outside
    # forward mode is then not used within.
    if _is_transformed() or forward_ad._current_level >= 0:
        return True
    if torch.compiler.is_compiling():
        return torch.compiler.is_exporting()
    return torch._C._is_tracing()


def check_derivatives() -> None:
    """Refuse the derivatives that an operator with a backward pass of its own does not have:
    forward mode would take it for a constant, and say zero."""
    if not (_differentiates() or forward_ad._current_level >= 0):
        return
    raise TorchcapsError(
        "routing without stored votes has gradients by backward(), but none in forward mode or "
        'through torch.func; for these call use_backend(model, "plain"), or route '
        "ops.materialise(vote_map)."
    )


# Both are asked while a graph is made, which itself cannot ask for the transforms that are active.
@constant
def _is_transformed() -> bool:
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


@constant
def _differentiates() -> bool:
    if forward_ad._current_level >= 0:
        return True
    if not torch._C._are_functorch_transforms_active():
        return False
    functorch = torch._C._functorch
    kinds = functorch.TransformType
    stack = functorch.get_interpreter_stack() or ()
    return any(each.key() in (kinds.Grad, kinds.Jvp) for each in stack)
