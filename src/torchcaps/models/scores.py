"""A network that returns its scores alone, for tools that know tensors only."""

from typing import final

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, short
from torchcaps.types import Output


@final
class _ScoresOnly(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model
        self.training = model.training

    def forward(self, images: Tensor) -> Tensor:
        out = self.model(images)
        if not isinstance(out, Output):
            raise TorchcapsError(
                f"scores_only takes a network that returns a torchcaps.Output, but "
                f"{type(self.model).__name__} returned a {type(out).__name__}; a network that "
                f"returns its scores needs no scores_only."
            )
        return out.scores


def scores_only(model: nn.Module) -> nn.Module:
    """Wrap a network so that its answer is a tensor: the scores [b, n_classes] of images [b, c, h,
    w].

    The weights are shared, and so are training and evaluation mode: nothing is copied.

    Arguments:
        model: a network that returns an `Output`.

    >>> traced = torch.jit.trace(scores_only(model.eval()), images)
    """
    if not isinstance(model, nn.Module):
        raise TorchcapsError(
            f"scores_only takes a network, an nn.Module, but got {short(model)}; tc.load(path) "
            f"opens a saved one."
        )
    return _ScoresOnly(model)
