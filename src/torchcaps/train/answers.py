"""Which images a network gets right, whether they show one object or several."""

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.types import Output

__all__ = ["is_correct", "named_classes", "present_classes"]

# A class is said to be there when its probability is at least this. [tsai2020] leaves it open.
THERE = 0.5


def is_correct(out: Output, labels: Tensor) -> Tensor:
    """Which images are right, bool [b].

    Labels [b]: the class of the highest score is the label.
    Labels [b, m], m objects an image: the m highest scores are those of the m classes
    [gu2021] §3.2. Where classes are scored independently of each other, and for an image that names
    a class twice because it shows fewer objects, the classes whose probability is at least one half
    are those that are there, no more and no fewer [tsai2020] B.2. Each image is judged by itself,
    so the batch it comes in changes nothing.
    """
    if labels.ndim == 1:
        return out.scores.argmax(-1) == labels
    return (named_classes(out, labels) == present_classes(labels, out.scores.shape[-1])).all(-1)


def named_classes(out: Output, labels: Tensor) -> Tensor:
    """The classes that an answer to images with these labels names, bool [b, n_classes]."""
    if labels.ndim == 1:
        return present_classes(out.scores.argmax(-1, keepdim=True), out.scores.shape[-1])
    there = present_classes(labels, out.scores.shape[-1])
    several = labels.shape[-1]
    fewer = there.sum(-1, keepdim=True) < several
    if out.scores_are == "logits" and bool(fewer.any()):
        raise TorchcapsError(
            "a network that scores classes by a softmax cannot say how many are there, but these "
            "images show different numbers of objects; take one that scores by lengths or by "
            "independent logits."
        )
    likely = out.probabilities() >= THERE
    if out.scores_are == "independent_logits":
        return likely
    top = present_classes(out.scores.topk(several, dim=-1).indices, out.scores.shape[-1])
    return torch.where(fewer, likely, top)


def present_classes(labels: Tensor, n_classes: int) -> Tensor:
    """The classes that are there, bool [b, n_classes], of labels [b, m]."""
    there = torch.zeros(len(labels), n_classes, dtype=torch.bool, device=labels.device)
    return there.scatter(-1, labels, True)
