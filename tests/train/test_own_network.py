"""A network of one's own is trained, saved, opened and looked into as ours are."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import laid_runs
import torchcaps as tc
from error_text import text_of
from torchcaps import tasks
from torchcaps.data import by_name
from torchcaps.errors import Interrupted
from torchcaps.layers.routing.table import import_path
from torchcaps.models import MODELS
from torchcaps.models.own import CLASSES, OwnNetwork


class Mine(nn.Module):
    """A backbone and a capsule head; it records a trace, and takes no labels."""

    def __init__(self, width=4):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, width, 5, stride=4), nn.ReLU())
        self.head = tc.layers.CapsuleHead.after(self.backbone, image=(1, 24, 24), n_classes=10)

    def forward(self, images, *, keep="none"):
        return self.head(self.backbone(images), keep=keep)


class Plain(laid_runs.Plain):
    """With the same tensors twice."""

    def __init__(self, image=(1, 24, 24), n_classes=10):
        super().__init__(image, n_classes)
        self.twin = self.layer


DATA = {"few": laid_runs.tiny_images(60)}


def recipe(**fields):
    return tc.train.make_recipe(
        **{"model": "own", "data": "few", "epochs": 1, "batch_size": 20, **fields}
    )


def trained(module, folder, **fields):
    torch.manual_seed(0)
    return tc.train.fit(recipe(**fields), folder / "run", model=module)


@pytest.mark.parametrize("kind", [Mine, Plain])
def test_a_run_of_ones_own_network_is_a_run(kind, tmp_path):
    own = kind()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    run = trained(own, tmp_path, keep="best")
    assert any(not torch.equal(value, before[name]) for name, value in own.state_dict().items())
    images = torch.rand(3, 1, 24, 24)
    again = run.model(kind)
    assert type(again) is kind
    assert torch.equal(again(images).scores, own.eval()(images).scores)
    # And the same from the folder, into a module that was made already.
    empty = kind()
    assert tc.load(run.folder, model=empty) is empty
    assert torch.equal(empty(images).scores, again(images).scores)
    found = tasks.evaluate_file(run.folder, model=kind)
    assert found.accuracy == run.result()["test_accuracy"]
    (page,) = tasks.dissect_files([run.folder], model=kind, images=12)
    assert (page.dynamics is None) == (kind is Plain)
    if kind is Mine:
        (row,) = run.metrics()
        of_parts = {"gradient_norm/backbone", "gradient_norm/head", "coupling_std/classes"}
        assert of_parts <= set(row)
    examined = tasks.doctor_run(run.folder, seconds=1, model=kind)
    assert examined.subject.startswith("own on 60 training images")
    assert run.about()["class"] == f"{kind.__module__}.{kind.__name__}"


def test_a_run_that_is_done_gives_its_weights_and_refuses_another_network(tmp_path):
    own = Plain()
    run = trained(own, tmp_path)
    fresh = Plain()
    assert trained(fresh, tmp_path).folder == run.folder
    assert all(torch.equal(own.state_dict()[n], v) for n, v in fresh.state_dict().items())
    for more in ({}, {"epochs": 2}):
        said = text_of(lambda more=more: trained(Mine(), tmp_path, **more))
        assert said.startswith(f"{run.folder} was begun with a network of the class ")


def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path):
    torch.manual_seed(1)
    start = Mine().state_dict()
    once, twice = Mine(), Mine()
    for each in (once, twice):
        each.load_state_dict(start)
    tc.train.fit(recipe(epochs=2), tmp_path / "once", model=once)
    tc.train.fit(recipe(epochs=1), tmp_path / "twice", model=twice)
    other = Mine()  # whatever it begins with, the state of the run is taken
    tc.train.fit(recipe(epochs=2), tmp_path / "twice", model=other)
    torch.testing.assert_close(once.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_a_registered_network_that_takes_images_alone_is_one_of_ours(tmp_path):
    """It has a name, so neither its best weights nor its last state ask for its class."""
    tc.register_model("plain", Plain, image=(1, 24, 24), n_classes=10)
    try:
        whole = recipe(model="plain", keep="best", epochs=2)
        with pytest.raises(Interrupted):
            tc.train.fit(whole, tmp_path / "cut", time_budget=1e-6)
        assert 0 <= tasks.evaluate_file(tmp_path / "cut").accuracy <= 1
        run = tc.train.fit(whole, tmp_path / "run")
        assert type(tc.load(run.folder)) is Plain
        assert tasks.evaluate_file(run.folder).accuracy == run.result()["test_accuracy"]
    finally:
        MODELS.pop("plain")


def test_a_state_of_other_sizes_is_told(tmp_path):
    trained(Mine(), tmp_path)
    (tmp_path / "run" / "result.json").unlink()
    assert "run is of a network of other sizes (size mismatch for" in text_of(
        lambda: trained(Mine(width=3), tmp_path, epochs=2)
    )


class Coupled(Mine):
    def forward(self, images, *, keep="none", couple=None, intervene=None):
        features = self.backbone(images)
        return self.head(features, keep=keep, couple=couple, intervene=intervene)


def test_couplings_are_replaced_where_the_module_takes_functions():
    test = by_name.SOURCES["few"]("test", None)
    network, pixels = OwnNetwork(Coupled()).eval(), test.batch(slice(None)).pixels
    use = tc.analysis.causal_use(network, pixels, test.labels, silenced=["primary"])
    assert {row.layer for row in use.couplings} == {"classes"}
    assert len(use.capsules) == 32
    plain = network(pixels).scores
    same = network(pixels, couple=lambda c: c, intervene={"classes": lambda u: u}).scores
    assert torch.equal(same, plain)
    # By hand: the network sees couplings that are rounded to halves.
    by_hand = network(pixels, couple=lambda c: (c * 2).round() / 2).scores
    ours = tasks.evaluate(network.module, test, levels=3).scores
    torch.testing.assert_close(ours, by_hand)
    assert not torch.allclose(ours, plain)


class Deeper(nn.Module):
    """Four routed layers, which no attribute names."""

    def __init__(self, image=(1, 24, 24), n_classes=10):
        super().__init__()
        known = {"image": image, "n_classes": n_classes, "decoder": False}
        self.inner = tc.create_model("mitterreiter_5x16", **known)

    def forward(self, images, target=None, *, keep="none", couple=None):
        return self.inner(images, target, keep=keep, couple=couple)


def test_levels_of_layers_that_lie_deeper_are_those_of_the_layers():
    torch.manual_seed(0)
    own, test = Deeper(), by_name.SOURCES["few"]("test", None)
    own.image = (1, 24, 24)
    levels = (11, 6, 5, 2)
    for each in (own, OwnNetwork(own)):
        found = tasks.evaluate(each, test, levels=levels, measurements=["keys"])
        inner = tasks.evaluate(own.inner, test, levels=levels, measurements=["keys"])
        assert torch.equal(found.scores, inner.scores)
        assert found.measured == inner.measured
        assert text_of(lambda each=each: tasks.evaluate(each, test, levels=(11, 6))) == (
            "couplings are quantised to one number of levels, or to one for each of the 4 routed "
            "layers hidden_2, hidden_3, hidden_4, classes, but 2 came."
        )
    assert text_of(lambda: tasks.evaluate(OwnNetwork(Deeper()), test, levels=(11, 6))) == (
        "nobody says what images Deeper takes, so which routed layers it has is not known, and "
        "couplings are quantised to one number of levels for all of them, but 2 came; give one, or "
        "give the module an attribute image=(channels, height, width)."
    )


def test_a_dictionary_names_the_levels_of_layers_that_lie_deeper(tmp_path, monkeypatch):
    run = trained(Deeper(), tmp_path, validation_share=0.2)
    monkeypatch.setitem(CLASSES, import_path(Deeper), Deeper)
    for levels, known in ((11, (11,) * 4), ((11, 6, 5, 2), (11, 6, 5, 2))):
        assert tasks.dictionary(run.folder, levels=levels).levels == known
    found = tasks.dictionary(run.folder)
    assert found.levels == found.chosen.levels
    assert len(found.levels) == 4


@pytest.mark.parametrize("name", ["couple", "intervene", "iterations"])
def test_a_module_without_such_an_argument_says_so(name):
    network, pixels = OwnNetwork(Mine()), torch.rand(2, 1, 24, 24)
    assert text_of(lambda: network(pixels, **{name: {"classes": lambda x: x}})) == (
        f"Mine takes no `{name}`, so nothing in it can be changed; let its forward take "
        f"{name}=None and hand it to its capsule layers."
    )
    test = by_name.SOURCES["few"]("test", None)
    assert "Mine takes no `couple`, so it has no couplings to quantise" in text_of(
        lambda: tasks.evaluate(Mine(), test, levels=11)
    )


class HandsOn(Mine):
    """What it is asked goes to its head, whatever it is."""

    def forward(self, images, **asked):
        return self.head(self.backbone(images), **asked)


def test_a_module_that_hands_on_what_it_is_asked_is_asked():
    module = HandsOn().eval()
    network, pixels = OwnNetwork(module), torch.rand(2, 1, 24, 24)
    assert torch.equal(network(pixels, torch.tensor([0, 1])).scores, module(pixels).scores)
    assert network(pixels).trace == ()
    (layer,) = network(pixels, keep="last").trace
    assert layer.name == "classes"
    # A layer whose couplings are taken away has classes of no length.
    silent = network(pixels, couple=lambda coupling: 0 * coupling)
    assert silent.scores.abs().max() == 0
    silent = network(pixels, intervene={"classes": tc.analysis.silence(0, 1, 2)})
    assert silent.scores[:, :3].abs().max() == 0
    test = by_name.SOURCES["few"]("test", None)
    assert 0 <= tasks.evaluate(module, test, levels=11).accuracy <= 1


class Often(Plain):
    def forward(self, images, *, iterations=1):
        out = super().forward(images)
        return replace(out, scores=iterations * out.scores)


def test_iterations_are_those_of_a_module_that_takes_them():
    network, pixels = OwnNetwork(Often()), torch.rand(2, 1, 24, 24)
    torch.testing.assert_close(network(pixels, iterations=3).scores, 3 * network(pixels).scores)


def test_a_file_says_whose_weights_it_holds_and_runs_nothing(tmp_path):
    own, path, images = Plain(), tmp_path / "net.safetensors", torch.rand(2, 1, 24, 24)
    tc.save(own, path)
    assert torch.equal(tc.load(path, model=Plain)(images).scores, own(images).scores)
    needed = f"{Plain.__module__}.Plain"
    assert text_of(lambda: tc.load(path)) == (
        f"{path}: this is a network of your own, of the class {needed}; a file never runs code, so "
        f"give its class or a module of it: model=Plain (on the command line: --import of its "
        f"file)."
    )
    assert f"{Mine.__name__} was given; give model=Plain." in text_of(
        lambda: tc.load(path, model=Mine)
    )
    assert "was it made with other sizes?" in text_of(
        lambda: tc.load(path, model=Plain(n_classes=3))
    )
    assert "model must be the class Plain or a module of it" in text_of(
        lambda: tc.load(path, model="Plain")
    )


class Needy(Plain):
    def __init__(self, depth):
        super().__init__()


def test_a_class_that_needs_arguments_is_to_be_made(tmp_path):
    path = tmp_path / "net.safetensors"
    tc.save(Needy(3), path)
    assert "give that: model=Needy(…)." in text_of(lambda: tc.load(path, model=Needy))
    assert isinstance(tc.load(path, model=Needy(3)), Needy)


def test_a_network_of_ours_is_called_as_it_is():
    assert isinstance(tc.models.own.as_network(Mine()), OwnNetwork)
    ours = tc.create_model("peer_sign_dynamic")
    assert tc.models.own.as_network(ours) is ours
