"""The loss of a recipe: what the scores should be, and what the reconstruction.

Ambiguities:
1. [tsai2020] §5 tries margin and spread loss for networks that score by logits and does not say of
   what: the margin loss takes their probabilities, for its margins are those of lengths from 0 to
   1, and the spread loss the logits themselves, for it compares differences alone.
"""

from functools import lru_cache
from typing import Any, get_args

import torch
from torch import Tensor

from torchcaps._checks import check_choice
from torchcaps.data import Batch
from torchcaps.data.sample import present_classes
from torchcaps.errors import TorchcapsError
from torchcaps.ops import (
    binary_cross_entropy_loss,
    cross_entropy_loss,
    focal_loss,
    margin_loss,
    reconstruction_loss,
    spread_loss,
    spread_margin,
)
from torchcaps.ops.checks import check_classes, without_autocast
from torchcaps.train.recipe import Loss, Recipe
from torchcaps.types import Output, ScoresAre

# The updates that the schedule of `spread_margin` is written for.
SPREAD_STEPS = 500_000
# What "auto" stands for.
FITTING: dict[ScoresAre, Loss] = {
    "lengths": "margin",
    "logits": "cross_entropy",
    "independent_logits": "binary",
}
# A graph of a step reads class weights from where they are.
made_once = lru_cache(maxsize=8)(torch.inference_mode(False)(torch.tensor))


def loss_parts(
    recipe: Recipe, out: Output, batch: Batch, step: int = 0, *, margin: Tensor | None = None
) -> dict[str, Tensor]:
    """Give the terms whose sum is minimised, by name; `step` is the number of updates so far, or
    `margin` that of the spread loss then, which a step that is repeated reads from a tensor."""
    # Sums over pixels and classes are taken in float32 whatever the network computes in.
    with without_autocast(out.scores):
        margins = (recipe.m_plus, recipe.m_minus, recipe.lambda_)
        lead = margin_at(recipe, step) if margin is None else margin
        weights = recipe.class_weights
        options: dict[str, Any] = {}
        if weights is not None:
            # Divided by the number of images: slices of a batch add up to the whole of it.
            options = {"weight": made_once(weights, device=out.scores.device), "reduction": "none"}
        which = (recipe.loss, recipe.data, margins, lead, recipe.focal_gamma)
        error = _classification(out, batch.labels, *which, **options)
        parts = {"classification_loss": error if weights is None else error.mean()}
        if out.reconstruction is not None:
            drawn = out.reconstruction.float()
            # A decoder that knows no classes draws the image as it is, with all its objects.
            parted = drawn.ndim == 5 and batch.parts is not None
            shown = batch.parts if parted else batch.pixels
            assert shown is not None
            error = reconstruction_loss(drawn, shown)
            parts["reconstruction_loss"] = recipe.reconstruction_weight * error
    return parts


def margin_at(recipe: Recipe, step: int) -> float:
    """Give the margin of the spread loss after so many updates."""
    return spread_margin(round(step * SPREAD_STEPS / recipe.spread_steps))


def loss_of(
    out: Output,
    labels: Tensor,
    *,
    loss: Loss = "auto",
    m_plus: float = 0.9,
    m_minus: float = 0.1,
    lambda_: float = 0.5,
    margin: float = 0.9,
    gamma: float = 2.0,
    weight: Tensor | None = None,
    images: Tensor | None = None,
    reconstruction_weight: float = 0.0005,
) -> Tensor:
    """Give the loss of a network's answer, for a training loop of one's own: one number.

    Arguments:
        out: what the network returned.
        labels: one class an image, int64 [b], or m classes [b, m].
        loss: "auto" is the one that fits the scores: margin loss for lengths, cross-entropy for
            logits, binary cross-entropy for independent logits. Or "margin", "spread",
            "cross_entropy", "binary", "focal" by name.
        m_plus: of the margin loss, how probable a class should be that is there.
        m_minus: of the margin loss, how probable one may be that is not.
        lambda_: of the margin loss, what the latter weighs.
        margin: of the spread loss, by how much the right score should lead.
        gamma: of the focal loss, how little counts what is nearly right.
        weight: [k], what an image of each class counts, where each shows one.
        images: what the decoder shall draw, [b, c, h, w]; without it the reconstruction is left
            out.
        reconstruction_weight: what its squared error, summed over an image, weighs.

    >>> out = model(images, labels)
    >>> loss_of(out, labels, images=images).backward()
    """
    check_choice("loss", loss, get_args(Loss))
    _check_answer(out, labels)
    with without_autocast(out.scores):
        margins = (m_plus, m_minus, lambda_)
        found = (loss, "the data", margins, margin, gamma)
        total = _classification(out, labels, *found, weight=weight)
        if images is not None and out.reconstruction is not None:
            error = reconstruction_loss(out.reconstruction.float(), images)
            total = total + reconstruction_weight * error
    return total


def _check_answer(out: object, labels: object) -> None:
    if isinstance(labels, Output):
        raise TorchcapsError(
            "loss_of takes the Output of a network first and the labels second, but got an Output "
            "as labels; write loss_of(out, labels)."
        )
    if not isinstance(out, Output):
        raise TorchcapsError(
            f"loss_of takes the Output that a network of torchcaps returned, but got a "
            f"{type(out).__name__}; for scores alone write Output(scores, 'logits'), or 'lengths' "
            f"for lengths of capsules."
        )
    if not isinstance(labels, Tensor) or labels.is_floating_point():
        came, remedy = type(labels).__name__, "torch.tensor(labels)"
        if isinstance(labels, Tensor):
            came = str(labels.dtype)
            remedy = "labels.long()" if labels.ndim == 1 else "labels.argmax(-1) for one-hot rows"
        raise TorchcapsError(
            f"labels must be a tensor with the numbers of classes, int64 [b], but came as {came}; "
            f"write {remedy}."
        )
    # So many objects would be every class there is, and one_hot of torch gives int64 too.
    n_classes = out.scores.shape[-1]
    if labels.ndim == 2 and n_classes > 2 and labels.shape[1] == n_classes:
        raise TorchcapsError(
            f"labels must be the numbers of classes, but came as {list(labels.shape)}, a zero or a "
            f"one for each of {n_classes} classes; write labels.argmax(-1)."
        )
    check_classes(labels, n_classes, argument="labels")


def _classification(
    out: Output,
    labels: Tensor,
    loss: Loss,
    data: str,
    margins: tuple[float, float, float],
    lead: float | Tensor,
    gamma: float,
    **options: Any,
) -> Tensor:
    """`margins` are those of the margin loss, `lead` is that of the spread loss; `data` is named
    in what is said of labels that do not fit; `options` are a weight and a reduction."""
    scores = out.scores if out.scores.dtype == torch.float64 else out.scores.float()
    loss = FITTING[out.scores_are] if loss == "auto" else loss
    one_is_true = loss == "cross_entropy" or (loss == "focal" and out.scores_are == "logits")
    if one_is_true and labels.ndim != 1:
        raise TorchcapsError(
            f'loss = "{loss}" is for images of one object, but {data} labels several; '
            f'take "margin", "spread" or "binary".'
        )
    if loss == "cross_entropy":
        return cross_entropy_loss(scores, labels, **options)
    target = labels if labels.ndim == 1 else present_classes(labels, scores.shape[-1])
    if loss == "spread":
        return spread_loss(scores, target, margin=lead, **options)
    if loss == "focal":
        options |= {"scores_are": out.scores_are, "gamma": gamma}
        return focal_loss(scores, target, **options)
    if loss == "margin":
        if labels.ndim != 1 and out.scores_are == "logits":
            raise TorchcapsError(
                f'loss = "margin" wants every class that is there to be probable, but {data} '
                f"labels several an image, and the probabilities of a softmax sum to one; take "
                f'"binary".'
            )
        probable = Output(scores, out.scores_are).probabilities()
        m_plus, m_minus, lambda_ = margins
        options |= {"m_plus": m_plus, "m_minus": m_minus, "lambda_": lambda_}
        return margin_loss(probable, target, **options)
    # Asked for by name, logits are taken as those of classes that are each there or not.
    scores_are: ScoresAre = "lengths" if out.scores_are == "lengths" else "independent_logits"
    return binary_cross_entropy_loss(scores, target, scores_are=scores_are, **options)
