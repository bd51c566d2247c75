"""DeepCaps: its cells, how it starts, and what its trace can be asked."""

import math

import pytest
import torch
from torch import nn

from on_meta import created
from torchcaps import create_model
from torchcaps.analysis import capsule_activity, capsule_layers, routing_dynamics
from torchcaps.data import ImageSet
from torchcaps.layers import Conv3dCapsules
from torchcaps.ops import margin_loss, reconstruction_loss, squash
from torchcaps.tasks import dissect
from torchcaps.types import Capsules

# Not square, and odd: 17 × 19 – 9 × 10 – 5 × 5 – 3 × 3 – 2 × 2.
IMAGE, CLASSES = (2, 17, 19), 3
N_4, N_3 = 2 * 2 * 32, 3 * 3 * 32


def made(seed=7, image=IMAGE, n_classes=CLASSES, **options):
    torch.manual_seed(seed)
    return create_model("deepcaps", image=image, n_classes=n_classes, **options)


@pytest.fixture(scope="module")
def net():
    """In training, where batch norm takes its statistics from the batch."""
    with torch.random.fork_rng():
        return made(iterations=2)


@pytest.fixture(scope="module")
def trained():
    """A network whose batch norm knows its images, for evaluation."""
    with torch.random.fork_rng():
        model = made()
        model.backbone[0][2].momentum = None  # the mean of all batches
        for _ in range(3):
            model(images(8))
    return model.eval()


def images(count=3, image=IMAGE):
    return torch.rand(count, *image, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    ("image", "sides"),
    [
        ((1, 28, 28), [(28, 28), (14, 14), (7, 7), (4, 4), (2, 2)]),
        ((3, 64, 64), [(64, 64), (32, 32), (16, 16), (8, 8), (4, 4)]),
        (IMAGE, [(17, 19), (9, 10), (5, 5), (3, 3), (2, 2)]),
        ((1, 1, 9), [(1, 9), (1, 5), (1, 3), (1, 2), (1, 1)]),
        ((1, 1, 1), [(1, 1)] * 5),
    ],
    ids=str,
)
def test_every_cell_halves_the_map_and_rounds_up(image, sides):
    with torch.device("meta"):
        model = create_model("deepcaps", image=image)
        maps, found = torch.empty(2, *image), []
        for part in (*model.backbone, model.halved):
            maps = part(maps)
            found.append(tuple(maps.shape[1:]))
        assert model.residual(maps).shape == maps.shape
    channels = (128, 32 * 4, 32 * 8, 32 * 8, 32 * 8)
    assert found == [(c, *side) for c, side in zip(channels, sides, strict=True)]
    skip, classes = model.layers["cell_4_skip"], model.layers["classes"]
    assert skip.child_grid == skip.parent_grid == (*sides[4], 32)
    assert classes.n_in == 32 * (math.prod(sides[4]) + math.prod(sides[3]))
    assert (classes.d_in, classes.d_out) == (8, 32)


def test_the_routed_layer_is_that_of_the_code():
    skip = created("deepcaps").layers["cell_4_skip"]
    assert isinstance(skip, Conv3dCapsules)
    assert (skip.iterations, skip.squash_over, skip.d_in, skip.d_out) == (3, "map", 8, 8)
    assert torch.equal(made().layers["cell_4_skip"].bias, torch.full((32, 8), 0.1))


def conv_caps(maps, weight, stride):
    """ConvCaps by hand: one convolution, and every type's vector squashed at every position."""
    s = nn.functional.conv2d(maps, weight, stride=stride, padding=1)
    types = [squash(each.movedim(1, -1)).movedim(-1, 1) for each in s.chunk(32, dim=1)]
    return torch.cat(types, dim=1)


def cell(maps, halved, skip, residual):
    a = conv_caps(maps, halved, 2)
    b = conv_caps(conv_caps(a, residual[0], 1), residual[1], 1)
    return a, b if skip is None else b + conv_caps(a, skip, 1)


def poses(maps):
    """[b, h * w * type, 8], by slices."""
    height, width = maps.shape[2:]
    return torch.stack(
        [
            maps[:, 8 * k : 8 * k + 8, y, x]
            for y in range(height)
            for x in range(width)
            for k in range(32)
        ],
        dim=1,
    )


def test_forward_is_the_cells_by_hand():
    model = made().double()
    x = images().double()
    weights = dict(model.named_parameters())
    stem, *below = model.backbone
    maps = stem[2](torch.relu(stem[0](x)))
    for depth in (1, 2, 3):
        name = f"backbone.{depth}"
        twice = [weights[f"{name}.residual.{k}.projection.weight"] for k in (0, 1)]
        _, maps = cell(
            maps,
            weights[f"{name}.halved.projection.weight"],
            weights[f"{name}.skip.projection.weight"],
            twice,
        )
    twice = [weights[f"residual.{k}.projection.weight"] for k in (0, 1)]
    a, b = cell(maps, weights["halved.projection.weight"], None, twice)
    skipped = model.layers["cell_4_skip"](Capsules(poses(a))).parents.pose
    children = torch.cat([poses(b) + skipped, poses(maps)], dim=1)
    classes = model.layers["classes"](Capsules(children)).parents
    out = model(x, keep="last")
    torch.testing.assert_close(out.classes.pose, classes.pose, rtol=0, atol=1e-12)
    torch.testing.assert_close(out.trace[1].children.pose, children, rtol=0, atol=1e-12)
    assert torch.equal(out.scores, out.classes.activation)
    assert out.scores_are == "lengths"
    assert len(below) == 3


def test_kernels_start_with_the_root_of_their_size():
    model = made()
    for name, weight in model.named_parameters():
        if name.endswith("projection.weight"):
            expected = weight.numel() ** -0.25
            assert weight.std().item() == pytest.approx(expected, rel=0.02), name
            assert weight.abs().max() <= math.sqrt(3) * expected
    assert model.layers["classes"].weight.std().item() == pytest.approx(0.05, rel=0.02)
    # 28 × 28: so started, capsules of cell 4 have a length; with Glorot's usual one they have none.
    model, x = made(image=(1, 28, 28)), images(4, (1, 28, 28))
    with torch.no_grad():
        assert 0.1 < model(x, keep="last").trace[0].children.activation.mean() < 0.9
    for name, weight in model.named_parameters():
        if name.endswith("projection.weight"):
            nn.init.xavier_uniform_(weight)
    with torch.no_grad():
        assert model(x, keep="last").trace[0].children.activation.max() < 1e-6


def test_batch_norm_is_that_of_keras():
    norm = made().backbone[0][2]
    assert (norm.eps, norm.momentum) == (1e-3, 0.01)


def test_trace(net):
    skip, classes = net(images(), keep="last").trace
    assert [skip.name, classes.name] == ["cell_4_skip", "classes"]
    assert (skip.child_grid, skip.parent_grid) == ((1, 1, 32), (2, 2, 32))
    assert (classes.child_grid, classes.parent_grid) == (None, None)
    assert skip.weight is net.layers["cell_4_skip"].weight
    assert classes.weight is net.layers["classes"].weight
    assert (skip.window, classes.window) == (None, None)


def test_a_child_of_the_skip_is_a_whole_map(net):
    x = images()
    children = net(x, keep="last").trace[0].children
    maps = net.halved(net.backbone(x))
    assert children.pose.shape == (3, 32, 2 * 2 * 8)
    k = 5
    of_type = maps[:, 8 * k : 8 * k + 8]  # [b, d, h, w]
    assert torch.equal(children.pose[:, k], of_type.movedim(1, -1).flatten(1))
    lengths = of_type.norm(dim=1)  # [b, h, w]
    torch.testing.assert_close(children.activation[:, k], lengths.square().mean((1, 2)).sqrt())
    assert children.activation.max() < 1


def test_a_trace_is_a_chain_for_analysis(trained):
    out = trained(images(6), keep="last")
    rows = [(name, capsules.pose.shape[1]) for name, capsules in capsule_layers(out.trace)]
    assert rows == [("primary", 32), ("cell_4_skip", N_4), ("classes", CLASSES)]
    # The first children of the classes are the parents below and what is added to them.
    skip, classes = out.trace
    b = classes.children.pose[:, :N_4] - skip.routed.parents.pose
    by_hand = poses(trained.residual(trained.halved(trained.backbone(images(6)))))
    torch.testing.assert_close(b, by_hand, rtol=0, atol=1e-6)
    activity = capsule_activity(out.trace)
    assert [layer.n for layer in activity.layers] == [32, N_4, CLASSES]
    dynamics = routing_dynamics(out.trace, drop_dead_parents=False, drop_dead_children=False)
    assert [(each.n_children, each.n_parents) for each in dynamics.layers] == [
        (32, N_4),
        (N_4 + N_3, CLASSES),
    ]
    assert all(each.dyr > 0 for each in dynamics.layers)


def test_it_can_be_dissected(trained):
    shown = ImageSet("noise", images(6), torch.arange(6) % CLASSES, ("a", "b", "c"))
    dissection = dissect(trained, shown, label="DeepCaps")
    assert [layer.n for layer in dissection.activity.layers] == [32, N_4, CLASSES]
    assert {picture.about for picture in dissection.pictures} >= {"tree", "turn"}


def test_the_uniform_twin_routes_nowhere():
    dynamic, uniform = made().eval(), made(routing="uniform").eval()
    for key, tensor in dynamic.state_dict().items():
        assert torch.equal(tensor, uniform.state_dict()[key])
    for layer in uniform(images(), keep="steps").trace:
        (step,) = layer.routed.steps
        even = 1 / step.coupling.shape[-1]
        torch.testing.assert_close(step.coupling, torch.full_like(step.coupling, even))


def test_options_are_those_of_the_routed_layers():
    model = made(detach="votes", iterations=4, weight_std=0.2, squash_over="pose")
    skip, classes = model.layers["cell_4_skip"], model.layers["classes"]
    assert (classes.routing.detach, classes.routing.iterations) == ("votes", 4)
    assert (skip.detach, skip.iterations, skip.squash_over) == ("votes", 4, "pose")
    assert made().layers["cell_4_skip"].squash_over == "map"
    assert classes.weight.std().item() == pytest.approx(0.2, rel=0.02)


def loss_of(model, x, y):
    out = model(x, y)
    return margin_loss(out.scores, y) + 0.0005 * reconstruction_loss(out.reconstruction, x)


@pytest.mark.parametrize("detach", ["none", "votes"])
def test_gradient_reaches_every_parameter(detach):
    model = made(bias=True, detach=detach)
    loss_of(model, images(4), torch.arange(4) % CLASSES).backward()
    starved = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert starved == []
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("image", [(1, 1, 1), (2, 1, 3)], ids=str)
def test_no_image_is_too_small(image):
    model, x = made(image=image).eval(), images(1, image)
    out = model(x, keep="last")
    assert out.scores.shape == (1, CLASSES)
    assert out.scores.isfinite().all()
    assert out.reconstruction.shape == (1, *image)
