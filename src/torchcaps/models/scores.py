"""A network that returns its scores alone, for tools that know tensors only."""

from typing import final

from torch import Tensor, nn

__all__ = ["scores_only"]


@final
class _ScoresOnly(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.model(images).scores
        return scores


def scores_only(model: nn.Module) -> nn.Module:
    """The same network, whose answer is a tensor: the scores [b, n_classes] of images [b, c, h, w].

    The weights are shared, and so are training and evaluation mode: nothing is copied.

    Arguments:
        model: a network that returns an `Output`.

    >>> traced = torch.jit.trace(scores_only(model.eval()), images)
    """
    return _ScoresOnly(model)
