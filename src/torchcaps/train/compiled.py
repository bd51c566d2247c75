"""The loss of a step, which is network, loss and accuracy, as one graph made by torch.compile."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError

Loss = Callable[..., dict[str, Tensor]]
# Dropout draws as it does without a compiler.
COMPILER: dict[str, Any] = {"backend": "inductor", "options": {"fallback_random": True}}


def compiled(loss: Loss) -> Loss:
    """Compile it at its first call, and anew for batches of another size."""
    # A second to import, which only those spend who compile.
    from torch._C._dynamo.eval_frame import reset_code
    from torch._dynamo.exc import TorchDynamoException

    # Graphs of runs before this one would count among the eight that a function may have.
    reset_code(loss.__code__)
    graph = torch.compile(loss, fullgraph=True, dynamic=False, **COMPILER)

    def run(*given: Any) -> dict[str, Tensor]:
        try:
            return graph(*given)
        except TorchDynamoException as error:
            raise refused(str(error).strip().splitlines()[0][:200]) from error

    return run


def refused(why: str) -> TorchcapsError:
    """Say that a loss is not compiled, and how to go on."""
    return TorchcapsError(
        f"the loss cannot be compiled ({why}); leave out compiled=True, on the command line "
        f"--compile, and the same call trains without a compiler."
    )
