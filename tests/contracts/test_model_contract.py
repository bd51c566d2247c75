"""What every network keeps, whatever its family, routing, image size and class count."""

import io
import re
from functools import cache

import pytest
import torch
from torch.utils import _pytree

from torchcaps import Capsules, LayerTrace, Output, create_model, list_models, load, save
from torchcaps.errors import TorchcapsError
from torchcaps.ops import margin_loss, reconstruction_loss

# One line a network: the routings it takes.
ROUTINGS = {"capsnet": ("dynamic", "uniform"), "mitterreiter_5x16": ("dynamic", "uniform")}
LAYERS = {
    "capsnet": ["classes"],
    "mitterreiter_5x16": ["hidden_2", "hidden_3", "hidden_4", "classes"],
}
EVERY = [(name, routing) for name, routings in ROUTINGS.items() for routing in routings]
# Not square, and as small as every family allows.
IMAGE, CLASSES = (1, 17, 19), 3

every = pytest.mark.parametrize(("name", "routing"), EVERY)


def made(name, routing, image=IMAGE, n_classes=CLASSES, seed=11, **options):
    torch.manual_seed(seed)
    return create_model(name, image=image, n_classes=n_classes, routing=routing, **options)


@cache
def shared(name, routing):
    """A network in evaluation mode, for tests that change nothing in it."""
    return made(name, routing).eval()


def images(count=4, image=IMAGE):
    return torch.rand(count, *image, generator=torch.Generator().manual_seed(5))


def loss_of(model, x, y):
    out = model(x, y)
    return margin_loss(out.scores, y) + 0.0005 * reconstruction_loss(out.reconstruction, x)


def test_every_network_is_here():
    assert sorted(ROUTINGS) == sorted(LAYERS) == list_models()


@pytest.mark.parametrize(
    ("image", "n_classes"), [((1, 20, 24), 7), ((3, 24, 17), 2), ((1, 17, 18), 1)]
)
@every
def test_shapes_and_gradients(name, routing, image, n_classes):
    model = made(name, routing, image, n_classes)
    x, y = images(4, image), torch.arange(4) % n_classes
    out = model(x, y, keep="last")
    assert out.scores.shape == (4, n_classes)
    assert out.scores_are == "lengths"
    assert out.scores.min() >= 0
    assert out.scores.max() < 1
    assert out.classes.pose.shape[:2] == (4, n_classes)
    assert torch.equal(out.scores, out.classes.activation)
    assert torch.equal(out.probabilities(), out.scores)
    assert out.reconstruction.shape == x.shape
    for layer in out.trace:
        coupling = layer.routed.steps[-1].coupling
        assert coupling.shape == (
            4,
            layer.children.pose.shape[1],
            layer.routed.parents.pose.shape[1],
        )
    (loss_of(model, x, y)).backward()
    # With one parent a coupling is one, whatever its logit: that prior has nothing to learn.
    idle = {"layers.classes.routing.prior"} if n_classes == 1 else set()
    starved = {key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert starved <= idle
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@every
def test_saved_and_loaded_gives_the_same_bits(name, routing, tmp_path):
    model, x = shared(name, routing), images()
    save(model, tmp_path / "net.safetensors")
    again = load(tmp_path / "net.safetensors")(x, keep="last")
    for a, b in zip(_leaves(model(x, keep="last")), _leaves(again), strict=True):
        assert torch.equal(a, b)


def _leaves(out):
    return [leaf for leaf in _pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]


@every
def test_an_image_alone_is_the_image_in_a_batch(name, routing):
    model, x = made(name, routing).double().eval(), images(3).double()
    batch = model(x)
    for k in range(3):
        alone = model(x[k : k + 1])
        torch.testing.assert_close(alone.scores[0], batch.scores[k], rtol=0, atol=1e-10)
        torch.testing.assert_close(
            alone.reconstruction[0], batch.reconstruction[k], rtol=0, atol=1e-10
        )


@every
def test_an_empty_batch(name, routing):
    out = shared(name, routing)(images(0))
    assert out.scores.shape == (0, CLASSES)


@every
def test_a_seed_fixes_the_weights(name, routing):
    one, same, other = (made(name, routing, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", list_models())
def test_the_uniform_twin_draws_the_very_same_weights(name):
    dynamic, uniform = (made(name, kind).state_dict() for kind in ("dynamic", "uniform"))
    assert all(torch.equal(dynamic[key], tensor) for key, tensor in uniform.items())
    assert all(key.endswith("prior") for key in dynamic.keys() - uniform.keys())


@every
def test_loss_falls_on_32_fixed_images(name, routing):
    model = made(name, routing)
    x, y = images(32), torch.arange(32) % CLASSES
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(9):
        loss = loss_of(model, x, y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]


@every
def test_keep_changes_no_bit(name, routing):
    model, x = shared(name, routing), images()
    none, last, steps = (model(x, keep=keep) for keep in ("none", "last", "steps"))
    assert none.trace == ()
    for other in (last, steps):
        assert torch.equal(other.scores, none.scores)
        assert torch.equal(other.classes.pose, none.classes.pose)
        assert torch.equal(other.reconstruction, none.reconstruction)
    for a, b in zip(last.trace, steps.trace, strict=True):
        assert torch.equal(a.routed.steps[-1].coupling, b.routed.steps[-1].coupling)
    expected = 3 if routing == "dynamic" else 1
    assert {len(layer.routed.steps) for layer in steps.trace} == {expected}


@every
def test_trace_names_its_layers_and_couplings_sum_to_one(name, routing):
    model = shared(name, routing)
    trace = model(images(), keep="last").trace
    assert [layer.name for layer in trace] == LAYERS[name]
    for layer in trace:
        assert layer.normalised_over == "parents"
        assert layer.weight is model.layers[layer.name].weight
        coupling = layer.routed.steps[-1].coupling
        total = coupling.sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total))
        if routing == "uniform":
            assert torch.equal(coupling, torch.full_like(coupling, 1 / coupling.shape[-1]))


@every
def test_the_decoder_draws_the_target_or_the_longest(name, routing):
    model, x = shared(name, routing), images()
    longest = model(x)
    told = model(x, longest.scores.argmax(-1))
    assert torch.equal(told.reconstruction, longest.reconstruction)
    other = model(x, (longest.scores.argmax(-1) + 1) % CLASSES)
    assert not torch.equal(other.reconstruction, longest.reconstruction)
    assert torch.equal(other.scores, longest.scores)


@every
def test_output_and_trace_are_pytrees(name, routing):
    out = shared(name, routing)(images(), keep="last")
    twice = _pytree.tree_map_only(torch.Tensor, lambda tensor: 2 * tensor, out)
    assert isinstance(twice, Output)
    assert all(isinstance(layer, LayerTrace) for layer in twice.trace)
    assert isinstance(twice.trace[0].children, Capsules)
    assert [layer.name for layer in twice.trace] == LAYERS[name]
    assert twice.scores_are == "lengths"
    for a, b in zip(_leaves(twice), _leaves(out), strict=True):
        assert torch.equal(a, 2 * b)


@pytest.mark.parametrize("keep", ["none", "last"])
@every
def test_an_exported_network_comes_back(name, routing, keep):
    model, x = shared(name, routing), images(2)
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (x,), {"keep": keep}), file)
    file.seek(0)
    out = torch.export.load(file).module()(x, keep=keep)
    assert isinstance(out, Output)
    for a, b in zip(_leaves(out), _leaves(model(x, keep=keep)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


SHAPE = (
    "this network takes images [batch, 1, 17, 19], but came with shape {came}; a single image "
    "needs image.unsqueeze(0), another size needs create_model(..., image=(channels, height, "
    "width))."
)
NOT_FINITE = (
    "the images hold NaN or infinite values; every pixel must be finite, in [0, 1]: look for a "
    "division by zero in the preparation of the images."
)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (torch.zeros(1, 17, 19), SHAPE.format(came=[1, 17, 19])),
        (torch.zeros(2, 1, 19, 17), SHAPE.format(came=[2, 1, 19, 17])),
        (torch.zeros(2, 3, 17, 19), SHAPE.format(came=[2, 3, 17, 19])),
        (
            torch.zeros(2, 1, 17, 19, dtype=torch.uint8),
            "images must be floating point in [0, 1], but came as torch.uint8; "
            "for bytes use image.float() / 255.",
        ),
        (torch.full((2, 1, 17, 19), torch.nan), NOT_FINITE),
        (torch.full((2, 1, 17, 19), torch.inf), NOT_FINITE),
    ],
    ids=["rank", "size", "channels", "bytes", "nan", "inf"],
)
@pytest.mark.parametrize("name", list_models())
def test_images_that_do_not_fit(name, image, expected):
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}$"):
        shared(name, "dynamic")(image)


@pytest.mark.parametrize(
    "target",
    [torch.tensor([0, CLASSES]), torch.tensor([0, -1]), torch.tensor([0.0, 1.0])],
    ids=["beyond", "negative", "float"],
)
@pytest.mark.parametrize("name", list_models())
def test_targets_that_do_not_fit(name, target):
    with pytest.raises(TorchcapsError):
        shared(name, "dynamic")(images(2), target)


@pytest.mark.parametrize("name", list_models())
def test_images_of_another_precision(name):
    with pytest.raises(TorchcapsError):
        shared(name, "dynamic")(images(2).double())


@pytest.mark.parametrize("name", list_models())
def test_images_in_half_precision_are_not_taken_for_broken(name):
    model = create_model(name, image=(1, 20, 24), n_classes=3).half().eval()
    # Their sum is beyond what float16 can hold.
    image = torch.ones(256, 1, 20, 24, dtype=torch.float16)
    assert model(image).scores.isfinite().all()


@pytest.mark.parametrize("name", list_models())
def test_a_network_is_one_graph(name):
    torch.manual_seed(0)
    model = create_model(name, image=(1, 20, 24), n_classes=3).eval()
    image = torch.rand(2, 1, 20, 24)
    whole = torch.compile(model, fullgraph=True, backend="eager")
    assert torch.equal(whole(image).scores, model(image).scores)
