"""What holds for every maker: the same image in any batch, and held-out images share nothing."""

import hashlib

import pytest
import torch

from laid_images import blocks, levels, noise
from torchcaps.data import ImageSet
from torchcaps.data.make.affnist_style import AffnistStyle
from torchcaps.data.make.expanded import Expanded
from torchcaps.data.make.multi_mnist import DiverseMultiMnist, MultiMnist

MAKERS = [Expanded, AffnistStyle, MultiMnist, DiverseMultiMnist]


@pytest.mark.parametrize("maker", [Expanded, AffnistStyle, MultiMnist])
def test_image_n_comes_of_image_n_modulo_the_base(maker) -> None:
    base = noise(10)
    labels = maker(base, copies=3).batch(slice(None)).labels
    assert torch.equal(labels.view(30, -1)[:, 0], base.labels.repeat(3))


@pytest.mark.parametrize("maker", MAKERS)
def test_training_and_validation_share_no_image_of_the_base(maker) -> None:
    base = blocks(100, rim=2, side=12, n_classes=5)
    rest, held = maker(base, copies=20).hold_out(share=0.3, seed=1)
    assert (len(rest), len(held)) == (1400, 600)
    seen = []
    for images in (rest, held):
        batch = images.batch(slice(None))
        alone = batch.pixels[:, None] if batch.parts is None else batch.parts
        # A block keeps its level inside, however it is moved.
        seen.append(set(levels(alone).flatten().tolist()))
    assert seen[0].isdisjoint(seen[1])
    assert (len(seen[0]), len(seen[1])) == (70, 30)
    # The seed of what is drawn stays.
    assert rest.seed == held.seed == 0


@pytest.mark.parametrize(
    ("maker", "expected"),
    [
        (Expanded, "c95f4080ff59"),
        (AffnistStyle, "9416cdcef4c0"),
        (MultiMnist, "6c050eb93fd3"),
        (DiverseMultiMnist, "d48d35c45e24"),
    ],
)
def test_the_images_are_these_on_every_machine(maker, expected: str) -> None:
    ramp = (torch.arange(20 * 28 * 28) * 7919 % 256).to(torch.uint8).view(20, 1, 28, 28)
    base = ImageSet("ramp", ramp, torch.arange(20) % 3, ("a", "b", "c"))
    pixels = maker(base, copies=5).batch(slice(None)).pixels
    assert hashlib.sha256(pixels.numpy().tobytes()).hexdigest()[:12] == expected
