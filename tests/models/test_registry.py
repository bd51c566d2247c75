"""Names of networks: what is listed, what is chosen, what is refused."""

import json
import re

import pytest
import torch

from torchcaps import create_model, list_models
from torchcaps.errors import TorchcapsError
from torchcaps.layers import ROUTINGS, Routing
from torchcaps.models import MODELS
from torchcaps.ops import uniform_routing

SMALL = {"image": (1, 17, 17), "n_classes": 2}


def test_the_list_is_the_table():
    assert list_models() == ["capsnet", "mitterreiter_5x16"]
    assert sorted(MODELS) == list_models()
    assert all(MODELS[name].build.__name__ == name for name in MODELS)


@pytest.mark.parametrize("name", list_models())
def test_a_name_alone_gives_the_network_of_the_paper(name):
    with torch.device("meta"):
        model = create_model(name)
        out = model(torch.rand(2, *MODELS[name].image))
    assert out.scores.shape == (2, MODELS[name].n_classes)
    assert out.reconstruction.shape == (2, *MODELS[name].image)


def test_presets_are_those_of_the_papers():
    presets = {name: (each.image, each.n_classes) for name, each in MODELS.items()}
    assert presets == {"capsnet": ((1, 28, 28), 10), "mitterreiter_5x16": ((1, 40, 40), 10)}


@pytest.mark.parametrize(("name", "weight_std"), [("capsnet", 0.1), ("mitterreiter_5x16", 1.0)])
def test_options_and_their_defaults(name, weight_std):
    assert MODELS[name].options == {
        "routing": "dynamic",
        "iterations": 3,
        "bias": False,
        "weight_std": weight_std,
        "decoder": True,
    }


def test_config_holds_everything_chosen_and_survives_json():
    model = create_model("capsnet", **SMALL, iterations=2, decoder=False)
    assert model.config == {
        "name": "capsnet",
        "image": (1, 17, 17),
        "n_classes": 2,
        "routing": "dynamic",
        "iterations": 2,
        "bias": False,
        "weight_std": 0.1,
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
            "model 'capsnt' is unknown; did you mean 'capsnet'? known: capsnet, mitterreiter_5x16.",
        ),
        (
            "capsnet",
            {"iteration": 3},
            "capsnet has no option 'iteration'; did you mean 'iterations'? "
            "known: bias, decoder, iterations, routing, weight_std.",
        ),
        (
            "mitterreiter_5x16",
            {"routing": "dynamc"},
            "routing='dynamc' is unknown; did you mean 'dynamic'? known: "
            + ", ".join(sorted(ROUTINGS))
            + ".",
        ),
        (
            "capsnet",
            {"image": (28, 28)},
            "image must be (channels, height, width), three whole numbers from 1, "
            "but came as (28, 28).",
        ),
        (
            "capsnet",
            {"image": (0, 28, 28)},
            "image must be (channels, height, width), three whole numbers from 1, "
            "but came as (0, 28, 28).",
        ),
        ("capsnet", {"n_classes": 0}, "n_classes must be a whole number from 1, but came as 0."),
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


def test_a_whole_number_is_a_fine_float():
    assert create_model("capsnet", **SMALL, weight_std=1).config["weight_std"] == 1


@pytest.mark.parametrize("chosen", [{"image": 28}, {"image": (1, 28.0, 28)}, {"n_classes": "ten"}])
def test_sizes_of_a_wrong_type(chosen):
    with torch.device("meta"), pytest.raises(TorchcapsError):
        create_model("capsnet", **chosen)


def test_every_network_takes_a_routing_that_joins_the_table(monkeypatch):
    class StarRouting(Routing):
        def __init__(self, *, iterations=1, sharpness=2.0):
            super().__init__()
            self.iterations, self.sharpness = iterations, sharpness

        def create_parameters(self, *, n_in, n_out, d_out):
            pass

        def forward(self, votes, activation, *, keep="none"):
            return uniform_routing(votes, keep=keep)

    monkeypatch.setitem(ROUTINGS, "star", StarRouting)
    for name in list_models():
        model = create_model(name, **SMALL, routing="star", iterations=7)
        routings = [each for each in model.modules() if isinstance(each, StarRouting)]
        assert routings
        # Told what it knows, spared what it does not.
        assert {(each.iterations, each.sharpness) for each in routings} == {(7, 2.0)}
        assert model(torch.rand(2, *SMALL["image"])).scores.shape == (2, SMALL["n_classes"])
