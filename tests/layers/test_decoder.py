"""The decoder: it sees one class alone, the given one or the longest."""

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.layers import Decoder
from torchcaps.types import Capsules

IMAGE, CLASSES, D = (3, 4, 5), 4, 2


def made():
    return Decoder(n_classes=CLASSES, d_in=D, image=IMAGE).double()


def test_given_class_is_drawn_and_the_others_are_hidden():
    decoder = made()
    pose = torch.randn(3, CLASSES, D, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([2, 0, 3])
    drawn = decoder(Capsules(pose), target)
    assert drawn.shape == (3, *IMAGE)
    alone = torch.zeros_like(pose)
    for sample, k in enumerate(target):
        alone[sample, k] = pose[sample, k]
    by_hand = decoder.layers(alone.flatten(1)).reshape(3, *IMAGE)
    assert torch.equal(drawn, by_hand)
    (gradient,) = torch.autograd.grad(drawn.sum(), pose)
    seen = gradient.abs().sum(-1) > 0
    assert torch.equal(seen, torch.nn.functional.one_hot(target, CLASSES).bool())


def test_without_a_target_the_longest_is_drawn():
    decoder = made()
    pose = torch.tensor(
        [[[0.1, 0.0], [0.3, 0.4], [-0.6, 0.0], [0.0, 0.2]]], dtype=torch.float64
    )  # lengths 0.1, 0.5, 0.6, 0.2
    drawn = decoder(Capsules(pose))
    assert torch.equal(drawn, decoder(Capsules(pose), torch.tensor([2])))
    assert not torch.equal(drawn, decoder(Capsules(pose), torch.tensor([1])))


def test_pixels_lie_between_zero_and_one():
    drawn = made()(Capsules(100 * torch.randn(2, CLASSES, D, dtype=torch.float64)))
    assert drawn.min() >= 0
    assert drawn.max() <= 1


def test_size_on_paper():
    # 4·2 → 512 → 1024 → 3·4·5, each with its bias
    expected = (8 * 512 + 512) + (512 * 1024 + 1024) + (1024 * 60 + 60)
    assert sum(p.numel() for p in made().parameters()) == expected


@pytest.mark.parametrize("target", [torch.tensor([1]), torch.tensor(1), torch.ones(3)])
def test_a_target_that_is_not_one_an_image_is_refused(target):
    pose = torch.randn(3, CLASSES, D, dtype=torch.float64)
    with pytest.raises(TorchcapsError, match=r"^target must be class indices, int64 \[3\], one an"):
        made()(Capsules(pose), target)
