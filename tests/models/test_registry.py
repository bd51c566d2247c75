"""Names of networks: what is listed, what is chosen, what is refused."""

import json

import pytest
import torch

from on_meta import created
from registries import as_before
from tables import beside, worked_out
from torchcaps import create_model, list_models, load, save
from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    ROUTINGS,
    EMRouting,
    Routing,
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


def test_a_hundred_classes_are_in_the_name():
    for name, preset in MODELS.items():
        assert (preset.n_classes == 100) == name.endswith("c100")


OPTIONS = beside(__file__, "options.toml")


@pytest.mark.parametrize("name", OPTIONS["said"])
def test_what_presets_say(name):
    assert OPTIONS["said"][name].items() <= MODELS[name].options.items()


def test_config_holds_everything_chosen_and_survives_json():
    defaults = OPTIONS["defaults"]
    assert MODELS["mitterreiter_5x16"].options == defaults
    chosen = {"iterations": 2, "decoder": False}
    model = create_model("mitterreiter_5x16", **SMALL, **chosen)
    assert model.config == {"name": "mitterreiter_5x16", **SMALL} | defaults | chosen
    again = create_model(**json.loads(json.dumps(model.config)))
    assert again.config == model.config


def test_a_sign_net_has_twenty_parents_a_child():
    """What its refusal says."""
    assert create_model("peer_sign_dynamic").layers["hidden_2"].n_out == 20


@pytest.mark.parametrize("name", ["tsai_inverted_simple_c10", "tsai_inverted_resnet_c10"])
def test_width_is_that_of_the_backbone(name):
    model = created(name, width=64)
    assert model.primary.projection.in_channels == 64


def test_a_whole_number_is_a_fine_float():
    assert create_model("capsnet", **SMALL, weight_std=1).config["weight_std"] == 1


# The last does not list it.
@pytest.mark.parametrize(
    "name", ["capsnet", "mitterreiter_5x16", "efficient_capsnet", "tsai_dmm_vector_dynamic"]
)
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
    sharp = created(name, routing="star", sharpness=0.5)
    told = {each.sharpness for each in sharp.modules() if isinstance(each, StarRouting)}
    assert told == {0.5}
    assert sharp.config["sharpness"] == 0.5
    said = r"^uniform routing has no use for sharpness=0\.5; leave it out\.$"
    with pytest.raises(TorchcapsError, match=said):
        create_model(name, routing="uniform", sharpness=0.5)
    assert sharp.config["sharpness"] == 0.5


@pytest.mark.parametrize("case", OPTIONS["owned"], ids=str)
def test_an_option_that_no_network_lists_finds_its_owner(tmp_path, case):
    name, options, layer = case["model"], case["options"], case["layer"]
    found = worked_out(case["found"], {})
    image = (3, 40, 40) if name == "rem_effconv" else (1, 18, 18)
    model = create_model(name, image=image, n_classes=2, **options)
    save(model, tmp_path / "net.safetensors")
    for each in (model, load(tmp_path / "net.safetensors")):
        routing = each.layers[layer].routing
        values = {key: getattr(routing, key) for key in found}
        shapes = {k: list(v.shape) if isinstance(v, torch.Tensor) else v for k, v in values.items()}
        assert shapes == found
        assert options.items() <= each.config.items()


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
    model = created("tsai_inverted_simple_c100", hidden=0)
    assert list(model.layers) == ["conv_1", "conv_2", "classes"]


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
