"""What networks say of what they cannot be made of, take or save, in errors.txt, word by word."""

import json
import math
import re
from functools import partial
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import prune

import torchcaps
from error_text import cases_of, said_by
from registries import as_before
from torchcaps import Capsules, Output, Routed, create_model, layers, models, ops, save
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.stack import routed_by

ERRORS = Path(__file__).with_name("errors.txt")
TINY = {"image": (1, 12, 12), "n_classes": 3, "kernel": 3, "width": 4, "types": 2}
SMALL = {
    "capsnet": ("capsnet", TINY),
    "rem_dr": ("rem_dr", TINY),
    "matrix": ("matrix_capsnet_mnist", {"sizes": "2-2-2-2"}),
    "inverted": ("tsai_inverted_simple_c10", {"image": (1, 13, 13), "types": 2, "d_pose": 4}),
}


def saved(name, change):
    """A small network that somebody changed."""
    name, options = SMALL[name]
    model = create_model(name, **options)
    change(model)
    before = set(Path().iterdir())
    try:
        save(model, "net.safetensors")
    finally:
        assert set(Path().iterdir()) == before


def headed(header, tensors=None):
    """A file with a header of our choice; without any where that is None."""
    text = header if isinstance(header, str) else json.dumps(header)
    said = None if header is None else {"torchcaps": text}
    tensors = tensors or {"a": torch.zeros(1)}
    Path("net.safetensors").write_bytes(safetensors.torch.save(tensors, metadata=said))
    return "net.safetensors"


def matrix(by_hand):
    """A file that tells what was set of its norms by hand."""
    model = create_model("matrix_capsnet_mnist", sizes="2-2-2-2")
    return headed({**model.config, "set by hand": by_hand}, model.state_dict())


def uneven():
    model = create_model("tsai_inverted_simple_c10", image=(3, 16, 16))
    model.layers["conv_2"].routing.iterations = 5
    return model


def stacked(image, grid, child_grid=None, projection=None):
    layer = layers.DenseCapsules(n_in=512, d_in=2, n_out=3, d_out=2, child_grid=child_grid)
    primary = layers.PrimaryCapsules(projection or nn.Identity(), d_out=2)
    below = {"image": image, "backbone": nn.Identity(), "primary": primary, "primary_grid": grid}
    return CapsuleNetwork(**below, layers={"classes": layer})


def at_once(routed):
    """A network whose layers all route at the same time."""
    primary = layers.PrimaryCapsules(nn.Identity(), d_out=2)
    below = {"image": (2, 2, 2), "backbone": nn.Identity(), "primary_grid": (2, 2, 1)}
    return CapsuleNetwork(**below, primary=primary, layers=routed, schedule="concurrent")


class Remembering(nn.Linear):
    """What it keeps beside its weights is whatever it was given."""

    def __init__(self, kept):
        super().__init__(2, 2)
        self.kept = kept

    def get_extra_state(self):
        return self.kept


class Anneal(layers.Routing):
    def __init__(self, *, iterations: int = 2, warmth: float = 1.0):
        super().__init__()
        self.iterations, self.warmth = iterations, warmth

    def create_parameters(self, *, n_in, n_out, d_out):
        pass

    def forward(self, votes, activation, *, keep="none"):
        return ops.uniform_routing(votes, keep=keep)


class Silent(Anneal):
    gives_activations = False


class Needy(Anneal):
    def __init__(self, warmth):
        super().__init__(warmth=warmth)


class Unbegun(Anneal):
    def __init__(self):
        self.iterations = 2


class Unscored(Anneal):
    """It says nothing of activations, and gives none."""

    def forward(self, votes, activation, *, keep="none"):
        return Routed(Capsules(votes.mean(-3)), ())


class Half(layers.Routing):
    def create_parameters(self, *, n_in, n_out, d_out):
        pass


class Linear(nn.Module):
    def __init__(self, *, image, n_classes):
        super().__init__()
        self.layer = nn.Linear(math.prod(image), n_classes)

    def forward(self, images):
        return Output(self.layer(images.flatten(1)), "logits")


class Configured(Linear):
    """It looks at its own `config` in every call."""

    def __init__(self, image, n_classes):
        super().__init__(image=image, n_classes=n_classes)
        self.config = {"scale": 3.0}


class UnbegunNetwork(nn.Module):
    def __init__(self, *, image, n_classes):
        self.width = n_classes


def forgetful(image, n_classes):
    Linear(image=image, n_classes=n_classes)


def acting(default):
    def build(image, n_classes, act=default):
        return Linear(image=image, n_classes=n_classes)

    return build


def made_by(build):
    torchcaps.register_model("own", build, image=(1, 8, 8), n_classes=3)
    return create_model("own")


def annealed(**options):
    torchcaps.register_routing("anneal", Anneal)
    return create_model("capsnet", **TINY, routing="anneal", **options)


def uniform(*given, **options):
    small = {"image": (1, 12, 11), "n_classes": 3, "widths": "4,5", "d_pose": 4}
    return create_model("mitterreiter_grid", **small, routing="uniform")(*given, **options)


def once(*given, **options):
    options_of = {"image": (1, 17, 17), "n_classes": 3, "iterations": 1}
    return create_model("gamma_capsnet", **options_of).eval()(*given, **options)


def fast(images):
    model = create_model("capsnet", **TINY)
    return torchcaps.optimise_for_inference(model, torch.rand(2, 1, 12, 12))(images)


def network(images):
    return create_model("convnet_fc", image=(1, 7, 8), n_classes=3, kernel=3)(images)


NAMES = vars(layers) | vars(models) | vars(torchcaps) | globals()
NAMES |= {
    "CAPSNET": {"name": "capsnet", "image": [1, 28, 28], "n_classes": 3},
    "prune": prune,
    "routed_by": routed_by,
    "classes_of": lambda model: model.layers["classes"],
    "SIZES": {"n_in": 32, "n_out": 3, "vote_bias": False},
    "UNCOUNTABLE": {
        "image": (1, 10**6, 2000),
        "n_classes": 10**6,
        "widths": "1000000,1000000",
        "d_pose": 10**6,
    },
    "IMAGES": torch.rand(2, 1, 7, 8),
    "MAPS": torch.rand(2, 4, 16, 16),
    "DENSE": layers.DenseCapsules(n_in=4, d_in=2, n_out=3, d_out=2),
    "LARGE": torch.rand(2, 1, 24, 24),
    "WEIGHT": nn.Parameter(torch.zeros(50, 4, 16, 8)),
}


def said(call):
    with as_before():
        return said_by(call, NAMES)


@pytest.mark.parametrize(("call", "sentence"), cases_of(ERRORS))
def test_what_is_told(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said(call) == sentence


@pytest.mark.parametrize(
    ("call", "sentence"),
    [each for each in cases_of(ERRORS) if "--option kernel=" in each.values[1]],
)
def test_a_kernel_that_a_sentence_offers_fits(call, sentence):
    (kernel,) = re.findall(r"--option kernel=(\d+)", sentence)
    create = partial(create_model, kernel=int(kernel))
    with torch.device("meta"):
        eval(
            call.replace(", kernel=5", "").replace(", kernel=10**6 - 1", ""),
            {"create_model": create},
        )
