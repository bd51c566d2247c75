"""What the families are made of, worked out by hand: sizes, structure, and what they cannot see."""

import itertools

import pytest
import torch
from torch import nn

from on_meta import count, created, size
from tables import beside
from torchcaps import Capsules, create_model
from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    DynamicRouting,
    EMRouting,
    InvertedRouting,
)
from torchcaps.models import MODELS
from torchcaps.ops.squashing import squash


def made(name, seed=7, **options):
    torch.manual_seed(seed)
    return create_model(name, **options)


SMALL = beside(__file__, "families.toml")


# CapsNet

TINY = {"image": (2, 6, 8), "n_classes": 3, "kernel": 3, "types": 4}


def test_a_bias_of_em_routing_is_in_its_votes_also_where_the_routing_is_an_object():
    by_name = made("capsnet", **TINY, routing="em", bias=True)
    by_object = made("capsnet", **TINY, routing=EMRouting(), bias=True)
    assert by_name.layers["classes"].vote_bias is not None
    shapes = [
        {name: value.shape for name, value in each.state_dict().items()}
        for each in (by_name, by_object)
    ]
    assert shapes[0] == shapes[1]


def test_a_routing_object_whose_parents_have_activations_lets_classes_score():
    model = made("capsnet", **TINY, routing=InvertedRouting(activations=True))
    out = model(torch.rand(2, 2, 6, 8))
    assert out.scores_are == "lengths"
    assert torch.equal(out.scores, out.classes.activation)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", [name for name, each in MODELS.items() if each.routings])
def test_whatever_the_routing_the_lengths_of_classes_are_squashed_alike(name):
    found = {}
    for routing in MODELS[name].routings:
        classes = created(name, routing=routing).layers["classes"]
        found[routing] = getattr(classes.routing, "squash", None)
    # These squash nothing.
    assert found.pop("em", None) is None
    assert found.pop("self_routing") is None
    assert len(found) == 4
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_the_kernel_study_is_on_both_convolutions(kernel):
    model = created("gu_capsnet", kernel=kernel)
    first, second = (m for m in model.modules() if isinstance(m, nn.Conv2d))
    assert first.kernel_size == second.kernel_size == (kernel, kernel)
    assert (first.stride, second.stride) == ((1, 1), (2, 2))
    side = (40 - kernel + 1 - kernel) // 2 + 1
    assert model.primary_grid == (side, side, 32)


@pytest.mark.parametrize(("types", "d_primary"), [(8, 32), (16, 16), (32, 8), (64, 4)])
def test_the_group_study_keeps_256_channels(types, d_primary):
    model = created("gu_aff_capsnet", types=types, d_primary=d_primary)
    assert model.primary.projection[0].out_channels == 256
    assert model.primary_grid == (12, 12, types)
    # One matrix a class for all children.
    assert model.layers["classes"].weight.shape == (10, 16, d_primary)


def test_class_capsules_may_be_wider():
    model = made("capsnet", **TINY, d_class=5)
    assert model(torch.rand(2, 2, 6, 8)).classes.pose.shape == (2, 3, 5)


@pytest.mark.parametrize(
    ("name", "options", "kernel"),
    [("capsnet", TINY, 3), *((f"peer_deep_{kind}", {}, 9) for kind in ("em", "dynamic"))],
)
def test_a_narrow_trunk(name, options, kernel):
    model = made(name, **options, width=3)
    filters = model.backbone[0].weight.shape, model.primary.projection.weight.shape
    square, poses = (kernel, kernel), options.get("types", 32) * 8
    assert filters == ((3, model.image[0], *square), (poses, 3, *square))
    x = torch.rand(2, *model.image)
    assert model(x).scores.shape == (2, model.config["n_classes"])


@pytest.mark.parametrize("name", SMALL["relu"])
def test_a_relu_before_the_primary_squash_is_the_same_with_every_other_weight(name):
    """The ReLU of [peer2022] §1 changes no weight: primary poses are those without it, their
    negative components zero before the squash."""
    options = SMALL["relu"][name]
    with_relu, without = (
        made(name, **options, n_classes=3, primary_relu=relu).eval() for relu in (True, False)
    )
    for one, other in zip(with_relu.parameters(), without.parameters(), strict=True):
        assert torch.equal(one, other)
    x = torch.rand(2, *options["image"])
    poses = without.primary.projection(without.backbone(x)).relu()
    d_out, kind = without.primary.d_out, without.primary.squash
    expected = squash(poses.unflatten(1, (-1, d_out)).permute(0, 3, 4, 1, 2).flatten(1, 3), kind)
    found = with_relu(x, keep="last").trace[0].children.pose
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert found.min() == 0 < found.max()
    assert without(x, keep="last").trace[0].children.pose.min() < 0


@pytest.mark.parametrize("name", SMALL["agreement"])
def test_agreement_reaches_every_dynamic_routing(name):
    model = made(name, **SMALL["agreement"][name], agreement="learned")
    routings = [m for m in model.modules() if isinstance(m, DynamicRouting)]
    assert len(routings) == sum(key.endswith("agreement") for key in model.state_dict()) > 0
    model(torch.rand(2, *model.image)).scores.sum().backward()
    assert all(routing.agreement.grad is not None for routing in routings)
    fixed = made(name, **SMALL["agreement"][name], agreement=0.1)
    assert {m.agreement for m in fixed.modules() if isinstance(m, DynamicRouting)} == {0.1}


def test_a_decoder_without_a_mask_sees_all_classes():
    x = torch.rand(2, 2, 6, 8)
    one, other = torch.tensor([0, 0]), torch.tensor([1, 2])
    unmasked = made("capsnet", **TINY, mask="none")
    assert torch.equal(unmasked(x, one).reconstruction, unmasked(x, other).reconstruction)
    masked = made("capsnet", **TINY)
    assert not torch.equal(masked(x, one).reconstruction, masked(x, other).reconstruction)


# Matrix capsules


def test_matrix_capsules_for_mnist_are_the_same_with_other_routing():
    model = create_model("matrix_capsnet_mnist")
    assert isinstance(model.backbone[1], nn.BatchNorm2d)
    for layer in model.layers.values():
        routing = layer.routing
        assert (routing.iterations, routing.variant, routing.compete) == (2, "gritzman", "window")
        assert (routing.lambda_, routing.lambda_schedule) == (0.001, "constant")


# Inverted attention


INVERTED = {"image": (2, 15, 17), "n_classes": 3, "types": 4, "d_pose": 4}


def procedure_2(layers, children, iterations):
    """All poses of all layers, for every iteration: [tsai2020] Procedure 2, plainly."""

    def one_layer(layer, below, above):
        votes = layer.votes(below)
        j = votes.shape[-2]
        if above is None:
            r = torch.full(votes.shape[:-1], 1 / j, dtype=votes.dtype)
        else:
            p = above.reshape(*votes.shape[:-3], j, votes.shape[-1])
            r = (votes * p.unsqueeze(-3)).sum(-1).softmax(-1)
        new = (r.unsqueeze(-1) * votes).sum(-3)
        norm = layer.routing.norm
        mean = new.mean(-1, keepdim=True)
        variance = (new - mean).square().mean(-1, keepdim=True)
        new = (new - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias
        return new.reshape(len(new), -1, new.shape[-1])

    poses = [children.pose]
    for layer in layers:
        poses.append(one_layer(layer, children._replace(pose=poses[-1]), None))
    for _ in range(2, iterations + 1):
        old = list(poses)
        for depth, layer in enumerate(layers):
            poses[depth + 1] = one_layer(layer, children._replace(pose=old[depth]), old[depth + 1])
    return poses[1:]


@pytest.mark.parametrize("hidden", [0, 5])
@pytest.mark.parametrize("iterations", [1, 2, 3, 4])
def test_layers_route_at_once_as_procedure_2_says(iterations, hidden):
    model = made("tsai_inverted_simple_c10", **INVERTED, iterations=iterations, hidden=hidden)
    model = model.double().eval()
    with torch.no_grad():
        for layer in model.layers.values():
            layer.routing.norm.weight.uniform_(0.5, 1.5)
            layer.routing.norm.bias.normal_(0, 0.3)
    x = torch.rand(2, *INVERTED["image"], dtype=torch.float64)
    layers = list(model.layers.values())
    poses = procedure_2(layers, model.primary(model.backbone(x)), iterations)
    out = model(x)
    torch.testing.assert_close(out.classes.pose, poses[-1], rtol=0, atol=1e-10)
    torch.testing.assert_close(out.scores, model.head(poses[-1])[..., 0], rtol=0, atol=1e-10)
    for layer, pose in zip(model(x, keep="steps").trace, poses, strict=True):
        torch.testing.assert_close(layer.routed.parents.pose, pose, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["tsai_inverted_simple_c10", "tsai_dmm_matrix"])
def test_starts_and_dropout_of_inverted_presets(name):
    names = ["start", "norm.weight", "norm.bias"]
    for start in ("none", "random", "learned"):
        model = made(name, **INVERTED, start=start, dropout=0.3)
        x = torch.rand(4, 2, 15, 17)
        with torch.no_grad():
            assert not torch.equal(model(x).scores, model(x).scores)
            model.eval()
            assert torch.equal(model(x).scores, model(x).scores)
        for layer in model.layers.values():
            assert layer.routing.dropout == 0.3
            assert list(layer.routing.state_dict()) == names[start == "none" :]
    assert count(name, start="learned") - count(name) == sum(
        layer.n_out * layer.d_out for layer in created(name).layers.values()
    )
    assert count(name, start="random") == count(name)


def test_one_after_the_other_every_layer_finishes_first():
    at_once, sequential = (
        made("tsai_inverted_simple_c10", **INVERTED, iterations=3, schedule=schedule)
        .double()
        .eval()
        for schedule in ("concurrent", "sequential")
    )
    x = torch.rand(2, *INVERTED["image"], dtype=torch.float64)
    capsules = sequential.primary(sequential.backbone(x))
    for layer in sequential.layers.values():
        capsules = layer(capsules).parents
    found = sequential(x)
    assert torch.equal(found.classes.pose, capsules.pose)
    assert (found.scores - at_once(x).scores).abs().max() > 1e-3


@pytest.mark.parametrize("schedule", ["concurrent", "sequential"])
def test_ablation_c_carries_activations(schedule):
    model = made("tsai_inverted_simple_c10", **INVERTED, activations=True, schedule=schedule)
    out = model(torch.rand(2, *INVERTED["image"]), keep="last")
    assert out.scores_are == "logits"
    for layer in out.trace:
        for capsules in (layer.children, layer.routed.parents):
            assert capsules.activation.shape == capsules.pose.shape[:-1]
            assert 0 < capsules.activation.min() <= capsules.activation.max() < 1
    bare = made("tsai_inverted_simple_c10", **INVERTED)(torch.rand(2, *INVERTED["image"]))
    assert bare.classes.activation is None


def test_ablation_a_has_no_layer_norm_and_the_paper_no_scale():
    model = made("tsai_inverted_simple_c10", **INVERTED, layer_norm=False)
    assert all(layer.routing.norm is None for layer in model.layers.values())
    scaled = made("tsai_inverted_simple_c10", **INVERTED, scaled=True)
    assert {layer.routing.scale for layer in scaled.layers.values()} == {1 / 2}
    assert {layer.routing.scale for layer in model.layers.values()} == {1.0}


# Efficient-CapsNet and γ


def test_effconv_has_a_decoder_on_request_and_the_same_capsules():
    models = [made("rem_effconv", image=(2, 33, 38), n_classes=3)]
    models.append(made("rem_effconv", image=(2, 33, 38), n_classes=3, decoder=True))
    plain, drawing = (model.eval() for model in models)
    weights = drawing.state_dict()
    for name, weight in plain.state_dict().items():
        assert torch.equal(weights[name], weight)
    x = torch.rand(2, 2, 33, 38)
    out = drawing(x)
    assert plain(x).reconstruction is None
    assert torch.equal(out.scores, plain(x).scores)
    assert out.reconstruction.shape == x.shape


def test_only_attention_has_the_learned_prior_of_efficient_capsnet():
    """A prior for each pair of 16 children and ten classes. Dynamic routing would take it for its
    first logits, which start at zero in [sabour2017]."""
    for routing, prior in (("self_attention", 16 * 10), ("dynamic", 0)):
        classes = created("rem_eff_mnist", routing=routing).layers["classes"]
        assert size(classes) == 16 * 10 * 8 * 16 + prior


def test_weights_of_gamma_without_their_scale_are_not_taken_in_silence():
    tiny = {"image": (2, 17, 19), "n_classes": 3}
    whole = made("rem_gamma", **tiny).state_dict()
    weights = {name: each for name, each in whole.items() if not name.endswith("running_scale")}
    model = made("rem_gamma", **tiny)
    with (
        pytest.warns(UserWarning, match="predictions will be far off"),
        pytest.raises(
            RuntimeError, match=r'(?s)Missing key.*"layers.hidden.routing.running_scale"'
        ),
    ):
        model.load_state_dict(weights)
    with pytest.warns(UserWarning, match="the loaded weights have no") as caught:
        model.load_state_dict(weights, strict=False)
    assert [str(each.message) for each in caught] == [
        f"the loaded weights have no layers.{name}.routing.running_scale, buffers that evaluation "
        f"goes by, so predictions will be far off; load a whole state_dict(), or train for some "
        f"steps before evaluating."
        for name in ("hidden", "classes")
    ]
    # Neither a whole state nor one of other layers is warned about.
    model.load_state_dict(whole, strict=False)
    backbone = {name: each for name, each in weights.items() if name.startswith("backbone")}
    model.load_state_dict(backbone, strict=False)


def test_the_scale_of_gamma_runs_in_training_and_stands_in_evaluation():
    model, x = made("rem_gamma", image=(2, 17, 19), n_classes=3), torch.rand(4, 2, 17, 19)

    def stored():
        return [layer.routing.running_scale.clone() for layer in model.layers.values()]

    assert all(torch.equal(scale, torch.ones(2)) for scale in stored())
    model.train()(x)
    after = stored()
    assert all((scale != 1).all() for scale in after)
    model.eval()
    batch = model(x).scores
    assert all(torch.equal(one, other) for one, other in zip(stored(), after, strict=True))
    # Without neighbours an image scores as with them; in training it does not.
    torch.testing.assert_close(model(x[:1]).scores, batch[:1], rtol=0, atol=1e-6)
    model.train()
    assert (model(x[:1]).scores - model(x).scores[:1]).abs().max() > 1e-5
    # What is stored is used.
    model.eval()
    for layer in model.layers.values():
        layer.routing.running_scale.mul_(3)
    assert (model(x).scores - batch).abs().max() > 1e-5


# Mitterreiter et al.

GRID = {"image": (1, 11, 12), "n_classes": 3}


@pytest.mark.parametrize(
    ("widths", "d_pose"), [("16,15,7,6", 8), ("4", 8), ("5,3", 4), ("16,16,16,16", 6)]
)
def test_widths_are_the_capsules_below_the_classes(widths, d_pose):
    model = made("mitterreiter_grid", **GRID, widths=widths, d_pose=d_pose)
    trace = model.eval()(torch.rand(2, 1, 11, 12), keep="last").trace
    expected = [*map(int, widths.split(",")), 3]
    assert [layer.children.pose.shape for layer in trace] == [(2, n, d_pose) for n in expected[:-1]]
    assert [layer.routed.parents.pose.shape for layer in trace] == [
        (2, n, d_pose) for n in expected[1:]
    ]
    pairs = sum(n * m for n, m in itertools.pairwise(expected))
    assert size(model.layers) == pairs * d_pose**2 + pairs  # matrices and priors


# Peer et al.


@pytest.mark.parametrize(("n_layers", "pairs"), [(2, 0), (3, 0), (4, 1), (5, 2)])
@pytest.mark.parametrize("name", ["peer_deep_dynamic", "peer_deep_em"])
def test_layers_count_the_primary_one_and_the_classes(name, n_layers, pairs):
    model = created(name, n_layers=n_layers)
    assert 1 + len(model.layers) == n_layers
    if n_layers == 2:
        weights = 1152 * 10 * 8 * 16
    else:
        weights = 1152 * 16 * 8 * 12 + pairs * 16 * 16 * 12 * 12 + 16 * 10 * 12 * 16
    costs = 2 * (16 * (n_layers - 2) + 10) if name == "peer_deep_em" else 0
    assert size(model.layers) == weights + costs


def test_kinds_of_bias():
    assert count("peer_deep_dynamic", bias="none") + 16 * 12 + 10 * 16 == count(
        "peer_deep_dynamic", bias="added"
    )
    assert count("peer_deep_dynamic", bias="odd") == count("peer_deep_dynamic", bias="added")


def test_as_in_public_code_convolutions_and_the_decoder_start_by_glorot_and_all_classes_are_drawn():
    model = made("peer_deep_dynamic", as_code=True, width=8)
    first, second = model.backbone[0], model.primary.projection
    for each, fans in ((first, 81 * (1 + 8)), (second, 81 * (8 + 256))):
        bound = (6 / fans) ** 0.5
        assert 0.9 * bound < each.weight.abs().max() <= bound
        assert not each.bias.any()
    assert not any(each.bias.any() for each in model.decoder.layers if hasattr(each, "bias"))
    # Matrices are the same as without: N(0, 0.1²).
    assert model.layers["classes"].weight.std().item() == pytest.approx(0.1, rel=0.05)
    poses = torch.rand(2, 10, 16)
    others = poses.clone()
    others[:, 1] += 1
    zeros = torch.zeros(2, dtype=torch.long)
    drawn, otherwise = (model.decoder(Capsules(x), zeros) for x in (poses, others))
    assert not torch.equal(drawn, otherwise)
    with pytest.raises(TorchcapsError, match=r"as_code=True and init='balanced' both say"):
        made("peer_deep_dynamic", as_code=True, init="balanced", width=8)


def signs(name, **options):
    """Scores of numbers and of their negatives, [16, 2] each."""
    model = made(name, seed=3, **options).eval()
    x = torch.linspace(0.05, 1, 16).reshape(16, 1, 1, 1)
    return model(x).scores, model(-x).scores


@pytest.mark.parametrize("routing", ["dynamic", "uniform"])
def test_without_a_bias_dynamic_routing_cannot_tell_a_number_from_its_negative(routing):
    for chosen in ("none", "odd") if routing == "dynamic" else ("none",):
        swapped = {} if routing == "dynamic" else {"routing": routing}
        plus, minus = signs("peer_sign_dynamic", bias=chosen, **swapped)
        assert torch.equal(plus, minus)
        assert not torch.equal(plus[0], plus[-1])
    plus, minus = signs("peer_sign_dynamic", bias="added", **swapped)
    assert (plus - minus).abs().min() > 1e-5


def test_without_a_bias_em_routing_cannot_either():
    plus, minus = signs("peer_sign_em")
    assert torch.equal(plus, minus)
    assert not torch.equal(plus[0], plus[-1])
    plus, minus = signs("peer_sign_em", bias=True)
    assert (plus - minus).abs().max() > 1e-4


def test_options_of_other_parts_of_a_network_are_taken():
    assert create_model("mitterreiter_grid", routing="em", squash="hinton").primary.squash == (
        "hinton"
    )
    skip = create_model("rem_deepcaps", routing="self_attention", iterations=5).layers[
        "cell_4_skip"
    ]
    assert skip.iterations == 5


def test_the_official_matrix_network_starts_as_its_code():
    torch.manual_seed(0)
    model = create_model("matrix_capsnet", sizes="32-32-32-32")
    stem, primary = model.backbone[0], model.primary
    assert float(stem.weight.detach().std()) == pytest.approx(
        0.044, rel=0.1
    )  # cut at two σ of 0.05
    assert stem.weight.abs().max() <= 0.1
    assert torch.equal(stem.bias, torch.full_like(stem.bias, 0.1))
    assert float(primary.projection.weight.detach().std()) == pytest.approx(0.5, rel=0.05)
    assert float(primary.activation.weight.detach().std()) == pytest.approx(3.0, rel=0.1)
    assert primary.offset == -1
    assert float(model.layers["conv_1"].weight.detach().std()) == pytest.approx(0.3, rel=0.05)
    assert float(model.layers["classes"].weight.detach().std()) == pytest.approx(0.01, rel=0.05)


def test_balancing_leaves_no_trace_in_running_distances():
    model = create_model("rem_gamma", image=(1, 22, 22), n_classes=3, init="balanced")
    for name in ("hidden", "classes"):
        assert torch.equal(model.layers[name].routing.running_scale, torch.ones(2))


@pytest.mark.parametrize("name", SMALL["constants"])
def test_gradients_of_the_rem_networks_come_through_the_last_iteration(name):
    said = SMALL["constants"][name]
    model = created(name.split()[0], **said.get("options", {}))
    assert model.layers[said["layer"]].routing.detach == said["constant"]


def test_ablation_c_asks_no_gradient_of_what_the_head_never_reads():
    model = create_model("tsai_inverted_simple_c10", image=(1, 18, 20), activations=True)
    out = model(torch.rand(2, 1, 18, 20))
    torch.nn.functional.cross_entropy(out.scores, torch.tensor([1, 2])).backward()
    for name, parameter in model.named_parameters():
        if name.startswith("layers.classes.routing.beta"):
            assert not parameter.requires_grad
        else:
            assert parameter.grad is not None, name


# 10 classes: 141,184 in the trunk, then 128 × 148 + 148 + 148 × 10 + 10 where the capsules have
# 16 × 10 × (8 × 16 + 1).
@pytest.mark.parametrize(
    ("image", "n_classes"), [((1, 28, 28), 10), ((3, 32, 48), 43), ((1, 28, 28), 2)]
)
def test_the_control_of_efficient_capsnet_is_as_large_as_it(image, n_classes):
    names = ("rem_eff_mnist", "efficient_convnet")
    sizes = [count(name, image=image, n_classes=n_classes) for name in names]
    assert sizes[1] == pytest.approx(sizes[0], rel=1e-3)
    if image == (1, 28, 28) and n_classes == 10:
        assert sizes == [161824, 161766]
