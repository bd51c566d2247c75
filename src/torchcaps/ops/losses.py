"""Losses of capsule networks and of the ConvNets beside them.

margin          Σ_k T_k max(0, m⁺ − ‖v_k‖)² + λ (1 − T_k) max(0, ‖v_k‖ − m⁻)²
                [mitterreiter2023] Eq. 3, [gu2021] Eq. 4; m⁺ = 0.9, m⁻ = 0.1, λ = 0.5
spread          Σ_{i≠t} max(0, m − (a_t − a_i))², t the true class                     [hinton2018]
cross-entropy   −log softmax(z)_t                                         [gu2021] §3, [tsai2020]
binary          −Σ_k T_k log p_k + (1 − T_k) log(1 − p_k)               [gu2021] §3.2, [tsai2020]
focal           the last two with each log p, p the probability of what is true, times (1 − p)^γ
                [lin2017] Eq. 4; γ = 2
reconstruction  Σ_pixels (decoded − image)², weighted by α = 0.0005        [gu2021] §3.1

`weight` and `reduction` are those of torch.nn.functional.cross_entropy: an image counts by the
weight of its class, and the mean over a batch is Σ w ℓ / Σ w.

Departures:
1. A length enters the logarithms as ε + (1 − 2ε) p, ε the rounding of its dtype: lengths of exactly
   0 and 1 keep a finite loss and a gradient.
2. [lin2017] judges every class by a sigmoid alone; the focal loss of logits is that of a softmax.
Ambiguities:
1. The papers do not say how the batch is reduced; all are sums over the classes and means over the
   batch, so α keeps its meaning at any batch size. The code of [sabour2017] takes half the mean
   over batch and classes, that of [hinton2018] the mean over both.
2. [mitterreiter2023] leaves m⁺, m⁻, λ and α open, the papers that use the spread loss its margin;
   `spread_margin` is the schedule in the code of [hinton2018]. Nor does [tsai2020] §5 say how it
   takes several classes: here each that is there leads each that is not, and all pairs are summed.
3. [gu2021] trains capsules by cross-entropies too and does not say of what: here lengths are the
   logits of one, and the probabilities of the binary one.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from torchcaps._checks import check_choice, check_number, check_shape
from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import check_classes, check_tensor, may_look, one_hot, widen
from torchcaps.types import Output, ScoresAre

SEVERAL = "give class indices, or a zero-one matrix of the shape of the scores"
ONE = "give one class index an image, or use a loss for several classes, such as margin_loss"
ONE_WEIGHT = "an image counts by the weight of its one class: give class indices, or no weight"

# Of the losses of the images of a batch, each summed over its classes.
Reduction = Literal["mean", "sum", "none"]
# "official": half the mean over classes and images, as in the code of [sabour2017]; with k classes
# the reconstruction then weighs 2k times more.
MarginReduction = Literal["mean", "sum", "none", "official"]


def margin_loss(
    lengths: Tensor,
    target: Tensor,
    *,
    m_plus: float = 0.9,
    m_minus: float = 0.1,
    lambda_: float = 0.5,
    weight: Tensor | None = None,
    reduction: MarginReduction = "mean",
) -> Tensor:
    """Compute the margin loss of class lengths [b, k], mean over the batch.

    `target` is a class index [b], or a zero-one matrix [b, k] when several classes are present.

    Arguments:
        lengths: [b, k], of the class capsules.
        target: class indices [b], or a zero-one matrix [b, k] where several classes are there.
        m_plus: a class that is there costs nothing from this length.
        m_minus: a class that is not there costs nothing up to this length.
        lambda_: the weight of the classes that are not there.
        weight: [k], what an image of each class counts; None: all count the same.
        reduction: "mean" over the images of the parts summed over classes, as printed; "sum" over
            them; "none": [b], each by itself. "official": the mean over classes and images, halved,
            as in public code.

    >>> margin_loss(torch.tensor([[0.9, 0.1]]), torch.tensor([0]))
    tensor(0.)
    """
    check_choice("reduction", reduction, get_args(MarginReduction))
    present = _present("lengths", lengths, target)
    missing = torch.relu(m_plus - lengths).square()
    surplus = torch.relu(lengths - m_minus).square()
    each = (present * missing + lambda_ * (1 - present) * surplus).sum(-1)
    if reduction == "official":
        each, reduction = each / (2 * lengths.shape[1]), "mean"
    return _reduced(each, target, lengths, weight, reduction)


def spread_loss(
    activations: Tensor,
    target: Tensor,
    *,
    margin: float | Tensor,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Say how far the true class fails to lead each other one by a margin, squared and summed
    [hinton2018]. Half precision comes back as float32.

    Arguments:
        activations: [b, k], of the class capsules.
        target: class indices [b], or a zero-one matrix [b, k] where several classes are there.
        margin: by how much the true class should lead; `spread_margin` has that of a step.
        weight, reduction: [k], and "mean", "sum" or "none", as cross_entropy of torch has them.

    >>> spread_loss(torch.tensor([[0.75, 0.5]]), torch.tensor([0]), margin=0.5)
    tensor(0.0625)
    """
    _check_matrix("activations", activations)
    check_tensor("target", target)
    wide = widen(activations)
    if target.shape == activations.shape:
        there = target.to(wide.dtype)
        leads = wide.unsqueeze(2) - wide.unsqueeze(1)  # [b, there, not there]
        pairs = there.unsqueeze(2) * (1 - there).unsqueeze(1)
        each = (pairs * torch.relu(margin - leads).square()).sum((1, 2))
    else:
        true = _index("activations", activations, target).unsqueeze(1)
        lead = wide.gather(1, true) - wide
        each = torch.relu(margin - lead).square().scatter(1, true, 0.0).sum(-1)
    return _reduced(each, target, wide, weight, reduction)


def spread_margin(step: int) -> float:
    """Give the margin of the spread loss after `step` updates, from 0.21 to 0.99 over 500,000.

    Arguments:
        step: how many updates there were.

    >>> round(spread_margin(200_000), 3)
    0.595
    """
    return 0.2 + 0.79 / (1 + math.exp(-min(10.0, step / 50_000 - 4)))


def cross_entropy_loss(
    scores: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """Compute the cross-entropy of logits [b, k], or of lengths as logits, against class indices
    [b].

    Lengths below one keep it above log(1 + (k − 1)/e). Half precision comes back as float32.

    Arguments:
        scores: [b, k], logits, or lengths taken as logits.
        target: class indices [b].
        weight, reduction: [k], and "mean", "sum" or "none", as cross_entropy of torch has them.

    >>> cross_entropy_loss(torch.zeros(1, 10), torch.tensor([3]))
    tensor(2.3026)
    """
    index = _index("scores", scores, target)
    check_choice("reduction", reduction, get_args(Reduction))
    counts = None if weight is None else _checked(weight, index, scores).to(widen(scores))
    return functional.cross_entropy(widen(scores), index, counts, reduction=reduction)


def binary_cross_entropy_loss(
    scores: Tensor,
    target: Tensor,
    *,
    scores_are: ScoresAre,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Compute the binary cross-entropy of every class, summed over them, mean over the batch. Half
    precision comes back as float32.

    Arguments:
        scores: [b, k], one a class.
        target: class indices [b], or a zero-one matrix [b, k] where several classes are there.
        scores_are: what an `Output` says of its scores. "lengths": they are probabilities.
            "independent_logits": they go through a sigmoid. "logits" are refused, for they are no
            judgements of single classes.
        weight, reduction: [k], and "mean", "sum" or "none", as cross_entropy of torch has them.

    >>> scores = torch.tensor([[0.5, 0.5]])
    >>> binary_cross_entropy_loss(scores, torch.tensor([0]), scores_are="lengths")
    tensor(1.3863)
    """
    if scores_are == "logits":
        raise TorchcapsError(
            "scores_are='logits' says that one class is present, but binary cross-entropy judges "
            "each class alone; use cross_entropy_loss, or scores_are='independent_logits'."
        )
    check_choice("scores_are", scores_are, ("independent_logits", "lengths"))
    _check_matrix("scores", scores)
    wide = widen(scores)
    present = _present("scores", wide, target)
    if scores_are == "independent_logits":
        each = functional.binary_cross_entropy_with_logits(wide, present, reduction="none")
    else:
        p = _probabilities(scores)
        each = -(present * p.log() + (1 - present) * (1 - p).log())
    return _reduced(each.sum(-1), target, wide, weight, reduction)


def focal_loss(
    scores: Tensor,
    target: Tensor,
    *,
    scores_are: ScoresAre,
    gamma: float = 2.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Compute a cross-entropy in which what is nearly right counts little: each log p, p the
    probability of what is true, times (1 − p)^γ [lin2017]. Half precision comes back as float32.

    Arguments:
        scores: [b, k], one a class.
        target: class indices [b], or a zero-one matrix [b, k] where several classes are there.
        scores_are: what an `Output` says of its scores. "logits" go through a softmax, and one
            class is true. Of "lengths", which are probabilities, and "independent_logits" each
            class is judged alone, and their losses are summed.
        gamma: 0 is the plain cross-entropy; the higher, the less an easy image counts.
        weight, reduction: [k], and "mean", "sum" or "none", as cross_entropy of torch has them.

    >>> scores = torch.tensor([[0.5, 0.5]])
    >>> focal_loss(scores, torch.tensor([0]), scores_are="lengths")
    tensor(0.3466)
    """
    check_number("gamma", gamma)
    check_choice("scores_are", scores_are, get_args(ScoresAre))
    _check_matrix("scores", scores)
    wide = widen(scores)
    if scores_are == "logits":
        true = _index("scores", scores, target).unsqueeze(1)
        truth = wide.log_softmax(-1).gather(1, true)
    else:
        present = _present("scores", wide, target).bool()
        if scores_are == "lengths":
            p = _probabilities(scores)
            truth = torch.where(present, p, 1 - p).log()
        else:
            truth = functional.logsigmoid(torch.where(present, wide, -wide))
    # At p = 1 a power below one would have no gradient.
    wrong = (-truth.expm1()).clamp_min(torch.finfo(truth.dtype).tiny)
    return _reduced(-(wrong**gamma * truth).sum(-1), target, wide, weight, reduction)


def reconstruction_loss(reconstruction: Tensor, image: Tensor) -> Tensor:
    """Compute the squared error summed over the pixels of an image, mean over the batch. Half
    precision comes back as float32.

    Of m images a sample, [b, m, c, h, w], as when each digit is drawn alone ([gu2021] §3.2), it is
    the sum of the m errors.

    Arguments:
        reconstruction: [b, c, h, w], or [b, m, c, h, w] where each of m objects is drawn alone.
        image: what should have been drawn, of the same shape.

    >>> reconstruction_loss(torch.zeros(2, 1, 4, 4), torch.ones(2, 1, 4, 4))
    tensor(16.)
    """
    check_tensor("reconstruction", reconstruction)
    check_tensor("image", image)
    so = "was the decoder built for another image size?"
    check_shape("a reconstruction of these images", reconstruction, image.shape, so)
    return (widen(reconstruction) - widen(image)).square().flatten(1).sum(-1).mean()


def _present(argument: str, scores: Tensor, target: Tensor) -> Tensor:
    """Give the zero-one matrix [b, k] of either kind of target."""
    _check_matrix(argument, scores)
    check_tensor("target", target)
    if target.shape == scores.shape:
        return target.to(scores.dtype)
    check_shape("target", target, (len(scores),), SEVERAL, of="whole numbers")
    check_classes(target, scores.shape[1])
    return one_hot(target.long(), scores.shape[1], scores.dtype)


def _index(argument: str, scores: Tensor, target: Tensor) -> Tensor:
    """Give the class indices [b], for losses that know one true class."""
    _check_matrix(argument, scores)
    check_tensor("target", target)
    check_shape("target", target, (len(scores),), ONE, of="whole numbers")
    check_classes(target, scores.shape[1])
    return target.long()


def _check_matrix(argument: str, scores: Tensor) -> None:
    if isinstance(scores, Output):
        raise TorchcapsError(
            f"{argument} must be a torch.Tensor, but came as Output, all that a network returns; "
            f"give its scores, out.scores, or take torchcaps.train.loss_of(out, labels)."
        )
    check_tensor(argument, scores)
    check_shape(argument, scores, ("batch", "class"))


def _reduced(
    each: Tensor, target: Tensor, scores: Tensor, weight: Tensor | None, reduction: str
) -> Tensor:
    """Give the losses [b] of the images of these scores [b, k], weighed and reduced."""
    check_choice("reduction", reduction, get_args(Reduction))
    counts = None
    if weight is not None:
        counts = _checked(weight, target, scores).to(each)[target.long()]
        each = counts * each
    if reduction != "mean":
        return each if reduction == "none" else each.sum()
    return each.mean() if counts is None else each.sum() / counts.sum()


def _checked(weight: Tensor, target: Tensor, scores: Tensor) -> Tensor:
    """Give the weights of classes, if these are such weights and every image shows one class."""
    check_tensor("weight", weight)
    check_shape("weight", weight, (scores.shape[1],), "one number a class", of="floating point")
    check_shape("target", target, (len(scores),), ONE_WEIGHT, of="whole numbers")
    return weight


def _probabilities(lengths: Tensor) -> Tensor:
    """Give lengths as probabilities of which there are logarithms."""
    # A squashed length may round to just above one.
    if may_look(lengths) and bool(((lengths < 0) | (lengths > 1.01)).any()):
        raise TorchcapsError(
            f"lengths must be probabilities, 0 to 1, but go from {float(lengths.min()):.3g} to "
            f"{float(lengths.max()):.3g}; squash the classes, or for logits say "
            f"scores_are='independent_logits'."
        )
    epsilon = torch.finfo(lengths.dtype).eps
    # At 0 and 1 themselves the gradient of a clamp is one thing in PyTorch 2.13, another in 2.14.
    wide = widen(lengths)
    wide = torch.where((wide < 0) | (wide > 1), wide.detach().clamp(0, 1), wide)
    return epsilon + (1 - 2 * epsilon) * wide
