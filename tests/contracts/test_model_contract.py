"""What every network keeps, whatever its family, routing, image size and class count.

Every preset is in networks.toml with its own routing; `slow` are the routings that it may be
swapped to, and presets that at this size are the very network of another line. A network is made
once for all tests of its line.
"""

import copy
import io
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree

from error_text import text_of
from tables import beside
from torchcaps import Capsules, LayerTrace, Output, create_model, list_models, load, save
from torchcaps.layers import SelfRouting, use_backend
from torchcaps.models import MODELS, CapsuleNetwork
from torchcaps.models.deepcaps import DeepCaps
from torchcaps.ops import (
    binary_cross_entropy_loss,
    cross_entropy_loss,
    margin_loss,
    reconstruction_loss,
)

NOTHING = MappingProxyType({})


class Line(NamedTuple):
    """How small a network is tested, and how it learns; networks.toml says it of each."""

    image: tuple[int, int, int]
    layers: tuple[str, ...] = ("classes",)
    options: Mapping[str, Any] = NOTHING
    rate: float = 1e-3
    steps: int = 8
    left: float = 0.9
    slow_to_learn: bool = False
    is_normed_by_one: bool = False
    traced: bool = False


CLASSES = 3


def table():
    for name, said in sorted(beside(__file__, "networks.toml").items()):
        lists = {key: tuple(x) for key, x in said.items() if isinstance(x, list)}
        yield name, Line(**said | lists)


TABLE = dict(table())


def made_of(name):
    build = MODELS[name].build
    return (
        getattr(build, "func", build),
        TABLE[name].image,
        MODELS[name].options | TABLE[name].options,
    )


MADE_OF = {name: made_of(name) for name in TABLE}


def is_twin(name):
    """Whether an earlier line makes the very same network."""
    earlier = list(TABLE)[: list(TABLE).index(name)]
    return any(MADE_OF[each] == MADE_OF[name] for each in earlier)


def lines():
    for name in TABLE:
        slow = pytest.mark.slow if is_twin(name) else ()
        yield pytest.param((name, None), id=name, marks=slow)
        own = MODELS[name].options.get("routing")
        for routing in MODELS[name].routings:
            if routing != own:
                yield pytest.param((name, routing), id=f"{name}-{routing}", marks=pytest.mark.slow)


def made(name, routing=None, image=None, n_classes=CLASSES, seed=11, **options):
    torch.manual_seed(seed)
    image = TABLE[name].image if image is None else image
    swapped = {} if routing is None else {"routing": routing}
    chosen = TABLE[name].options | swapped | options
    return create_model(name, image=image, n_classes=n_classes, **chosen)


@pytest.fixture(scope="module", params=list(lines()))
def line(request):
    """A network in evaluation mode, for tests that change nothing in it, and how it was made."""
    name, routing = request.param
    return name, routing, made(name, routing).eval()


def images(name, count=4):
    return torch.rand(count, *TABLE[name].image, generator=torch.Generator().manual_seed(5))


def targets(count):
    return torch.arange(count) % CLASSES


def loss_of(out, x, y):
    if out.scores_are == "lengths":
        loss = margin_loss(out.scores, y)
    elif out.scores_are == "logits":
        loss = cross_entropy_loss(out.scores, y)
    else:
        loss = binary_cross_entropy_loss(out.scores, y, scores_are="independent_logits")
    if out.reconstruction is not None:
        loss = loss + 0.0005 * reconstruction_loss(out.reconstruction, x)
    return loss


def leaves(out):
    return [leaf for leaf in _pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]


def is_concurrent(model):
    return getattr(model, "schedule", "sequential") == "concurrent"


def is_masked(model):
    """Whether its decoder draws one class."""
    decoder = getattr(model, "decoder", None)
    return decoder is not None and getattr(decoder, "mask", "class") == "class"


def test_every_network_is_here():
    assert sorted(TABLE) == list_models()


def test_images_are_odd():
    for name, each in TABLE.items():
        channels, height, width = each.image
        assert height != width
        assert channels != MODELS[name].image[0]


@pytest.mark.drawn(3)
def test_shapes_and_gradients(line):
    name, _, fixed = line
    model = copy.deepcopy(fixed).train()
    by_themselves = [part for part in model.modules() if isinstance(part, SelfRouting)]
    for each in by_themselves:
        # Of zeros nothing below has a gradient.
        torch.nn.init.normal_(each.weight)
    x, y = images(name), targets(4)
    out = model(x, y, keep="last")
    assert out.scores.shape == (4, CLASSES)
    if out.scores_are == "lengths":
        assert out.scores.min() >= 0
        assert out.scores.max() <= 1
        assert torch.equal(out.probabilities(), out.scores)
    if isinstance(model, CapsuleNetwork | DeepCaps):
        assert out.classes.pose.shape[:2] == (4, CLASSES)
        if out.scores_are == "lengths":
            assert torch.equal(out.scores, out.classes.activation)
    else:
        assert out.trace == ()
    if out.reconstruction is not None:
        assert out.reconstruction.shape == x.shape
    loss_of(out, x, y).backward()
    # Cross-entropy does not see what is added to every logit.
    idle = {"head.bias"} if out.scores_are == "logits" and hasattr(model, "layers") else set()
    if by_themselves and out.reconstruction is None:
        # Classes score by the couplings alone: votes for them are for a decoder.
        idle.add("layers.classes.weight")
    starved = {key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert starved <= idle
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_couplings_are_as_large_as_the_layer(line):
    name, _, model = line
    for layer in model(images(name), keep="last").trace:
        coupling = layer.routed.steps[-1].coupling
        n_in, n_out = layer.children.pose.shape[1], layer.routed.parents.pose.shape[1]
        if layer.window is None:
            assert coupling.shape == (4, n_in, n_out)
        else:
            (rows, columns), (k_h, k_w) = layer.window.positions, layer.window.kernel
            slots = k_h * k_w * layer.child_grid[2]
            types = layer.parent_grid[2]
            assert coupling.shape == (4, rows * columns, slots, types)
            assert n_out == rows * columns * types


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("grown", "n_classes"), [((7, 4), 7), ((0, 11), 1)])
@pytest.mark.parametrize("name", TABLE)
def test_other_images_and_class_counts(name, grown, n_classes):
    _, height, width = TABLE[name].image
    image = (5, height + grown[0], width + grown[1])
    with torch.device("meta"):
        model = made(name, image=image, n_classes=n_classes)
        out = model(torch.rand(2, *image))
    assert out.scores.shape == (2, n_classes)
    assert out.reconstruction is None or out.reconstruction.shape == (2, *image)


@pytest.mark.parametrize("name", ["capsnet", "mitterreiter_5x16", "efficient_capsnet"])
def test_one_class_has_nothing_to_choose(name):
    model, x, y = made(name, n_classes=1), images(name), torch.zeros(4, dtype=torch.int64)
    loss_of(model(x, y), x, y).backward()
    # With one parent a coupling is one, whatever its logit; what is added to it later counts.
    idle = {"layers.classes.routing.prior"} if name == "mitterreiter_5x16" else set()
    starved = {key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert starved == idle


@pytest.mark.drawn(3)
def test_saved_and_loaded_gives_the_same_bits(line, tmp_path):
    name, _, model = line
    save(model, tmp_path / "net.safetensors")
    # Copied, because sums of a BLAS depend on where in memory a tensor starts.
    again = copy.deepcopy(load(tmp_path / "net.safetensors"))
    (tmp_path / "net.safetensors").unlink()
    assert again.config == model.config
    x = images(name)
    found, before = (leaves(each(x, keep="last")) for each in (again, model))
    torch.testing.assert_close(found, before, rtol=0, atol=0)


@pytest.mark.drawn(3)
def test_an_image_alone_is_the_image_in_a_batch(line):
    name, _, fixed = line
    model, x = copy.deepcopy(fixed).double(), images(name, 3).double()
    alone = zip(*(leaves(model(x[k : k + 1])) for k in range(3)), strict=True)
    batch = leaves(model(x))
    torch.testing.assert_close([*map(torch.cat, alone)], batch, rtol=0, atol=1e-10)


@pytest.mark.drawn(3)
def test_one_image_can_be_trained_on(line):
    name, _, fixed = line
    model, x, y = copy.deepcopy(fixed).train(), images(name, 1), targets(1)
    if TABLE[name].is_normed_by_one:
        with pytest.raises(ValueError, match=r"^Expected more than 1 value per channel"):
            model(x, y)
        return
    loss = loss_of(model(x, y), x, y)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_an_empty_batch(line):
    name, _, model = line
    assert model(images(name, 0)).scores.shape == (0, CLASSES)


# torch has no batching rule for the gradient of windows, and loops.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.drawn(4)
def test_vmap_gives_the_gradients_of_single_images(line):
    name, _, fixed = line
    model, x, y = copy.deepcopy(fixed).double(), images(name, 2).double(), targets(2)
    weights = dict(model.named_parameters())

    def loss(weights, x, y):
        out = torch.func.functional_call(model, weights, (x.unsqueeze(0), y.unsqueeze(0)))
        return loss_of(out, x.unsqueeze(0), y.unsqueeze(0))

    per_image = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, x, y)
    for k in range(2):
        model.zero_grad()
        loss_of(model(x[k : k + 1], y[k : k + 1]), x[k : k + 1], y[k : k + 1]).backward()
        for key, weight in weights.items():
            if weight.grad is not None:
                torch.testing.assert_close(per_image[key][k], weight.grad, rtol=1e-6, atol=1e-10)


@pytest.mark.drawn(3)
def test_a_seed_fixes_the_weights(line):
    name, routing, model = line
    one, same, other = (
        each.state_dict() for each in (model, made(name, routing), made(name, routing, seed=4))
    )
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


BY_AGREEMENT = [name for name in TABLE if MODELS[name].options.get("routing") == "dynamic"]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", BY_AGREEMENT)
def test_the_uniform_twin_draws_the_very_same_weights(name):
    dynamic, uniform = (made(name, kind).state_dict() for kind in ("dynamic", "uniform"))
    assert all(torch.equal(dynamic[key], tensor) for key, tensor in uniform.items())
    assert all(key.endswith("prior") for key in dynamic.keys() - uniform.keys())


def learning():
    for name in TABLE:
        slow = is_twin(name) or TABLE[name].slow_to_learn
        yield pytest.param(name, marks=pytest.mark.slow if slow else ())


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", list(learning()))
def test_loss_falls_on_eight_fixed_images(name):
    each = TABLE[name]
    model = made(name)
    x, y = images(name, 8), targets(8)
    optimiser = torch.optim.Adam(model.parameters(), lr=each.rate)
    losses = []
    for _ in range(each.steps):
        loss = loss_of(model(x, y), x, y)
        losses.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        assert float(loss_of(model(x, y), x, y)) < each.left * losses[0]


@pytest.mark.drawn(3)
def test_keep_changes_no_bit(line):
    name, _, model = line
    x = images(name)
    none, last, steps = (model(x, keep=keep) for keep in ("none", "last", "steps"))
    assert none.trace == ()
    for other in (last, steps):
        untraced = leaves(replace(other, trace=()))
        torch.testing.assert_close(untraced, leaves(none), rtol=0, atol=0)
    assert len(last.trace) == len(steps.trace) == len(TABLE[name].layers)
    for above, (a, b) in enumerate(zip(last.trace[::-1], steps.trace[::-1], strict=True)):
        (kept,) = a.routed.steps
        layer = model.layers[a.name]
        iterations = getattr(getattr(layer, "routing", layer), "iterations", 1)
        assert len(b.routed.steps) == iterations
        # Of layers that route at once, the step that reached the output; lower ones go on.
        reached = max(iterations - above, 1) if is_concurrent(model) else iterations
        assert torch.equal(kept.coupling, b.routed.steps[reached - 1].coupling)
        assert torch.equal(kept.parents.pose, b.routed.steps[reached - 1].parents.pose)
        assert torch.equal(a.routed.parents.pose, kept.parents.pose)


@pytest.mark.drawn(3)
def test_trace_names_its_layers_and_couplings_sum_to_one(line):
    name, routing, model = line
    trace = model(images(name), keep="last").trace
    assert tuple(layer.name for layer in trace) == TABLE[name].layers
    for layer in trace:
        assert layer.weight is model.layers[layer.name].weight
        coupling = layer.routed.steps[-1].coupling
        assert coupling.min() >= 0
        if layer.normalised_over == "parents_and_positions" and layer.window is not None:
            child_id = layer.window.child_id()
            per_slot = coupling.sum(-1).flatten(1)  # [b, p * i]
            total = torch.zeros(len(coupling), layer.children.pose.shape[1])
            total.index_add_(1, child_id.flatten(), per_slot)
            total = total[:, child_id.unique()]
        elif layer.normalised_over == "none":  # self-attention adds its prior
            total = coupling.sum(-1) - model.layers[layer.name].routing.prior.sum(-1)
        else:
            axis = -2 if layer.normalised_over == "children" else -1
            total = coupling.sum(axis)
        torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)
        if routing == "uniform" or (name, routing) == ("gu_capsnet_nor", None):
            assert torch.equal(coupling, coupling.flatten()[0].expand_as(coupling))


@pytest.mark.drawn(3)
def test_the_decoder_draws_the_target_or_the_class_that_scores_highest(line):
    # Poses far up a bare network are so short that float32 draws all alike.
    name, _, fixed = line
    model, x = copy.deepcopy(fixed).double(), images(name).double()
    alone = model(x)
    best = alone.scores.argmax(-1)
    of_best, other = model(x, best), model(x, (best + 1) % CLASSES)
    assert torch.equal(other.scores, alone.scores)
    if alone.reconstruction is None:
        return
    if is_masked(model):
        assert torch.equal(of_best.reconstruction, alone.reconstruction)
        assert not torch.equal(other.reconstruction, alone.reconstruction)
    else:
        assert torch.equal(other.reconstruction, alone.reconstruction)


def test_output_and_trace_are_pytrees(line):
    name, _, model = line
    out = model(images(name), keep="last")
    twice = _pytree.tree_map_only(torch.Tensor, lambda tensor: 2 * tensor, out)
    assert isinstance(twice, Output)
    assert all(isinstance(layer, LayerTrace) for layer in twice.trace)
    assert all(isinstance(layer.children, Capsules) for layer in twice.trace)
    assert tuple(layer.name for layer in twice.trace) == TABLE[name].layers
    assert twice.scores_are == out.scores_are
    torch.testing.assert_close(leaves(twice), [2 * x for x in leaves(out)], rtol=0, atol=0)


def one_of_each():
    """The lines of networks that are traced; all others are slow."""
    for each in lines():
        (name, routing), *_ = each.values
        slow = not TABLE[name].traced or routing is not None
        yield pytest.param(name, routing, id=each.id, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("keep", [pytest.param("none", marks=pytest.mark.slow), "last"])
@pytest.mark.parametrize(("name", "routing"), list(one_of_each()))
def test_an_exported_network_comes_back(name, routing, keep):
    model, x = made(name, routing).eval(), images(name, 2)
    # A graph holds the plain form, for it must not depend on the batch it was traced with.
    plain = copy.deepcopy(model)
    use_backend(plain, "plain")
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (x,), {"keep": keep}), file)
    file.seek(0)
    out = torch.export.load(file).module()(x, keep=keep)
    assert isinstance(out, Output)
    for a, b in zip(leaves(out), leaves(plain(x, keep=keep)), strict=True):
        # Of the largest number of each: scores of small networks are small themselves.
        atol = 1e-5 * float(b.detach().abs().max()) if b.is_floating_point() and b.numel() else 0.0
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize(("name", "routing"), list(one_of_each()))
def test_a_network_is_one_graph(name, routing):
    model, x = made(name, routing).eval(), images(name, 2)
    torch.compiler.reset()
    whole = torch.compile(model, fullgraph=True, backend="eager")
    assert torch.equal(whole(x).scores, model(x).scores)


NOT_FINITE = (
    "the images hold NaN or infinite values; every pixel must be finite, in [0, 1]: look for a "
    "division by zero in the preparation of the images."
)


def test_images_that_do_not_fit(line):
    name, _, model = line
    channels, height, width = TABLE[name].image
    for shape in (
        [channels, height, width],
        [2, channels, width, height],
        [2, channels + 1, height, width],
    ):
        assert text_of(lambda shape=shape: model(torch.zeros(shape))) == (
            f"this network takes images [batch, {channels}, {height}, {width}], but came with "
            f"shape {shape}; a single image needs image.unsqueeze(0), another size needs "
            f"create_model(..., image=(channels, height, width))."
        )
    fits = torch.zeros(2, channels, height, width)
    assert text_of(lambda: model(fits.to(torch.uint8))) == (
        "images must be floating point in [0, 1], but came as torch.uint8; "
        "for bytes use image.float() / 255."
    )
    for value in (torch.nan, torch.inf):
        assert text_of(lambda value=value: model(fits + value)) == NOT_FINITE
    assert text_of(lambda: model(fits.double())) == (
        "images and weights must share a dtype, but are torch.float64 and torch.float32; convert "
        "the images, or the network with model.to(torch.float64)."
    )


def test_an_unknown_keep(line):
    name, _, model = line
    assert "keep='lst' is unknown; did you mean 'last'?" in text_of(
        lambda: model(images(name), keep="lst")
    )


CLASS = "target must be 0 to 2 for 3 classes, but came with numbers from "
INDEX = "target must be class indices, int64 [2], one an image, or [2, m], m an image, but came as "
WRONG_TARGETS = [
    ([0, CLASSES], CLASS + "0 to 3; count classes from 0."),
    ([0, -1], CLASS + "-1 to 0; count classes from 0."),
    ([0.0, 1.0], INDEX + "torch.float32 with shape [2]."),
    ([0, 1, 2], INDEX + "torch.int64 with shape [3]."),
]


def test_targets_that_do_not_fit(line):
    name, _, model = line
    x = images(name, 2)
    if not is_masked(model):  # Nothing reads the target.
        assert torch.equal(model(x, torch.tensor([0, CLASSES])).scores, model(x).scores)
        return
    for target, words in WRONG_TARGETS:
        assert text_of(lambda target=target: model(x, torch.tensor(target))) == words


@pytest.mark.parametrize(("name", "count"), [("peer_sign_dynamic", 20_000), ("rem_dr", 700)])
def test_images_in_half_precision_are_not_taken_for_broken(name, count):
    model = made(name).half().eval()
    # Their sum is beyond what float16 can hold.
    image = torch.ones(count, *TABLE[name].image, dtype=torch.float16)
    assert image.sum().isinf()
    assert model(image).scores.isfinite().all()


@pytest.mark.drawn(3)
def test_half_precision_stays_finite(line):
    name, _, fixed = line
    model, x = copy.deepcopy(fixed).bfloat16(), images(name, 2).bfloat16()
    out = model(x, keep="last")
    assert out.scores.dtype == torch.bfloat16
    assert all(leaf.isfinite().all() for leaf in leaves(out))
