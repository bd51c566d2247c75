"""Which images a network gets right, by the criterion of the data set: the same for every network.

Ambiguities:
1. [tsai2020] does not say from which probability on a digit is named: one half.
"""

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor

from torchcaps.data.batch import JudgedBy
from torchcaps.data.sample import present_classes
from torchcaps.errors import TorchcapsError
from torchcaps.types import Output

# A class is named when its probability is at least this.
THERE = 0.5

CRITERIA: Mapping[JudgedBy, str] = MappingProxyType(
    {
        "class": "the highest score is that of the class",
        "top": "the highest scores, as many as objects are shown, are those of their classes",
        "set": "the classes of probability one half or more are those that are there, no more and "
        "no fewer",
    }
)


def is_correct(out: Output, labels: Tensor, *, judged_by: JudgedBy) -> Tensor:
    """Say which images are right, bool [b].

    labels: one class an image [b], or m classes [b, m]; a class named twice is there once.
    judged_by: a key of CRITERIA, that of the data set. "top" is that of MultiMNIST [gu2021] §3.2,
        "set" that of DiverseMultiMNIST [tsai2020] B.2. Each image is judged by itself, so the batch
        it comes in changes nothing.
    """
    if judged_by == "class" and labels.ndim == 1:
        return out.scores.argmax(-1) == labels
    named = named_classes(out, labels, judged_by=judged_by)
    return (named == present_classes(labels, out.scores.shape[-1])).all(-1)


def named_classes(out: Output, labels: Tensor, *, judged_by: JudgedBy) -> Tensor:
    """Give the classes that an answer names, bool [b, n_classes].

    Of the labels only the shape is read: for "top", how many objects every image shows.
    """
    n_classes = out.scores.shape[-1]
    if judged_by == "class":
        if labels.ndim != 1:
            raise TorchcapsError(
                f'judged_by="class" takes one class an image, but the labels have shape '
                f'{list(labels.shape)}; let images of several objects say "top" or "set".'
            )
        return present_classes(out.scores.argmax(-1), n_classes)
    if judged_by == "set":
        if out.scores_are == "logits":
            raise TorchcapsError(
                "a network that scores classes by a softmax cannot name a set of them, because its "
                "probabilities sum to one however many are there; take one that scores by lengths "
                "or by independent logits."
            )
        return out.probabilities() >= THERE
    objects = 1 if labels.ndim == 1 else labels.shape[-1]
    return present_classes(out.scores.topk(objects, dim=-1).indices, n_classes)
