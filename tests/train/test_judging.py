"""What is right is counted image by image, by one process or by several, with what it must beat."""

from dataclasses import dataclass, field

import pytest
import torch

from laid_runs import Channels
from torchcaps.analysis.shares import Commonest
from torchcaps.data import ImageSet
from torchcaps.train import accuracy
from torchcaps.train.class_measures import class_measures
from torchcaps.train.judging import judge
from torchcaps.train.ranks import Ranks
from torchcaps.types import Output


def seven(*labels):
    """Images of which `Channels` says 0, 1, 2, 0, 1, 2, 2."""
    pixels = torch.eye(3)[[0, 1, 2, 0, 1, 2, 2], :, None, None]
    return ImageSet("seven", pixels, torch.tensor(labels), ("a", "b", "c"))


def test_accuracy_is_the_share_of_right_answers():
    images = seven(0, 1, 2, 1, 1, 0, 2)
    model = Channels()
    assert accuracy(model, images) == 5 / 7
    # The last batch is smaller and counts no more for it.
    assert accuracy(model, images, batch_size=3) == 5 / 7
    assert model.scale.grad is None


@dataclass(frozen=True)
class OneOf(Ranks):
    """A rank that hears of what the others gathered before, in the same turn."""

    said: list[list[object]] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)

    def gathered(self, mine):
        at = len(self.turn) % 3
        self.turn.append(at)
        self.said[at].append(mine)
        return self.said[at]


def judged(images, ranks, **more):
    """What the last rank to speak says, which has heard of all."""
    said = [[], [], []]
    every = (OneOf(rank, ranks, said=said) for rank in range(ranks))
    return [judge(Channels(), images, each, **more) for each in every][-1]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_ranks_judge_every_image_once(ranks):
    # Six in batches of two, then one: five are right, and of the classes the last is commonest.
    images = seven(0, 1, 2, 2, 1, 0, 2)
    found = judged(images, ranks, most=2)
    assert found[:3] == (5 / 7, Commonest("c", 3 / 7), None)
    measures = found.measures
    assert measures == judge(Channels(), images, Ranks()).measures
    # Of a, b and c one of two, both, and two of three are found.
    assert measures.macro["balanced_accuracy"].value == pytest.approx((1 / 2 + 1 + 2 / 3) / 3)
    assert found.numbers() == {
        "measures": measures.numbers(),
        "test_accuracy": 5 / 7,
        "commonest": {"class": "c", "share": 3 / 7},
        "constant": None,
    }


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_rank_knows_the_groups_of_its_images(ranks):
    pixels = torch.rand(20, 2, 1, 1, generator=torch.Generator().manual_seed(0))
    labels, groups = torch.arange(20) % 2, tuple(f"p{at // 4}" for at in range(20))
    images = ImageSet("twenty", pixels, labels, ("a", "b"), groups=groups)
    found = judged(images, ranks, most=6)
    out = Output(pixels[:, :, 0, 0], "lengths")
    assert found.measures == class_measures(out, labels, ("a", "b"), groups=groups)


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_are_constant_together(ranks):
    pixels = torch.tensor([[0.1, 0.9]]).repeat(4, 1)[:, :, None, None]
    images = ImageSet("four", pixels, torch.tensor([0, 0, 0, 1]), ("a", "b"))
    found = judged(images, ranks)
    assert found[:3] == (1 / 4, Commonest("a", 3 / 4), "b")
    assert found.measures.macro["balanced_accuracy"].value == 1 / 2
