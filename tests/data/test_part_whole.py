"""The part-whole set: samples are functions of their index, and the truth is what was drawn."""

import hashlib
import math
from collections import Counter
from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.data.image_set import ImageSet
from torchcaps.data.make.part_shapes import part_distance, part_masks
from torchcaps.data.make.part_whole import OBJECTS, PartWholeSpec, part_whole
from torchcaps.data.part_truth import PART_NAMES, PartTruth
from torchcaps.data.warp import cos_sin

STILL = {"rotation": 0.0, "shift": 0.0, "scale": (0.5, 0.5), "jitter": 0.0}
BARE = {"clutter": (0, 0), "occlusion": 0.0, "noise": 0.0}


def tensors(images: ImageSet) -> dict[str, Tensor]:
    truth = images.truth
    found = {field.name: getattr(truth, field.name) for field in fields(truth)}
    found |= {"images": images.images, "labels": images.labels}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def test_shapes_and_types() -> None:
    found = part_whole("train", 5, spec=PartWholeSpec(size=28, clutter=(1, 2), parts=4))
    truth = found.truth
    assert (found.images.shape, found.images.dtype) == ((5, 1, 28, 28), torch.uint8)
    assert (found.labels.shape, found.labels.dtype) == ((5,), torch.int64)
    assert found.class_names == tuple(OBJECTS)
    assert (truth.part.shape, truth.part.dtype) == ((5, 6), torch.int64)
    assert (truth.owner.shape, truth.owner.dtype) == ((5, 6), torch.int64)
    assert (truth.pose.shape, truth.pose.dtype) == ((5, 6, 4), torch.float32)
    assert (truth.whole_pose.shape, truth.occluder.shape) == ((5, 4), (5, 3))
    masks = part_masks(truth, torch.tensor([4, 0]))
    assert (masks.shape, masks.dtype) == ((2, 6, 28, 28), torch.bool)
    assert torch.equal(masks[0], part_masks(truth, torch.arange(5))[4])


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_a_sample_does_not_depend_on_its_batch(chunk: int) -> None:
    whole = tensors(part_whole("test", 130, seed=5))
    # An odd start and odd ends: vector instructions meet their tails elsewhere.
    piece = tensors(part_whole("test", 101, seed=5, start=13, chunk=chunk))
    for name, value in piece.items():
        assert torch.equal(value, whole[name][13:114]), name


def test_images_are_the_ones_they_have_always_been() -> None:
    # Every operation is rounded correctly, so this holds on any machine. If it changes, so do all
    # numbers measured on the set: say so in the changelog.
    found = part_whole("train", 100)
    digest = hashlib.sha256(found.images.numpy().tobytes() + found.labels.numpy().tobytes())
    assert digest.hexdigest()[:16] == "37a5513ee53b8b0c"


def test_splits_and_seeds_share_no_sample() -> None:
    spec = PartWholeSpec(noise=0.0)
    families = [("train", 0), ("validation", 0), ("test", 0), ("train", 1)]
    poses = [part_whole(s, 300, spec=spec, seed=k).truth.whole_pose for s, k in families]
    images = [part_whole(s, 300, spec=spec, seed=k).images.flatten(1) for s, k in families]
    assert len(torch.cat(poses).unique(dim=0)) == 1200
    assert len(torch.cat(images).unique(dim=0)) == 1200


def test_one_knob_leaves_the_other_draws_alone() -> None:
    plain = part_whole("train", 50).truth
    busy = part_whole("train", 50, spec=PartWholeSpec(clutter=(5, 8), occlusion=0.9)).truth
    assert torch.equal(plain.whole_pose, busy.whole_pose)
    assert torch.equal(plain.pose[:, :3], busy.pose[:, :3])


@pytest.mark.parametrize("n_classes", [2, 10])
def test_labels_are_balanced(n_classes: int) -> None:
    n = 4000
    spec = PartWholeSpec(size=16, n_classes=n_classes, **BARE)
    count = torch.bincount(part_whole("train", n, spec=spec).labels, minlength=10)
    assert count[n_classes:].sum() == 0
    expected = n / n_classes
    chi_square = ((count[:n_classes] - expected) ** 2 / expected).sum()
    # Beyond these once in a thousand, for 1 and 9 degrees of freedom.
    assert chi_square < {2: 10.8, 10: 27.9}[n_classes]


@pytest.mark.parametrize("parts", [3, 4])
def test_no_part_decides_the_class_and_arrangement_matters(parts: int) -> None:
    rows = {name: row[:parts] for name, row in OBJECTS.items()}
    holders = Counter(part for row in rows.values() for part in {p.part for p in row})
    assert set(holders) == set(PART_NAMES)
    assert min(holders.values()) >= 2
    bags = Counter(tuple(sorted(p.part for p in row)) for row in rows.values())
    assert set(bags.values()) == {2}


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_no_two_wholes_are_the_same(parts: int) -> None:
    assert len({frozenset(row[:parts]) for row in OBJECTS.values()}) == len(OBJECTS)


def test_parts_of_a_still_whole_lie_where_one_computes_by_hand() -> None:
    found = part_whole("train", 40, spec=PartWholeSpec(**STILL, **BARE))
    truth = found.truth
    # Centre of 32 pixels: 15.5; size: half of 16; reach: 0.56 * 8 = 4.48; part: 0.42 * 8 = 3.36.
    assert torch.equal(truth.whole_pose, torch.tensor([15.5, 15.5, 0, 8]).expand(40, 4))
    aquila = truth.pose[found.labels == 0][0]
    expected = [[15.5, 11.02, 0, 3.36], [11.02, 15.5, 0, 3.36], [19.98, 15.5, 0, 3.36]]
    torch.testing.assert_close(aquila, torch.tensor(expected))
    names = [truth.part_names[p] for p in truth.part[found.labels == 0][0]]
    assert names == ["disk", "bar", "bar"]


def test_parts_lie_where_the_whole_carries_their_canonical_poses() -> None:
    found = part_whole("train", 60, spec=PartWholeSpec(jitter=0.0, rotation=math.pi, parts=4))
    truth = found.truth
    assert truth.whole_pose[:, 2].abs().max() > 2.5
    for n, label in enumerate(found.labels.tolist()):
        x, y, rotation, size = truth.whole_pose[n].tolist()
        for slot, canonical in enumerate(OBJECTS[found.class_names[label]]):
            turn = complex(math.cos(rotation), math.sin(rotation))
            place = complex(x, y) + size * turn * complex(canonical.x, canonical.y)
            expected = [place.real, place.imag, rotation + canonical.rotation]
            expected.append(size * canonical.size)
            torch.testing.assert_close(truth.pose[n, slot].tolist(), expected, rtol=0, atol=1e-5)
            assert truth.part_names[truth.part[n, slot]] == canonical.part
            assert truth.owner[n, slot] == 0


def test_jitter_moves_parts_by_no_more_than_it_says() -> None:
    moved, still = (
        part_whole("train", 300, spec=PartWholeSpec(jitter=j, rotation=0.0)).truth
        for j in (0.1, 0.0)
    )
    difference = (moved.pose - still.pose)[:, :3] / still.whole_pose[:, None, 3:]
    assert 0.09 < difference[..., :2].abs().max() <= 0.1 + 1e-5
    assert 0.18 < moved.pose[:, :3, 2].abs().max() <= 0.2
    growth = moved.pose[:, :3, 3] / still.pose[:, :3, 3] - 1
    assert 0.09 < growth.abs().max() <= 0.1 + 1e-5


@pytest.mark.parametrize("size", [24, 28, 32, 40, 64])
def test_wholes_stay_inside_the_frame(size: int) -> None:
    truth = part_whole("train", 400, spec=PartWholeSpec(size=size, noise=0.0)).truth
    centre, radius = truth.pose[:, :3, :2], truth.pose[:, :3, 3:]
    # Pixel centres lie at whole numbers, so the frame goes from -0.5 to size - 0.5.
    assert (centre - radius).min() >= -0.5
    assert (centre + radius).max() <= size - 0.5
    # And no visible whole fades away: each has pixels of its own.
    assert part_masks(truth, torch.arange(400))[:, :3].flatten(1).any(1).all()


def test_masks_are_the_pixels_that_the_parts_brighten() -> None:
    found = part_whole("train", 200, spec=PartWholeSpec(size=64, **BARE))
    truth = found.truth
    masks = part_masks(truth, torch.arange(200))
    image = found.images[:, 0].int()
    # All parts of a whole share one ink, and each covers some pixel fully.
    ink = image.flatten(1).amax(1)[:, None, None]
    # Left out: pixels at exactly half the ink, before rounding, and those that a rim dims.
    alone = (part_distance(truth.part, truth.pose, 64) <= 1.3).sum(1) <= 1
    settled = alone & ((2 * image - ink).abs() > 1)
    assert torch.equal(masks.any(1)[settled], (2 * image >= ink)[settled])
    assert (masks.any(1) & settled).sum() > 0.98 * masks.sum()
    assert masks.flatten(2).any(2).all()


def test_no_pixel_has_two_owners() -> None:
    truth = part_whole("train", 200, spec=PartWholeSpec(clutter=(4, 8), occlusion=0.5)).truth
    masks = part_masks(truth, torch.arange(200))
    assert masks.sum(1).max() == 1
    assert not masks[truth.part < 0].any()


def test_an_occluder_hides_part_of_the_whole_and_nothing_else() -> None:
    spec = {"size": 64, "noise": 0.0, "clutter": (0, 0)}
    hidden = part_whole("train", 200, spec=PartWholeSpec(occlusion=1.0, **spec))
    plain = part_whole("train", 200, spec=PartWholeSpec(occlusion=0.0, **spec))
    x, y, radius = hidden.truth.occluder[:, :, None, None].unbind(1)
    assert (radius > 0).all()
    assert (plain.truth.occluder == 0).all()
    rows, columns = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    distance = ((columns - x) ** 2 + (rows - y) ** 2).sqrt() - radius
    # Deep inside lies flat grey, round(0.25 * 255); outside nothing has changed.
    assert (hidden.images[:, 0][distance < -0.5] == 64).all()
    assert torch.equal(hidden.images[:, 0][distance > 0.5], plain.images[:, 0][distance > 0.5])
    before = part_masks(plain.truth, torch.arange(200))
    after = part_masks(hidden.truth, torch.arange(200))
    assert torch.equal(after, before & (distance > 0)[:, None])
    # The disk hides half of the circle around one of three parts, and some of its neighbours.
    lost = 1 - after.flatten(1).sum(1) / before.flatten(1).sum(1)
    assert 0.1 < lost.mean() < 0.3
    assert lost.max() < 0.6


def test_occlusion_is_the_share_of_occluded_images() -> None:
    spec = PartWholeSpec(size=16, occlusion=0.2, clutter=(0, 0), noise=0.0)
    share = (part_whole("train", 2000, spec=spec).truth.occluder[:, 2] > 0).float().mean()
    assert abs(share - 0.2) < 4 * math.sqrt(0.2 * 0.8 / 2000)


def test_clutter_is_as_many_stray_parts_as_the_truth_says() -> None:
    clear = {"noise": 0.0, "occlusion": 0.0, "size": 48}
    busy = part_whole("train", 200, spec=PartWholeSpec(clutter=(1, 4), **clear))
    bare = part_whole("train", 200, spec=PartWholeSpec(clutter=(0, 0), **clear))
    truth = busy.truth
    assert truth.part.shape == (200, 7)
    assert (truth.owner[:, 3:] == -1).all()
    filled = truth.part[:, 3:] >= 0
    assert torch.equal(filled.sum(1).unique(), torch.tensor([1, 2, 3, 4]))
    assert (truth.pose[:, 3:][~filled] == 0).all()
    masks = part_masks(truth, torch.arange(200))
    own, stray = masks[:, :3].any(1), masks[:, 3:]
    # Strays lie behind the whole: its own pixels are those of the bare image.
    assert torch.equal(busy.images[:, 0][own], bare.images[:, 0][own])
    # A stray part brightens its pixels to half of its ink, 0.45 or more, unless a rim dims them.
    dimmed = (part_distance(truth.part, truth.pose, 48) <= 1.3).sum(1) > 1
    assert busy.images[:, 0][stray.any(1) & ~dimmed].min() >= 0.5 * 0.45 * 255
    # And no pixel is bright that no part is near to.
    near = (part_distance(truth.part, truth.pose, 48) < 0.5).any(1)
    assert (busy.images[:, 0][~near] == 0).all()


def test_noise_has_the_standard_deviation_it_says() -> None:
    spec = {"size": 64, "clutter": (0, 0), "occlusion": 0.0}
    noisy = part_whole("train", 50, spec=PartWholeSpec(noise=0.05, **spec)).images.float() / 255
    plain = part_whole("train", 50, spec=PartWholeSpec(noise=0.0, **spec)).images.float() / 255
    # Neither end of the grey scale is within 3.47 deviations of these pixels.
    middle = (plain > 0.2) & (plain < 0.8)
    assert abs((noisy - plain)[middle].std() - 0.05) < 0.002


def test_shapes_have_the_areas_one_computes_by_hand() -> None:
    pose = torch.tensor([128.0, 128.0, 0.7, 100.0]).expand(1, len(PART_NAMES), 4)
    distance = part_distance(torch.arange(len(PART_NAMES))[None], pose, 257)[0]
    area = (distance <= 0).flatten(1).sum(1) / 100**2
    expected = {
        "disk": math.pi * 0.85**2,
        "ring": math.pi * (0.9**2 - 0.5**2),
        "bar": 1.9 * 0.56,
        "cross": 2 * 1.84 * 0.52 - 0.52**2,
        "triangle": 3 * math.sqrt(3) / 4,
        "square": 1.36**2,
        # Two boxes less their overlap.
        "ell": 0.52 * 1.44 + 1.36 * 0.52 - 0.52 * 0.52,
        "tee": 1.44 * 0.52 + 0.52 * 1.6 - 0.52 * 0.52,
    }
    torch.testing.assert_close(
        area, torch.tensor([expected[n] for n in PART_NAMES]), rtol=0.01, atol=0
    )
    rows, columns = torch.meshgrid(torch.arange(257), torch.arange(257), indexing="ij")
    outside = ((rows - 128) ** 2 + (columns - 128) ** 2).sqrt() > 100.5
    assert (distance[:, outside] > 0).all()


def test_a_quarter_turn_is_clockwise_on_the_screen() -> None:
    pose = torch.tensor([[[8.0, 8, 0, 6], [8, 8, math.pi / 2, 6]]])
    for name in PART_NAMES:
        part = torch.full((1, 2), PART_NAMES.index(name))
        upright, turned = part_distance(part, pose, 17)[0]
        torch.testing.assert_close(turned, upright.rot90(-1), rtol=0, atol=1e-4)


def test_cos_sin() -> None:
    angle = torch.linspace(-20, 20, 10_001, dtype=torch.float64)
    cos, sin = cos_sin(angle)
    torch.testing.assert_close(cos, angle.cos(), rtol=0, atol=1e-9)
    torch.testing.assert_close(sin, angle.sin(), rtol=0, atol=1e-9)


def convnet() -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_in, n_out in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 10))


def convnet_accuracy(seed: int) -> float:
    """Accuracy on held-out images after five epochs on as many images as the demo trains on."""
    train, held_out = part_whole("train", 9_000), part_whole("validation", 2_000)
    torch.manual_seed(seed)
    net = convnet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(5):
        for batch in torch.randperm(len(train)).split(128):
            loss = F.cross_entropy(net(train.images[batch] / 255), train.labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        right = net(held_out.images / 255).argmax(1) == held_out.labels
    return float(right.float().mean())


@pytest.mark.slow
def test_a_small_convnet_learns_it_but_not_to_the_end() -> None:
    assert 0.80 < convnet_accuracy(seed=0) < 0.95


def test_some_of_the_images_keep_their_truth():
    images = part_whole("train", 6)
    some = images.take(torch.tensor([4, 1]))
    assert torch.equal(some.truth.pose, images.truth.pose[[4, 1]])
    masks = part_masks(images.truth, torch.tensor([4, 1]))
    assert torch.equal(part_masks(some.truth, torch.tensor([0, 1])), masks)


def test_a_rim_hides_what_lies_behind_it() -> None:
    def disk_at(x: float) -> Tensor:
        return torch.tensor([x, 16.0, 0.0, 5.0])

    # Two disks of radius 0.85 × 5 in one row: the front one ends at 15.75, the other begins at
    # 15.25.
    truth = PartTruth(
        part=torch.zeros(1, 2, dtype=torch.int64),
        pose=torch.stack([disk_at(11.5), disk_at(19.5)])[None],
        owner=torch.zeros(1, 2, dtype=torch.int64),
        whole_pose=torch.zeros(1, 4),
        occluder=torch.zeros(1, 3),
        size=32,
    )
    rows = part_masks(truth, torch.tensor([0]))[0, :, 16]
    front, behind = (row.nonzero().flatten().tolist() for row in rows)
    assert front == list(range(8, 16))
    # Column 16 is a quarter of a pixel from the edge of the front disk, within its rim of 0.8.
    assert behind == list(range(17, 24))
