"""smallNORB by viewpoint: which directions are learned, and which are asked about."""

import itertools

import pytest
import torch

from torchcaps.data import ImageSet, load
from torchcaps.data.make.viewpoints import viewpoints

AZIMUTHS, ELEVATIONS = range(0, 360, 20), range(30, 75, 5)


def every_direction(*_: object) -> ImageSet:
    """Two toys seen from each direction of smallNORB; the image's level is its number."""
    azimuth, elevation, _ = zip(*itertools.product(AZIMUTHS, ELEVATIONS, range(2)), strict=True)
    count = len(azimuth)
    images = torch.arange(count).view(-1, 1, 1, 1) / count
    facts = {"azimuth": torch.tensor(azimuth), "elevation": torch.tensor(elevation)}
    return ImageSet("smallnorb", images, torch.arange(count) % 5, tuple("abcde"), facts=facts)


@pytest.mark.parametrize(
    ("angle", "familiar", "novel"),
    [
        ("azimuth", [0, 20, 40, 300, 320, 340], list(range(60, 300, 20))),
        ("elevation", [30, 35, 40], [45, 50, 55, 60, 65, 70]),
    ],
)
def test_a_third_of_the_directions_is_familiar(angle, familiar, novel) -> None:
    images = every_direction()
    parted = {kind: viewpoints(images, angle, kind) for kind in ("familiar", "novel")}
    assert parted["familiar"].facts[angle].unique().tolist() == familiar
    assert parted["novel"].facts[angle].unique().tolist() == novel
    assert len(parted["novel"]) == 2 * len(parted["familiar"])
    for part in parted.values():
        assert part.name == f"smallnorb-{angle}"
        where = (part.images.flatten() * len(images)).round().long()
        assert torch.equal(part.labels, images.labels[where])
        assert torch.equal(part.facts["azimuth"], images.facts["azimuth"][where])
    assert set(parted["familiar"].images.flatten().tolist()).isdisjoint(
        parted["novel"].images.flatten().tolist()
    )


@pytest.mark.parametrize("angle", ["azimuth", "elevation"])
def test_names_say_what_is_asked_about(monkeypatch, tmp_path, angle) -> None:
    monkeypatch.setattr("torchcaps.data.make.viewpoints.smallnorb", every_direction)
    for name, tested in (
        (f"smallnorb-{angle}", "novel"),
        (f"smallnorb-{angle}-familiar", "familiar"),
    ):
        for split, kind in (("train", "familiar"), ("test", tested)):
            found = load(name, split=split, root=tmp_path)
            assert found.digest() == viewpoints(every_direction(), angle, kind).digest()
