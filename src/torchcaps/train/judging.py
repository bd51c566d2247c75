"""What a network gets right, by the criterion of the images, and what it has to beat."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps._counts import check_count
from torchcaps.analysis.shares import Commonest, commonest, constant_answer
from torchcaps.data import Images
from torchcaps.train.answers import named_classes, present_classes
from torchcaps.train.batches import Batches
from torchcaps.train.ranks import Ranks

__all__ = ["Judged", "accuracy", "judge"]


class Judged(NamedTuple):
    """The share of images that are right, the line it has to beat, and what the network says of
    every image where that is always the same."""

    accuracy: float
    commonest: Commonest
    constant: str | None

    def numbers(self) -> dict[str, Any]:
        """As the result of a run has them."""
        return {
            "test_accuracy": self.accuracy,
            "commonest": self.commonest.numbers(),
            "constant": self.constant,
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
    right, _, _ = _answers(model, Batches(images, batch_size))
    return right / len(images)


def judge(model: nn.Module, images: Images, ranks: Ranks, *, most: int = 256) -> Judged:
    """Show it every image once, all ranks together, at most so many at once."""
    batches = Batches(images, min(256, most), rank=ranks.rank, ranks=ranks.count)
    right, named, labels = _answers(model, batches)
    everybodys = [each for some in ranks.gathered(labels) for each in some]
    names = images.class_names
    return Judged(
        ranks.total(right) / len(images),
        commonest(torch.cat(everybodys), names),
        constant_answer(ranks.total(named), len(images), names),
    )


@torch.no_grad()
def _answers(model: nn.Module, batches: Batches) -> tuple[int, Tensor, list[Tensor]]:
    """Of this rank's images: how many are right, of how many each class is named, the labels."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    was_training = model.training
    model.eval()
    right, named, seen = 0, torch.zeros((), dtype=torch.int64), []
    judged_by = batches.images.judged_by
    for pixels, labels, _ in batches:
        if batches.share:
            out = model(pixels.to(device))
            said = named_classes(out, labels, judged_by=judged_by).cpu()
            right += int((said == present_classes(labels.cpu(), said.shape[-1])).all(-1).sum())
            named = named + said.sum(0)
            seen.append(labels.cpu())
    model.train(was_training)
    return right, named, seen
