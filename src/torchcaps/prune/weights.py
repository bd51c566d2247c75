"""Which weights of a network are pruned, and how many of them are zero.

They are the kernels of convolutions and the matrices by which children vote for parents, everywhere
but in frozen parts and in the decoder, which is no part of what classifies. Biases, normalisation,
learned priors and the four matrices of `AttentionCapsules` stay: they are few, and a network does
not become smaller by their zeros.
"""

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import CapsuleLayer, Conv3dCapsules

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
        """Give it as JSON has it."""
        return {"share": self.share, **asdict(self)}


def prunable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Give the weights that pruning may set to zero, by their names in the network.

    Arguments:
        model: a network of `create_model`, or any module.

    >>> list(prunable(create_model("capsnet")))
    ['backbone.0.weight', 'primary.projection.weight', 'layers.classes.weight']
    """
    parts = {
        name: part
        for name, part in model.named_modules()
        if isinstance(part, KINDS)
        and part.weight.requires_grad
        and "decoder" not in name.split(".")
    }
    # One that is made of other tensors, as by weight_norm, is made anew whenever it is asked for.
    found: dict[str, nn.Parameter] = {}
    for name, part in parts.items():
        weight = part.weight
        # One that several parts share counts once.
        if isinstance(weight, nn.Parameter) and all(weight is not each for each in found.values()):
            found[f"{name}.weight" if name else "weight"] = weight
    if not found:
        raise TorchcapsError(_why_none(model, has_trained=bool(parts)))
    return found


def _why_none(model: nn.Module, *, has_trained: bool) -> str:
    kind = type(model).__name__
    if has_trained:
        return (
            f"the convolutions and capsule layers of this {kind} that are trained make their "
            f"weights of other tensors, as weight_norm does, so no zero in them would stay; take "
            f"that off first, with torch.nn.utils.parametrize.remove_parametrizations."
        )
    if any(isinstance(part, KINDS) for part in model.modules()):
        return (
            f"all convolutions and capsule layers of this {kind} are frozen or draw images, so it "
            f"has no weights to prune; freeze less, or prune before."
        )
    return f"a {kind} has no convolution and no capsule layer, so it has no weights to prune."


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
