"""A head fits what lies below it: sizes counted by hand."""

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps.layers import (
    AttentionCapsules,
    CapsuleHead,
    Conv3dCapsules,
    ConvCapsules,
    DenseCapsules,
    EMPrimaryCapsules,
    EMRouting,
    PrimaryCapsules,
)

IMAGE = (3, 14, 18)


def backbone():
    """Feature maps of 5 × 7 from images of 14 × 18."""
    return nn.Sequential(nn.Conv2d(3, 6, 5, stride=2), nn.BatchNorm2d(6), nn.ReLU())


def test_nobody_multiplies_five_by_seven_by_four():
    head = CapsuleHead.after(backbone(), image=IMAGE, n_classes=3, types=4)
    assert head.grid == (5, 7, 4)
    assert (head.classes.n_in, head.classes.n_out) == (140, 3)


@pytest.mark.parametrize(("kernel", "stride", "grid"), [(3, 1, (3, 5, 8)), (3, 2, (2, 3, 8))])
def test_a_kernel_and_a_stride_leave_the_grid_that_torch_computes(kernel, stride, grid):
    head = CapsuleHead.after(backbone(), image=IMAGE, n_classes=3, kernel=kernel, stride=stride)
    assert head.grid == grid
    out = head(backbone()(torch.rand(2, *IMAGE)), keep="last")
    assert out.scores.shape == (2, 3)
    assert out.trace[0].child_grid == grid
    assert out.trace[0].children.pose.shape == (2, grid[0] * grid[1] * 8, 8)


def test_scores_are_the_lengths_of_its_own_capsules():
    torch.manual_seed(0)
    below, head = backbone(), CapsuleHead.after(backbone(), image=IMAGE, n_classes=3)
    features = below(torch.rand(2, *IMAGE))
    out = head(features)
    poses = head.classes(head.primary(features)).parents.pose
    assert (out.scores_are, out.trace) == ("lengths", ())
    torch.testing.assert_close(out.scores, poses.norm(dim=-1))


def test_it_learns_in_a_loop_of_ones_own():
    torch.manual_seed(0)
    below = backbone()
    head = CapsuleHead.after(below, image=IMAGE, n_classes=3)
    images, labels = torch.rand(12, *IMAGE), torch.arange(12) % 3
    optimiser = torch.optim.Adam([*below.parameters(), *head.parameters()], lr=0.01)
    losses = []
    for _ in range(15):
        loss = tc.ops.margin_loss(head(below(images)).scores, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.6 * losses[0]


def test_dense_capsules_follow_any_capsules():
    primary = PrimaryCapsules(nn.Conv2d(6, 12, 1), d_out=3)
    first = DenseCapsules.after(backbone(), primary, image=IMAGE, n_out=9, d_out=2)
    assert (first.n_in, first.d_in, first.child_grid) == (140, 3, (5, 7, 4))
    second = DenseCapsules.after(first, n_out=3, d_out=4, routing="uniform")
    assert (second.n_in, second.d_in, second.child_grid) == (9, 2, None)
    windows = ConvCapsules(child_grid=(5, 7, 4), d_in=3, types=2, d_out=6, kernel=3)
    # Whole maps of a convolution, and capsules that attend to each other.
    maps = Conv3dCapsules(child_grid=(2, 3, 2), d_in=4, types=5, d_out=3)
    assert DenseCapsules.after(maps, n_out=3, d_out=4, sharing="type").child_grid == (2, 3, 5)
    attending = AttentionCapsules(n=9, d=2)
    top = DenseCapsules.after(attending, n_out=3, d_out=4)
    assert (top.n_in, top.d_in, top.child_grid) == (9, 2, None)
    made = attending(tc.Capsules(torch.rand(2, 9, 2))).parents
    assert top(made).parents.pose.shape == (2, 3, 4)
    after_windows = DenseCapsules.after(windows, n_out=3, d_out=4, sharing="type")
    assert (after_windows.n_in, after_windows.child_grid) == (30, (3, 5, 2))
    em = EMPrimaryCapsules(nn.Conv2d(6, 12, 1), nn.Conv2d(6, 3, 1), d_out=4)
    matrices = DenseCapsules.after(
        backbone(), em, image=IMAGE, n_out=3, d_out=4, pose="matrix", routing=EMRouting()
    )
    assert matrices.n_in == 105


def head(below=None, image=IMAGE, **options):
    return CapsuleHead.after(below or backbone(), image=image, n_classes=3, **options)


def test_options_of_a_named_routing_go_to_it():
    made = head(iterations=5, squash="exp").classes.routing
    assert (made.iterations, made.squash) == (5, "exp")


def test_half_the_precision_is_fine_under_autocast_and_any_in_a_head_of_its_own():
    features = torch.rand(2, 6, 5, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert head()(features.bfloat16()).scores.shape == (2, 3)
    assert head().double()(features.double()).scores.dtype == torch.float64


@pytest.mark.parametrize(
    "chosen",
    [{"padding": "same"}, {"padding": "valid"}, {"padding": (2, 1), "dilation": 2, "stride": 2}],
)
def test_a_projection_may_pad_and_dilate(chosen):
    projection = nn.Conv2d(6, 8, 3, **chosen)
    maps = torch.rand(2, 6, 9, 8)
    _, _, height, width = projection(maps).shape
    classes = DenseCapsules(n_in=height * width * 2, d_in=4, n_out=3, d_out=4)
    head = CapsuleHead(PrimaryCapsules(projection, d_out=4), classes, grid=(height, width, 2))
    head(maps)
