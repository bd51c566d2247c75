"""A routing and a network of one's own: by name and as objects, saved and opened again."""

import math
import sys

import pytest
import torch
from torch import nn

import torchcaps as tc
from error_text import text_of
from registries import as_before
from torchcaps.tasks import estimate


class Anneal(tc.layers.Routing):
    """Uniform couplings, but a learned temperature keeps it company."""

    def __init__(self, *, iterations: int = 2, warmth: float = 1.0):
        super().__init__()
        self.iterations, self.start = iterations, warmth

    def create_parameters(self, *, n_in, n_out, d_out):
        self.warmth = nn.Parameter(torch.full((n_out, 1), self.start))

    def forward(self, votes, activation, *, keep="none"):
        coupling = votes.new_full(votes.shape[:-1], 1 / votes.shape[-2])
        pose = tc.ops.squash(self.warmth * votes.mean(-3))
        parents = tc.Capsules(pose, pose.norm(dim=-1))
        return tc.Routed(parents, () if keep == "none" else (tc.Step(None, coupling, parents),))


class Linear(nn.Module):
    def __init__(self, *, image, n_classes, width: int = 4):
        super().__init__()
        self.width = width
        self.layer = nn.Linear(image[0] * image[1] * image[2], n_classes)
        self.register_buffer("two", torch.tensor(2.0), persistent=False)

    def forward(self, images):
        return tc.Output(self.two * self.layer(images.flatten(1)), "logits")


@pytest.fixture(autouse=True)
def _tables():
    with as_before():
        yield


SMALL = {"image": (1, 20, 20), "n_classes": 3}


class Bare(Anneal):
    """It returns poses alone."""

    def forward(self, votes, activation, *, keep="none"):
        return tc.ops.squash(self.warmth * votes.mean(-3))


def test_a_routing_that_ends_as_the_sentence_says_trains_and_is_traced():
    images, labels = torch.rand(2, *SMALL["image"]), torch.tensor([0, 2])
    model = tc.create_model("capsnet", **SMALL, kernel=5, routing=Bare())
    said = text_of(lambda: model(images))
    lines = said.partition("end it with: ")[2].removesuffix(".").split("; ")
    body = ["pose = tc.ops.squash(votes.mean(-3))", "coupling = votes.softmax(-2)[..., 0]", *lines]
    scope: dict = {"tc": tc}
    exec("def forward(self, votes, activation, *, keep):\n " + "\n ".join(body), scope)
    obedient = type("Obedient", (Anneal,), {"forward": scope["forward"]})

    model = tc.create_model("capsnet", **SMALL, kernel=5, routing=obedient())
    tc.train.loss_of(model(images, labels), labels).backward()
    assert model.layers["classes"].weight.grad.abs().sum() > 0
    for keep in ("last", "steps"):
        assert len(model(images, keep=keep).trace[0].routed.steps) == 1


def test_a_registered_routing_is_asked_for_one_iteration():
    tc.register_routing("anneal", Anneal)
    tc.create_model("capsnet", **SMALL, routing="anneal", iterations=1)


def test_a_registered_routing_is_one_among_the_others(tmp_path):
    tc.register_routing("anneal", Anneal)
    tc.register_routing("anneal", Anneal)  # again, as an import does that is repeated
    model = tc.create_model("peer_deep_dynamic", **SMALL, routing="anneal", iterations=5)
    assert {type(layer.routing) for layer in model.layers.values()} == {Anneal}
    assert all(layer.routing.iterations == 5 for layer in model.layers.values())
    tc.save(model, tmp_path / "net.safetensors")
    images = torch.rand(2, 1, 20, 20)
    again = tc.load(tmp_path / "net.safetensors")
    torch.testing.assert_close(again(images).scores, model.eval()(images).scores)
    del tc.layers.ROUTINGS["anneal"]
    assert text_of(lambda: tc.load(tmp_path / "net.safetensors")) == (
        f"{tmp_path / 'net.safetensors'} holds a network with 'anneal' routing, which is unknown; "
        "a file never runs code, so import what registers it first (on the command line: "
        "--import)."
    )


def test_a_routing_object_is_copied_for_every_layer(tmp_path):
    annealed = Anneal(warmth=3.0)
    model = tc.create_model("peer_deep_dynamic", **SMALL, routing=annealed)
    routings = [layer.routing for layer in model.layers.values()]
    assert len({id(each) for each in routings}) == len(routings) > 1
    assert annealed not in routings
    assert all(float(each.warmth.detach()[0]) == 3 for each in routings)
    path = tmp_path / "net.safetensors"
    tc.save(model, path)
    again = tc.load(path, routing=Anneal())
    assert all(float(layer.routing.warmth.detach()[0]) == 3 for layer in again.layers.values())
    needed = f"{Anneal.__module__}.Anneal"
    assert text_of(lambda: tc.load(path)) == (
        f"{path} was made with a routing object of {needed}, and none came; give one again: "
        f"load(path, routing=Anneal())."
    )
    assert "torchcaps.layers.routing.dynamic.DynamicRouting came" in text_of(
        lambda: tc.load(path, routing=tc.layers.DynamicRouting())
    )


def test_opening_a_file_imports_nothing(tmp_path):
    model = tc.create_model("peer_deep_dynamic", **SMALL, routing=Anneal())
    model.config["routing"] = {"class": "antigravity.Anneal"}
    tc.save(model, tmp_path / "net.safetensors")
    assert "antigravity.Anneal, and none came" in text_of(
        lambda: tc.load(tmp_path / "net.safetensors")
    )
    assert "antigravity" not in sys.modules


def test_a_registered_network_is_one_among_the_others(tmp_path):
    tc.register_model("linear", Linear, image=(1, 8, 8), n_classes=10)
    assert "linear" in tc.list_models()
    model = tc.create_model("linear", n_classes=7, width=5)
    assert model.config == {
        "name": "linear",
        "width": 5,
        "image": (1, 8, 8),
        "n_classes": 7,
    }
    # Its forward takes images alone, which `estimate` knows.
    assert estimate("linear", n_classes=7, width=5, batch_size=2).parameters == sum(
        each.numel() for each in model.parameters()
    )
    path = tmp_path / "net.safetensors"
    tc.save(model, path)
    state = torch.get_rng_state()
    again = tc.load(path)
    assert torch.equal(torch.get_rng_state(), state)
    # A buffer that no file holds is made as the network makes it.
    assert float(again.two) == 2
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(again(images).scores, model(images).scores)
    del tc.models.MODELS["linear"]
    assert "holds the network 'linear', which is unknown" in text_of(lambda: tc.load(path))


def test_a_network_of_create_model_may_be_registered_by_another_name(tmp_path):
    def build(image, n_classes, width=4):
        return tc.create_model(
            "rem_dr", image=image, n_classes=n_classes, kernel=5, width=width, types=2
        )

    tc.register_model("narrow", build, **SMALL)
    model = tc.create_model("narrow")
    assert model.config == {"name": "narrow", **SMALL, "width": 4}
    tc.save(model, tmp_path / "net.safetensors")
    assert tc.load(tmp_path / "net.safetensors").config == model.config


def test_image_and_classes_are_no_options_though_they_have_defaults():
    def build(image=(1, 8, 8), n_classes=10, width=4):
        return Linear(image=image, n_classes=n_classes, width=width)

    tc.register_model("linear", build, image=[1, 8, 8], n_classes=10)
    assert tc.models.MODELS["linear"].options == {"width": 4}
    assert tc.create_model("linear", n_classes=7).config["n_classes"] == 7
    for options in ({"n_classes": 9}, {"image": 9}):
        (name,) = options
        assert text_of(
            lambda options=options: tc.train.make_recipe(
                model="linear", data="part-whole", options=options
            )
        ) == (
            f"linear has no option {name!r}: in training the data say it, in Python "
            f"create_model(…, {name}=…)."
        )


class Aliased(nn.Module):
    """Holds one weight in two layers, and another in a tuple."""

    def __init__(self, image, n_classes):
        super().__init__()
        size = math.prod(image)
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)
        self.second.weight = self.first.weight
        self.last = nn.Parameter(torch.randn(size, n_classes))
        self.weights = (self.last,)

    def forward(self, image):
        hidden = self.second(self.first(image.flatten(1)).relu())
        return tc.Output(hidden @ self.weights[0], "logits")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_holds_a_weight_in_two_places_still_does_once_it_is_loaded(tmp_path, dtype):
    """The weight in the tuple stayed as it was drawn, and scores were those of noise."""
    tc.register_model("aliased", Aliased, image=(1, 4, 4), n_classes=3)
    model = tc.create_model("aliased").to(dtype)
    tc.save(model, tmp_path / "net.safetensors")
    again = tc.load(tmp_path / "net.safetensors")
    images = torch.rand(2, 1, 4, 4, dtype=dtype)
    assert torch.equal(again(images).scores, model(images).scores)
    assert again.second.weight is again.first.weight
    assert again.last is again.weights[0]
    assert again.last.dtype == dtype
