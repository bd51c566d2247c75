"""Names of networks: what is listed, what is chosen, what is refused."""

import json
import re

import pytest
import torch

from error_text import text_of
from registries import as_before
from torchcaps import create_model, list_models, load, save
from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    ROUTINGS,
    DynamicRouting,
    EMRouting,
    Routing,
    SelfAttentionRouting,
)
from torchcaps.models import MODELS
from torchcaps.models.preset import listed
from torchcaps.models.registry import make_model
from torchcaps.ops import uniform_routing

SMALL = {"image": (1, 17, 17), "n_classes": 2}


def test_the_list_is_the_table():
    assert list_models() == sorted(MODELS)
    assert len(MODELS) > 50
    assert {"capsnet", "mitterreiter_5x16", "resnet18"} <= set(MODELS)


@pytest.mark.parametrize("name", list_models())
def test_a_name_alone_gives_the_network_of_the_paper(name):
    with torch.device("meta"):
        model = create_model(name)
        out = model(torch.rand(2, *MODELS[name].image))
    assert out.scores.shape == (2, MODELS[name].n_classes)
    draws = MODELS[name].options.get("decoder", name in DRAWING)
    assert (out.reconstruction is not None) == draws
    if draws:
        assert out.reconstruction.shape == (2, *MODELS[name].image)


# Networks that are nothing without their decoder.
DRAWING = {"gu_convnet_cr", "gu_convnet_cr_sf", "gu_convnet_r"}


def test_a_hundred_classes_are_in_the_name():
    for name, preset in MODELS.items():
        assert (preset.n_classes == 100) == name.endswith("c100")


def test_presets_are_those_of_the_papers():
    presets = {name: (each.image, each.n_classes) for name, each in MODELS.items()}
    assert presets["capsnet"] == ((1, 28, 28), 10)
    assert presets["mitterreiter_5x16"] == ((1, 40, 40), 10)
    assert presets["matrix_capsnet"] == ((2, 32, 32), 5)
    assert presets["peer_sign_em"] == ((1, 1, 1), 2)
    assert presets["rem_eff_norb"] == ((2, 48, 48), 5)
    assert presets["tsai_dmm_vector"] == ((1, 36, 36), 10)
    assert presets["tsai_em_resnet_c100"] == ((3, 32, 32), 100)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("capsnet", {"primary_relu": False, "sharing": "none", "weight_std": 0.1}),
        ("gu_capsnet", {"primary_relu": True, "routing": "dynamic"}),
        ("gu_aff_capsnet", {"primary_relu": True, "routing": "uniform", "normalise": "mean"}),
        ("gu_aff_capsnet", {"sharing": "all", "decoder": True}),
        ("gu_aff_capsnet_dr", {"sharing": "all", "routing": "dynamic"}),
        ("rem_dr", {"detach": "votes", "decoder": False, "primary_relu": False}),
        ("rem_gamma", {"detach": "iterations", "decoder": False, "scale": "batch", "bias": True}),
        ("rem_multilayer", {"prior": "zero", "squash": "hinton", "widths": "16,16,16,16"}),
        ("tsai_inverted_simple_c100", {"width": 128, "d_pose": 36, "hidden": 20}),
        ("tsai_inverted_resnet_c10", {"backbone": "resnet", "schedule": "concurrent"}),
        ("tsai_em_simple_c10", {"iterations": 2, "variant": "paper", "compete": "window"}),
    ],
)
def test_what_presets_say(name, said):
    assert said.items() <= MODELS[name].options.items()


def test_options_and_their_defaults():
    assert MODELS["mitterreiter_5x16"].options == {
        "routing": "dynamic",
        "iterations": 3,
        "bias": False,
        "agreement": 1.0,
        "primary_relu": False,
        "weight_std": 1.0,
        "init": "paper",
        "decoder": True,
    }


def test_config_holds_everything_chosen_and_survives_json():
    model = create_model("mitterreiter_5x16", **SMALL, iterations=2, decoder=False)
    assert model.config == {
        "name": "mitterreiter_5x16",
        "image": (1, 17, 17),
        "n_classes": 2,
        "routing": "dynamic",
        "iterations": 2,
        "bias": False,
        "agreement": 1.0,
        "primary_relu": False,
        "weight_std": 1.0,
        "init": "paper",
        "decoder": False,
    }
    again = create_model(**json.loads(json.dumps(model.config)))
    assert again.config == model.config


def test_an_option_reaches_the_network():
    assert (
        create_model("capsnet", **SMALL, decoder=False)(
            torch.rand(1, *SMALL["image"])
        ).reconstruction
        is None
    )


@pytest.mark.parametrize(
    ("name", "chosen", "expected"),
    [
        (
            "capsnt",
            {},
            "model 'capsnt' is unknown; did you mean 'capsnet'? known: gu_capsnet, gamma_capsnet, "
            "matrix_capsnet, gu_capsnet_nor, ….",
        ),
        (
            "capsnet",
            {"iteration": 3},
            "capsnet has no option 'iteration'; did you mean 'iterations'? known: routing, "
            "trunk, kernel, ….",
        ),
        (
            "mitterreiter_5x16",
            {"iteration": 3},
            "mitterreiter_5x16 has no option 'iteration'; did you mean 'iterations'? "
            "known: agreement, bias, decoder, init, iterations, primary_relu, routing, weight_std.",
        ),
        (
            "capsnet",
            {"num_classes": 7},
            "capsnet has no option 'num_classes': how many classes there are is n_classes, in "
            "training a matter of the data.",
        ),
        (
            "capsnet",
            {"in_chans": 3},
            "capsnet has no option 'in_chans': the size of its images is image=(channels, height, "
            "width), in training a matter of the data.",
        ),
        (
            "mhsa_stack",
            {"lambda_schedule": "paper"},
            "mhsa_stack has no option 'lambda_schedule': it passes on to a routing only the "
            "options that it has itself; register a class with another default, or give "
            "create_model a routing as an object.",
        ),
        (
            "capsnet",
            {"lambda_schedule": "growing"},
            "dynamic routing has no use for lambda_schedule='growing'; leave it out.",
        ),
        (
            "capsnet",
            {"routing": DynamicRouting(), "prior": "learned"},
            "a routing that is given as an object has its options already, so prior='learned' "
            "would do nothing; say it where DynamicRouting(…) is made.",
        ),
        (
            "capsnet",
            {"squash": "exp"},
            "capsnet has no option 'squash'; did you mean 'class_squash'? known: primary_squash, "
            "mask, bias, ….",
        ),
        (
            "capsnet",
            {"leaky": "y" * 300},
            f"capsnet takes leaky in at most 200 letters, but it came as '{'y' * 99}….",
        ),
        (
            "matrix_capsnet",
            {"variance_floor": -0.5},
            "variance_floor must be a finite number from 0 up, but came as -0.5.",
        ),
        (
            "tsai_inverted_simple_c10",
            {"prior": "learned"},
            "tsai_inverted_simple_c10 has no option 'prior': its routing is inverted, which has no "
            "such option.",
        ),
        (
            "tsai_inverted_simple_c10",
            {"lambda_": 0.5},
            "lambda_=0.5 is how sharp activations are, and inverted routing makes none here; leave "
            "lambda_ out.",
        ),
        (
            "resnet18",
            {"depth": 3},
            "resnet18 has no options but image and n_classes; leave 'depth' out.",
        ),
        (
            "capsnet",
            {"routing": "uniform", "iterations": 5},
            "uniform routing has no use for iterations=5; leave it out.",
        ),
        (
            "gu_capsnet_nor",
            {"iterations": 3},
            "uniform routing has no use for iterations=3; leave it out.",
        ),
        (
            "capsnet",
            {"normalise": "mean"},
            "dynamic routing has no use for normalise='mean'; leave it out.",
        ),
        (
            "efficient_capsnet",
            {"bias": True},
            "self_attention routing has no use for bias=True; leave it out.",
        ),
        (
            "capsnet",
            {"routing": DynamicRouting(), "bias": True},
            "a routing that is given as an object has its options already, so bias=True would do "
            "nothing; say it where DynamicRouting(…) is made.",
        ),
        (
            "capsnet",
            {"routing": SelfAttentionRouting(), "bias": True},
            "a routing that is given as an object has its options already, so bias=True would do "
            "nothing; SelfAttentionRouting has no such option, so leave it out.",
        ),
        (
            "gamma_capsnet",
            {"routing": "dynamic", "scale": "sample"},
            "dynamic routing has no use for scale='sample'; leave it out.",
        ),
        (
            "mitterreiter_grid",
            {"routing": "inverted", "head": True, "lambda_": 0.5},
            "lambda_=0.5 is how sharp activations are, and inverted routing makes none here; leave "
            "lambda_ out.",
        ),
        (
            "mitterreiter_grid",
            {"detach": "coupling", "prior": "learned"},
            "detach='coupling' makes couplings constants to the gradient, so prior='learned' would "
            "learn nothing; leave one of them out.",
        ),
        (
            "capsnet",
            {"detach": "coupling", "agreement": "learned"},
            "detach='coupling' makes couplings constants to the gradient, so agreement='learned' "
            "would learn nothing; leave one of them out.",
        ),
        (
            "tsai_inverted_simple_c10",
            {"backbone": "resnet"},
            "backbone='resnet' would end in the channels that are meant for 'simple'; set width "
            "too: in [tsai2020] it is 128 for 'resnet', for 'simple' 256 with ten classes and 128 "
            "with a hundred.",
        ),
        (
            "tsai_inverted_resnet_c10",
            {"backbone": "simple"},
            "backbone='simple' would end in the channels that are meant for 'resnet'; set width "
            "too: in [tsai2020] it is 128 for 'resnet', for 'simple' 256 with ten classes and 128 "
            "with a hundred.",
        ),
        (
            "peer_deep_dynamic",
            {"routing": "em"},
            "with EM routing this network is peer_deep_em, which has the λ, first weights and "
            "iterations that EM routing needs there; make that one.",
        ),
        (
            "peer_sign_dynamic",
            {"routing": "em"},
            "with EM routing this network is peer_sign_em, which has the λ, first weights and "
            "iterations that EM routing needs there; make that one.",
        ),
        (
            "mitterreiter_5x16",
            {"routing": "dynamc"},
            "routing='dynamc' is unknown; did you mean 'dynamic'? known: "
            + ", ".join(sorted(ROUTINGS))
            + ". One of your own is known after register_routing, on the command line by --import "
            "of its file.",
        ),
        (
            "capsnet",
            {"image": (28, 28)},
            "image must be (channels, height, width), three whole numbers from 1 to 1,000,000, "
            "but came as (28, 28).",
        ),
        (
            "mitterreiter_grid",
            {"widths": 8},
            "mitterreiter_grid takes widths as str, for example '16,16,16,16', but it came as 8; "
            "write '8', on the command line --option 'widths=\"8\"'.",
        ),
        (
            "mitterreiter_grid",
            {"widths": [8, 16]},
            "mitterreiter_grid takes widths as str, for example '16,16,16,16', but it came as "
            "[8, 16]; write '8,16', on the command line --option 'widths=\"8,16\"'.",
        ),
        (
            "matrix_capsnet",
            {"sizes": (64, 8, 16, 16)},
            "matrix_capsnet takes sizes as str, for example '64-8-16-16', but it came as "
            "(64, 8, 16, 16); write '64-8-16-16', on the command line --option "
            "'sizes=\"64-8-16-16\"'.",
        ),
        (
            "mitterreiter_grid",
            {"widths": None},
            "mitterreiter_grid takes widths as str, for example '16,16,16,16', but it came as "
            "None.",
        ),
        (
            "resnet18",
            {"image": (32, 32, 3)},
            "image is (channels, height, width), but came as (32, 32, 3); did you mean "
            "(3, 32, 32)?",
        ),
        (
            "capsnet",
            {"image": (28, 28, 1)},
            "image is (channels, height, width), but came as (28, 28, 1); did you mean "
            "(1, 28, 28)?",
        ),
        (
            "capsnet",
            {"image": (48, 64, 3)},
            "image is (channels, height, width), but came as (48, 64, 3); did you mean "
            "(3, 48, 64)?",
        ),
        (
            "capsnet",
            {"image": (0, 28, 28)},
            "image must be (channels, height, width), three whole numbers from 1 to 1,000,000, "
            "but came as (0, 28, 28).",
        ),
        (
            "capsnet",
            {"image": (10**6, 10**6, 10**6)},
            "an image of 1000000×1000000×1000000 has more than 2,147,483,648 numbers, the most "
            "that a network is made for; is its order (channels, height, width)?",
        ),
        (
            "capsnet",
            {"n_classes": 0},
            "n_classes must be a whole number from 1 to 1,000,000, but came as 0.",
        ),
        (
            "capsnet",
            {"n_classes": 10**5000},
            "n_classes must be a whole number from 1 to 1,000,000, but came as a number of "
            "thousands of digits.",
        ),
        (
            "capsnet",
            {"iterations": 10**7},
            "capsnet takes iterations up to 1,000,000, but it came as 10000000.",
        ),
        (
            "peer_deep_em",
            {"n_layers": 101},
            "n_layers counts the primary and the class capsules, so it is 2 to 100, but came as "
            "101.",
        ),
        (
            "mitterreiter_grid",
            {"widths": "1" * 201},
            "mitterreiter_grid takes widths in at most 200 letters, for example '16,16,16,16', but "
            f"it came as '{99 * '1'}….",
        ),
    ],
)
def test_what_is_refused(name, chosen, expected):
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}$"):
        create_model(name, **chosen)


@pytest.mark.parametrize(
    ("option", "value", "kind", "example"),
    [
        ("iterations", "three", "int", "3"),
        ("iterations", True, "int", "3"),
        ("iterations", 2.5, "int", "3"),
        ("weight_std", "wide", "float", "0.1"),
        ("bias", "no", "bool", "False"),
        ("decoder", 1, "bool", "True"),
        ("routing", 3, "str", "'dynamic'"),
    ],
)
def test_options_of_a_wrong_type(option, value, kind, example):
    expected = f"capsnet takes {option} as {kind}, for example {example}, but it came as {value!r}."
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}$"):
        create_model("capsnet", **{option: value})


def test_words_of_a_wrong_type():
    expected = (
        "peer_deep_dynamic takes bias as one of none, added, odd, for example 'none', but it came "
        "as True."
    )
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}$"):
        create_model("peer_deep_dynamic", bias=True)


STARTS = 'it starts as init="paper" says and cannot do otherwise: '


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (
            "convnet_fc",
            {"init": "paper"},
            "convnet_fc has no option 'init': it has no routed layer whose lengths could be "
            "balanced.",
        ),
        (
            "deepcaps",
            {"init": "balanced"},
            f"deepcaps has no option 'init': {STARTS}most of its layers are convolutions, which "
            f"balanced initialisation does not set.",
        ),
        (
            "peer_sign_dynamic",
            {"init": "paper"},
            f"peer_sign_dynamic has no option 'init': {STARTS}with twenty parents to a child no "
            f"scale brings their lengths to 0.2.",
        ),
        (
            "matrix_capsnet",
            {"init": "balanced"},
            f"matrix_capsnet has no option 'init': {STARTS}balanced initialisation sets squashed "
            f"lengths, which its routing does not give.",
        ),
        (
            "deepcaps",
            {"routing": "uniform", "iterations": 5},
            "uniform routing has no use for iterations=5; leave it out.",
        ),
        (
            "capsnet",
            {"init": "balanced", "weight_std": 3.0},
            'init="balanced" sets the scale of the weights by itself, so weight_std=3.0 would do '
            "nothing; leave one of them out.",
        ),
        (
            "rem_dr",
            {"mask": "none"},
            "mask='none' says what the decoder sees, but decoder=False leaves the decoder out; "
            "leave mask out too, or set decoder=True.",
        ),
        (
            "matrix_capsnet",
            {"lambda_": -1.0},
            "lambda_ must be a finite number from 0 up, but came as -1.0.",
        ),
    ],
)
def test_what_would_do_nothing_or_harm_is_refused(name, options, expected):
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}$"):
        create_model(name, **options)


def test_a_sign_net_has_twenty_parents_a_child():
    """What its refusal says."""
    assert create_model("peer_sign_dynamic").layers["hidden_2"].n_out == 20


@pytest.mark.parametrize("name", ["tsai_inverted_simple_c10", "tsai_inverted_resnet_c10"])
def test_width_is_that_of_the_backbone(name):
    with torch.device("meta"):
        model = create_model(name, width=64)
    assert model.primary.projection.in_channels == 64


def test_a_whole_number_is_a_fine_float():
    assert create_model("capsnet", **SMALL, weight_std=1).config["weight_std"] == 1


@pytest.mark.parametrize("chosen", [{"image": 28}, {"image": (1, 28.0, 28)}, {"n_classes": "ten"}])
def test_sizes_of_a_wrong_type(chosen):
    with torch.device("meta"), pytest.raises(TorchcapsError):
        create_model("capsnet", **chosen)


@pytest.mark.parametrize("name", ["capsnet", "mitterreiter_5x16", "efficient_capsnet"])
def test_the_bias_of_em_routing_is_that_of_its_votes(name):
    with torch.device("meta"):
        bare, biased = (
            create_model(name, routing="em", **({"bias": True} if bias else {}))
            for bias in (False, True)
        )
    for layer in bare.layers.values():
        assert layer.vote_bias is None
    for layer in biased.layers.values():
        assert layer.vote_bias.shape == (layer.n_out, layer.d_out)
        assert not hasattr(layer.routing, "bias")


def test_an_option_of_no_use_may_stand_in_a_config():
    """A config holds every option, and a network that was saved comes back."""
    config = create_model("mitterreiter_5x16", **SMALL, routing="uniform").config
    assert config["iterations"] == 3
    assert make_model(**config).config == config


@pytest.mark.parametrize("name", [name for name in list_models() if MODELS[name].routings])
def test_every_network_takes_a_routing_that_joins_the_table(monkeypatch, name):
    class StarRouting(Routing):
        def __init__(self, *, iterations=1, sharpness=2.0):
            super().__init__()
            self.iterations, self.sharpness = iterations, sharpness

        def create_parameters(self, *, n_in, n_out, d_out):
            pass

        def forward(self, votes, activation, *, keep="none"):
            return uniform_routing(votes, keep=keep)

    monkeypatch.setitem(ROUTINGS, "star", StarRouting)
    with torch.device("meta"):
        model = create_model(name, routing="star", iterations=7)
        out = model(torch.empty(2, *MODELS[name].image))
    routings = [each for each in model.modules() if isinstance(each, StarRouting)]
    assert routings
    # Told what it knows, spared what it does not.
    assert {(each.iterations, each.sharpness) for each in routings} == {(7, 2.0)}
    assert out.scores.shape == (2, MODELS[name].n_classes)
    # Also of what no network has ever heard.
    with torch.device("meta"):
        sharp = create_model(name, routing="star", sharpness=0.5)
    told = {each.sharpness for each in sharp.modules() if isinstance(each, StarRouting)}
    assert told == {0.5}
    assert sharp.config["sharpness"] == 0.5
    assert text_of(lambda: create_model(name, routing="uniform", sharpness=0.5)) == (
        "uniform routing has no use for sharpness=0.5; leave it out."
    )


SHARP = {"activations": True, "lambda_": 0.5}


@pytest.mark.parametrize(
    ("name", "options", "layer", "found"),
    [
        ("capsnet", {"prior": "learned"}, "classes", {"prior": [32, 2]}),
        ("capsnet", {"leaky": True}, "classes", {"leaky": True}),
        ("rem_effconv", {"squash": "hinton"}, "conv_1", {"squash": "hinton"}),
        ("mitterreiter_5x16", {"prior": "zero"}, "hidden_2", {"prior": None}),
        ("efficient_capsnet", {"prior": "zero"}, "classes", {"prior": None}),
        (
            "tsai_inverted_simple_c10",
            {"activations": True, "lambda_": 0.5},
            "conv_1",
            {"lambda_": 0.5},
        ),
        ("matrix_capsnet", {"variance_floor": 0.25}, "conv_1", {"variance_floor": 0.25}),
        ("peer_deep_em", {"variance_floor": 0.25}, "classes", {"variance_floor": 0.25}),
    ],
)
def test_an_option_that_no_network_lists_finds_its_owner(tmp_path, name, options, layer, found):
    image = (3, 40, 40) if name == "rem_effconv" else (1, 18, 18)
    model = create_model(name, image=image, n_classes=2, **options)
    save(model, tmp_path / "net.safetensors")
    for each in (model, load(tmp_path / "net.safetensors")):
        routing = each.layers[layer].routing
        values = {key: getattr(routing, key) for key in found}
        shapes = {k: list(v.shape) if isinstance(v, torch.Tensor) else v for k, v in values.items()}
        assert shapes == found
        assert options.items() <= each.config.items()


def test_the_bias_of_em_routing_is_its_layers_where_no_network_lists_it():
    with torch.device("meta"):
        model = create_model("tsai_dmm_vector_dynamic", routing="em", bias=True)
    assert all(layer.vote_bias is not None for layer in model.layers.values())


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", list_models())
def test_every_number_and_switch_may_be_set(name):
    """To another value than its default; what a network makes of it is tested with the network."""
    refused = []
    for option, default in MODELS[name].options.items():
        assert default is not None, f"{option}: of what type?"
        if not isinstance(default, bool | float):
            continue
        value = not default if isinstance(default, bool) else default / 2 or 0.5
        try:
            with torch.device("meta"):
                assert create_model(name, **{option: value}).config[option] == value
        except TorchcapsError as error:
            refused.append(str(error))
    assert all("has no use for" in text for text in refused)


def test_what_is_refused_with_a_reason_may_be_said_with_another_word():
    with torch.device("meta"):
        resnet = create_model("tsai_inverted_simple_c10", backbone="resnet", width=128)
        same = create_model("tsai_inverted_resnet_c10", backbone="resnet")
        shapes = [{k: v.shape for k, v in each.state_dict().items()} for each in (resnet, same)]
        assert shapes[0] == shapes[1]
        create_model("tsai_inverted_simple_c10", activations=True)
        create_model("mitterreiter_grid", routing="em", lambda_=0.5)
        create_model("mitterreiter_grid", detach="coupling")
        # Whoever gives an object says λ there.
        create_model("peer_sign_dynamic", routing=EMRouting(lambda_=1.0))
        # A file of before opens.
        assert make_model("peer_sign_dynamic", routing="em").layers["classes"].routing.lambda_


def test_no_more_layer_is_no_layer_whatever_the_network_has():
    with torch.device("meta"):
        model = create_model("tsai_inverted_simple_c100", hidden=0)
    assert list(model.layers) == ["conv_1", "conv_2", "classes"]
    text = text_of(lambda: create_model("tsai_inverted_simple_c100", hidden=-1))
    assert text == "tsai_inverted_simple_c100 takes hidden from 0 up, but it came as -1."
    text = text_of(lambda: create_model("tsai_inverted_simple_c100", d_pose=0))
    assert text == "tsai_inverted_simple_c100 takes d_pose from 1 up, but it came as 0."


def test_a_model_that_is_no_name_is_a_sentence():
    with pytest.raises(TorchcapsError, match=r"^model \['capsnet'\] is unknown; "):
        create_model(["capsnet"])


def test_signals_of_many_channels_are_no_pictures_with_channels_last():
    """Only of a square, or where the network cannot take it, is the order doubted."""
    network = create_model("resnet18", image=(9, 64, 1), n_classes=2).eval()
    assert network(torch.rand(2, 9, 64, 1)).scores.shape == (2, 2)


def test_a_network_is_listed_where_it_is_defined():
    """By a line above its function, which itself stays as it is; a variant has other defaults."""

    def make(*, image, n_classes, width=3):
        return torch.nn.Linear(width, n_classes)

    with as_before():
        assert listed("line", (1, 4, 5), 6, "ours")(make) is make
        assert listed("wide_line", (1, 4, 5), 7, "ours", width=30)(make) is make
        assert list_models() == sorted([*MODELS])
        assert MODELS["line"].options == {"width": 3}
        assert MODELS["wide_line"].options == {"width": 30}
        assert (MODELS["line"].image, MODELS["line"].source) == ((1, 4, 5), "ours")
        assert create_model("line").weight.shape == (6, 3)
        assert create_model("wide_line", n_classes=2).weight.shape == (2, 30)
    assert "line" not in MODELS
