"""A head fits what lies below it: sizes counted by hand, errors that name the right thing."""

import pytest
import torch
from torch import nn

import torchcaps as tc
from error_text import text_of
from torchcaps.layers import (
    AttentionCapsules,
    CapsuleHead,
    Conv3dCapsules,
    ConvCapsules,
    DenseCapsules,
    DynamicRouting,
    EMPrimaryCapsules,
    EMRouting,
    InvertedRouting,
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


def test_the_backbone_is_left_as_it_was():
    below = backbone()
    before = {name: value.clone() for name, value in below.state_dict().items()}
    CapsuleHead.after(below, image=IMAGE, n_classes=3)
    for name, value in below.state_dict().items():
        assert torch.equal(value, before[name]), name


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


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: head(nn.Sequential(backbone(), nn.Flatten())),
            "capsules need a feature map [batch, channels, height, width], but two images give "
            "[2, 210]; leave out the pooling, the flattening and the classifier at the end.",
        ),
        (
            lambda: head(image=(14, 18)),
            "image must be (channels, height, width), three whole numbers from 1, but came as "
            "(14, 18).",
        ),
        (
            lambda: head(nn.Conv2d),
            "a head comes after a backbone, an nn.Module from images to feature maps, but got "
            "<class 'torch.nn.modules.conv.Conv2d'>.",
        ),
        (
            lambda: head(nn.LSTM(18, 5)),
            "LSTM should make feature maps of images [batch, 3, 14, 18], but does not take them, "
            "nor larger ones (LSTM: Expected input to be 2D or 3D, got 4D instead); give the "
            "convolutions of a network for images.",
        ),
        (
            lambda: head(nn.Bilinear(18, 18, 5)),
            "Bilinear should make feature maps of images [batch, 3, 14, 18], but does not take "
            "them, nor larger ones (Bilinear.forward() missing 1 required positional argument: "
            "'input2'); give the convolutions of a network for images.",
        ),
        (
            lambda: head()(torch.rand(2, *IMAGE)),
            "a head takes the feature maps of its backbone, [batch, 6, height, width], but got "
            "[2, 3, 14, 18]; write head(backbone(images)).",
        ),
        (
            lambda: head()(backbone()(torch.rand(2, *IMAGE))[0]),
            "a head takes the feature maps of its backbone, [batch, 6, height, width], but got "
            "[6, 5, 7], which lacks the batch axis; write head(backbone(images[:1])) for one "
            "image.",
        ),
        (
            lambda: head()([torch.rand(2, 6, 5, 7)]),
            "a head takes the feature maps of its backbone, [batch, 6, height, width], but got "
            "list; write head(backbone(images)).",
        ),
        (
            lambda: head()(torch.zeros(2, 6, 5, 7, dtype=torch.uint8)),
            "feature maps must be floating point, but came as torch.uint8; convert them with "
            "features.to(torch.float32).",
        ),
        (
            lambda: head()(torch.zeros(2, 6, 5, 7, dtype=torch.float64)),
            "feature maps and the weights of a head must share a dtype, but are torch.float64 and "
            "torch.float32; convert the features with features.to(torch.float32), or the head with "
            "head.to(torch.float64).",
        ),
        (
            lambda: head(typs=4),
            "CapsuleHead.after takes no typs; did you mean 'types'? known: agreement, backbone, "
            "bias, ….",
        ),
        (
            lambda: head(iteration=4),
            "CapsuleHead.after takes no iteration; did you mean 'iterations'? known: routing, "
            "prior, stride, kernel, ….",
        ),
        (
            lambda: head(routing="uniform", iterations=3),
            "uniform routing has no use for iterations=3; leave it out.",
        ),
        (
            lambda: head(normalise="mean"),
            "dynamic routing has no use for normalise='mean'; leave it out.",
        ),
        (
            lambda: head(routing=DynamicRouting(), iterations=4),
            "a routing that is given as an object has its options already, so iterations would do "
            "nothing; say it where DynamicRouting(…) is made.",
        ),
        (
            lambda: DenseCapsules.after(
                PrimaryCapsules(nn.Conv2d(3, 8, 3), d_out=8), image=IMAGE, n_out=3, d_out=4, n_in=3
            ),
            "DenseCapsules.after takes no n_in; known: coordinates, d_out, image, n_out, pose, "
            "routing, sharing, vote_bias, weight_std.",
        ),
        (
            lambda: head(kernel=6),
            "a kernel of 6×6 does not fit on the 5×7 map that the backbone makes of (3, 14, 18); "
            "use kernel=5 or less.",
        ),
        (
            lambda: head(routing=InvertedRouting()),
            "a head scores by the activations of its classes, and InvertedRouting gives none; take "
            "another routing.",
        ),
        (
            lambda: DenseCapsules.after(
                PrimaryCapsules(nn.Conv2d(3, 8, 3), d_out=8), n_out=3, d_out=4
            ),
            "how many capsules the primary layer makes depends on the image; say which: "
            "image=(channels, height, width).",
        ),
        (
            lambda: DenseCapsules.after(backbone(), image=IMAGE, n_out=3, d_out=4),
            "capsules come after primary capsules or another capsule layer, but the last one given "
            "is Sequential; put layers.PrimaryCapsules(projection, d_out=8) between, or take "
            "layers.CapsuleHead.after(backbone, …), which brings its own.",
        ),
        (
            lambda: DenseCapsules.after(
                PrimaryCapsules(nn.Conv2d(3, 7, 3), d_out=8), image=IMAGE, n_out=3, d_out=4
            ),
            "the projection makes 7 channels, which primary capsules of 8 components cannot share "
            "out; take a multiple of 8.",
        ),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(make, sentence):
    assert text_of(make) == sentence


def test_options_of_a_named_routing_go_to_it():
    made = head(iterations=5, squash="exp").classes.routing
    assert (made.iterations, made.squash) == (5, "exp")


def test_half_the_precision_is_fine_under_autocast_and_any_in_a_head_of_its_own():
    features = torch.rand(2, 6, 5, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert head()(features.bfloat16()).scores.shape == (2, 3)
    assert head().double()(features.double()).scores.dtype == torch.float64


def test_a_head_knows_what_layers_call_the_size_of_a_class():
    found = text_of(
        lambda: CapsuleHead.after(nn.Conv2d(1, 4, 5), image=(1, 24, 24), n_classes=7, d_out=16)
    )
    assert found.startswith("CapsuleHead.after takes no d_out; did you mean 'd_class'?")


@pytest.mark.parametrize(
    ("kernel", "stride", "expected", "got"),
    [(1, 1, "5 × 7", "7 × 5"), (3, 2, "2 × 3", "3 × 2")],
)
def test_maps_on_their_side_are_refused_though_they_have_as_many_positions(
    kernel, stride, expected, got
):
    """Capsules were read at the places of others, by weights and traces that say where they lie."""
    head = CapsuleHead.after(backbone(), image=IMAGE, n_classes=3, kernel=kernel, stride=stride)
    maps = torch.rand(2, 6, 5, 7)
    head(maps)
    assert text_of(lambda: head(maps.transpose(2, 3))) == (
        f"this head has primary capsules at {expected} positions, rows × columns, but features "
        f"[2, 6, 7, 5] have {got} for them; are height and width exchanged, or are the images of "
        f"another size than the head was made for?"
    )


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
