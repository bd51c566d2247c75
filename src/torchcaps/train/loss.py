"""The loss of a recipe: what the scores should be, and what the reconstruction.

Ambiguities:
1. [tsai2020] §5 tries margin and spread loss for networks that score by logits and does not say of
   what: the margin loss takes their probabilities, for its margins are those of lengths from 0 to
   1, and the spread loss the logits themselves, for it compares differences alone.
"""

import torch
from torch import Tensor

from torchcaps.data import Batch
from torchcaps.errors import TorchcapsError
from torchcaps.ops import (
    binary_cross_entropy_loss,
    cross_entropy_loss,
    margin_loss,
    reconstruction_loss,
    spread_loss,
    spread_margin,
)
from torchcaps.train.answers import present_classes
from torchcaps.train.recipe import Loss, Recipe
from torchcaps.types import Output, ScoresAre

__all__ = ["loss_parts"]

# The updates that the schedule of `spread_margin` is written for.
SPREAD_STEPS = 500_000
# What "auto" stands for.
FITTING: dict[ScoresAre, Loss] = {
    "lengths": "margin",
    "logits": "cross_entropy",
    "independent_logits": "binary",
}


def loss_parts(recipe: Recipe, out: Output, batch: Batch, step: int) -> dict[str, Tensor]:
    """The terms whose sum is minimised, by name; `step` is the number of updates so far."""
    # Sums over pixels and classes are taken in float32 whatever the network computes in.
    with torch.autocast(out.scores.device.type, enabled=False):
        parts = {"classification_loss": _classification(recipe, out, batch.labels, step)}
        if out.reconstruction is not None:
            drawn = out.reconstruction.float()
            # A decoder that knows no classes draws the image as it is, with all its objects.
            parted = drawn.ndim == 5 and batch.parts is not None
            shown = batch.parts if parted else batch.pixels
            assert shown is not None
            error = reconstruction_loss(drawn, shown)
            parts["reconstruction_loss"] = recipe.reconstruction_weight * error
    return parts


def _classification(recipe: Recipe, out: Output, labels: Tensor, step: int) -> Tensor:
    scores = out.scores if out.scores.dtype == torch.float64 else out.scores.float()
    loss = FITTING[out.scores_are] if recipe.loss == "auto" else recipe.loss
    if loss in ("spread", "cross_entropy"):
        if labels.ndim != 1:
            raise TorchcapsError(
                f'loss = "{loss}" knows one object an image, but {recipe.data} labels several; '
                f'take "margin" or "binary".'
            )
        if loss == "cross_entropy":
            return cross_entropy_loss(scores, labels)
        margin = spread_margin(round(step * SPREAD_STEPS / recipe.spread_steps))
        return spread_loss(scores, labels, margin=margin)
    target = labels if labels.ndim == 1 else present_classes(labels, scores.shape[-1])
    if loss == "margin":
        if labels.ndim != 1 and out.scores_are == "logits":
            raise TorchcapsError(
                f'loss = "margin" asks that two classes be probable at once, which a softmax '
                f'cannot say, but {recipe.data} labels several; take "binary".'
            )
        return margin_loss(
            Output(scores, out.scores_are).probabilities(),
            target,
            m_plus=recipe.m_plus,
            m_minus=recipe.m_minus,
            lambda_=recipe.lambda_,
        )
    # Asked for by name, logits are taken as those of classes that are each there or not.
    scores_are: ScoresAre = "lengths" if out.scores_are == "lengths" else "independent_logits"
    return binary_cross_entropy_loss(scores, target, scores_are=scores_are)
