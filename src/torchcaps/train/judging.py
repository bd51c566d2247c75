"""What a network gets right, by the criterion of the images, and what it has to beat."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps._checks import check_count
from torchcaps.analysis.shares import Commonest, commonest, constant_answer
from torchcaps.data import Images
from torchcaps.data.sample import present_classes
from torchcaps.models.images import device_of, evaluating
from torchcaps.train.answers import named_classes
from torchcaps.train.batches import Batches
from torchcaps.train.class_measures import ClassMeasures, class_measures
from torchcaps.train.ranks import Ranks
from torchcaps.types import Output, ScoresAre


class Judged(NamedTuple):
    """What `judge` finds: accuracy, the line to beat, a constant answer, measures of classes."""

    accuracy: float
    commonest: Commonest
    constant: str | None
    measures: ClassMeasures

    def numbers(self) -> dict[str, Any]:
        """Give them as the result of a run has them."""
        return {
            "test_accuracy": self.accuracy,
            "commonest": self.commonest.numbers(),
            "constant": self.constant,
            "measures": self.measures.numbers(),
        }


def accuracy(model: nn.Module, images: Images, *, batch_size: int = 256) -> float:
    """Share of images that the network gets right, by the criterion `images.judged_by`.

    Arguments:
        model: the network.
        images: labelled images of its size and classes.
        batch_size: how many go through at once.

    >>> accuracy(run.model(), test)
    """
    check_count("batch_size", batch_size, of="images")
    return _answers(model, Batches(images, batch_size)).right / len(images)


def share_right(model: nn.Module, images: Images, ranks: Ranks, *, most: int = 256) -> float:
    """Give the accuracy alone, found by all ranks together, at most so many images at once."""
    return ranks.total(_answers(model, _shared(images, ranks, most)).right) / len(images)


def judge(model: nn.Module, images: Images, ranks: Ranks, *, most: int = 256) -> Judged:
    """Show it every image once, all ranks together, at most so many at once."""
    batches = _shared(images, ranks, most)
    mine, names = _answers(model, batches), images.class_names
    groups: tuple[str, ...] | None = getattr(images, "groups", None)
    of_mine = [groups[at] for at in batches.own().tolist()] if groups else []
    everybodys = ranks.gathered((mine.labels, mine.scores, of_mine))
    labels, scores = (torch.cat([each for rank in everybodys for each in rank[k]]) for k in (0, 1))
    measures = class_measures(
        Output(scores, mine.scores_are),
        labels,
        names,
        judged_by=images.judged_by,
        groups=[each for rank in everybodys for each in rank[2]] or None,
    )
    return Judged(
        ranks.total(mine.right) / len(images),
        commonest(labels, names),
        constant_answer(ranks.total(mine.named), len(images), names),
        measures,
    )


class _Answers(NamedTuple):
    """What a network says of images: how many are right, or called each class; by batches."""

    right: int
    named: Tensor
    labels: list[Tensor]
    scores: list[Tensor]
    scores_are: ScoresAre


def _shared(images: Images, ranks: Ranks, most: int) -> Batches:
    return Batches(images, min(256, most), rank=ranks.rank, ranks=ranks.count)


@torch.no_grad()
def _answers(model: nn.Module, batches: Batches) -> _Answers:
    """Ask what the network says of this rank's images."""
    device = device_of(model)
    right, named, all_labels, scores = 0, torch.zeros((), dtype=torch.int64), [], []
    scores_are: ScoresAre = "logits"
    judged_by = batches.images.judged_by
    with evaluating(model):
        for pixels, labels, _ in batches:
            if batches.share:
                out = model(pixels.to(device))
                said = named_classes(out, labels, judged_by=judged_by).cpu()
                right += int((said == present_classes(labels.cpu(), said.shape[-1])).all(-1).sum())
                named = named + said.sum(0)
                all_labels.append(labels.cpu())
                scores.append(out.scores.float().cpu())
                scores_are = out.scores_are
    return _Answers(right, named, all_labels, scores, scores_are)
