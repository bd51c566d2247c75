"""Which weights of a network are pruned, and how many of them are zero.

They are the kernels of convolutions and the matrices of capsule layers, everywhere but in frozen
parts and in the decoder, which is no part of what classifies. Biases, normalisation and learned
priors stay: they are few, and a network does not become smaller by their zeros.
"""

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import CapsuleLayer, Conv3dCapsules

__all__ = ["Sparsity", "prunable", "sparsity"]

KINDS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, CapsuleLayer, Conv3dCapsules)


@dataclass(frozen=True)
class Sparsity:
    """How many of the weights that can be pruned are zero, of all and of each tensor by name."""

    weights: int
    zeros: int
    layers: dict[str, float]

    @property
    def share(self) -> float:
        return self.zeros / self.weights

    def numbers(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"share": self.share, **asdict(self)}


def prunable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that pruning may set to zero, by their names in the network.

    Arguments:
        model: a network of `create_model`, or any module.

    >>> list(prunable(create_model("capsnet")))
    ['backbone.0.weight', 'primary.projection.weight', 'layers.classes.weight']
    """
    found = {
        f"{name}.weight" if name else "weight": part.weight
        for name, part in model.named_modules()
        if isinstance(part, KINDS)
        and part.weight.requires_grad
        and "decoder" not in name.split(".")
    }
    if not found:
        if any(isinstance(part, KINDS) for part in model.modules()):
            raise TorchcapsError(
                f"all convolutions and capsule layers of this {type(model).__name__} are frozen or "
                f"draw images, so it has no weights to prune; freeze less, or prune before."
            )
        raise TorchcapsError(
            f"a {type(model).__name__} has no convolution and no capsule layer, so it has no "
            f"weights to prune."
        )
    return {name: weight for name, weight in found.items() if isinstance(weight, nn.Parameter)}


def sparsity(model: nn.Module) -> Sparsity:
    """Count the zeros among the weights that can be pruned.

    Arguments:
        model: a network of `create_model`, or any module.

    >>> sparsity(create_model("capsnet")).numbers()  # doctest: +SKIP
    """
    weights = prunable(model)
    zeros = {name: int((weight == 0).sum()) for name, weight in weights.items()}
    shares = {name: zeros[name] / weight.numel() for name, weight in weights.items()}
    return Sparsity(sum(w.numel() for w in weights.values()), sum(zeros.values()), shares)
