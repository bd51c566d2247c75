"""What an epoch tells of the capsules, against numbers made in another way."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from error_text import text_of
from torchcaps import create_model, layers
from torchcaps.analysis import capsule_activity, routing_dynamics
from torchcaps.data import ImageSet
from torchcaps.models.own import OwnNetwork
from torchcaps.tasks import evaluate
from torchcaps.train import make_recipe
from torchcaps.train import measures as module_of_measures
from torchcaps.train.measures import Measures, counted, of_trees, parts, seen_of_capsules
from torchcaps.train.update import Update
from torchcaps.types import Capsules, LayerTrace, Output


def images(count, side=16):
    generator = torch.Generator().manual_seed(1)
    pixels = torch.rand(count, 1, side, side, generator=generator)
    return ImageSet("tiny", pixels, torch.arange(count) % 3, ("a", "b", "c"))


def network():
    torch.manual_seed(0)
    return create_model("mitterreiter_5x16", image=(1, 16, 16), n_classes=3, decoder=False)


def of_capsules(model, data):
    dead, moving = seen_of_capsules(model, data)
    return {**counted(dead), **moving}


def test_capsules_are_measured_as_analysis_measures_them():
    # More than one batch of images, and not a multiple of it.
    data, model = images(37), network().train()
    found = of_capsules(model, data)
    assert model.training
    with torch.no_grad():
        trace = model.eval()(data.pixels(slice(None)), keep="last").trace
    for layer in capsule_activity(trace).layers:
        assert found[f"dead_capsules/{layer.name}"] == layer.cds
    for layer in routing_dynamics(trace).layers:
        expected = float(layer.std.mean())
        assert found[f"coupling_std/{layer.name}"] == pytest.approx(expected, rel=1e-4)
    assert len(found) == 5 + 4


def test_couplings_that_never_change_have_no_deviation():
    model = create_model(
        "mitterreiter_5x16", image=(1, 16, 16), n_classes=3, decoder=False, routing="uniform"
    )
    found = of_capsules(model, images(20))
    assert [v for name, v in found.items() if "std" in name] == [0.0] * 4


def test_windows_are_measured_too():
    model = create_model("matrix_capsnet", image=(1, 20, 20), n_classes=3)
    found = of_capsules(model, images(5, side=20))
    assert {name.split("/")[0] for name in found} == {"dead_capsules", "coupling_std"}


def test_any_network_with_a_trace_is_measured():
    torch.manual_seed(0)
    model = create_model("deepcaps", image=(1, 16, 16), n_classes=3)
    data = images(5)
    found = of_capsules(model, data)
    with torch.no_grad():
        trace = model.eval()(data.pixels(slice(None)), keep="last").trace
    dead = {f"dead_capsules/{layer.name}": layer.cds for layer in capsule_activity(trace).layers}
    assert dead
    assert {name: found[name] for name in dead} == dead
    assert {name for name in found if name.startswith("coupling_std/")} == {
        f"coupling_std/{layer.name}" for layer in trace
    }


def test_a_network_without_capsules_or_that_keeps_nothing_tells_nothing():
    class Plain(nn.Module):
        def forward(self, image, target=None):
            raise AssertionError("it is not shown images for nothing")

    assert of_capsules(Plain(), images(4)) == {}
    without = create_model("convnet_fc", image=(1, 16, 16), n_classes=3)
    assert of_capsules(without, images(4)) == {}


def test_gradients_are_averaged_over_the_updates_and_forgotten_with_the_epoch():
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU())
    update = Update(model, make_recipe(model="own", data="own", optimiser="sgd"))
    logged = {}
    loop = SimpleNamespace(update=update, log=lambda name, value: logged.update({name: value}))
    measures = Measures(images(2))
    # The second overflowed, as in float16 now and then; it is no update.
    for gradient in ([3.0, 4.0], [math.inf, 1.0], [0.0, 1.0]):
        measures.on_train_start(loop)
        model[0].weight.grad = torch.tensor([gradient])
        update._measured.write([torch.zeros(())])
        update._move()
        update.worked(0)
        # Stopped and continued between two updates.
        again = Measures(images(2))
        again.load_state_dict(measures.state_dict())
        measures = again
    measures.on_train_epoch_end(loop)
    assert logged == {"gradient_norm/0": 3.0}
    assert measures.state_dict() == {"norms": {}, "dead_for": {}}


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_capsule_that_lives_again_counts_the_epochs_it_was_dead(monkeypatch, is_stopped):
    # Three capsules: one dies for two epochs, one twice for one, one for good.
    deaths = [(0, 0, 0), (1, 1, 0), (1, 0, 1), (0, 1, 1), (0, 0, 1)]
    loop = SimpleNamespace(model=None, logged={})
    loop.log = lambda name, value: loop.logged.update({name: value})
    found, measures = [], Measures(images(2))
    for each in deaths:
        dead = {"hidden": torch.tensor(each) > 0}
        monkeypatch.setattr(
            module_of_measures, "seen_of_capsules", lambda *_, dead=dead: (dead, {})
        )
        measures.on_validation_epoch_end(loop)
        found.append((loop.logged["dead_capsules/hidden"], loop.logged["revivals/hidden"]))
        if is_stopped:
            again = Measures(images(2))
            again.load_state_dict(measures.state_dict())
            measures = again
    assert found == [(0, 0), (2, 0), (2, 1), (2, 2), (1, 1)]


def test_a_state_of_other_capsules_is_refused(monkeypatch):
    measures, dead = Measures(images(2)), {"hidden": torch.tensor([True, False, False])}
    measures.load_state_dict({"norms": {}, "dead_for": {"hidden": torch.zeros(2).long()}})
    monkeypatch.setattr(module_of_measures, "seen_of_capsules", lambda *_: (dead, {}))
    assert text_of(lambda: measures.on_validation_epoch_end(SimpleNamespace(model=None))) == (
        "the state of this run counts 2 capsules of hidden, which has 3; it is damaged: remove "
        "state.ckpt, and the run begins anew."
    )


def test_routed_layers_are_parts_of_their_own():
    model = create_model("capsnet")
    assert list(parts(model)) == ["backbone", "primary", "decoder", "classes"]


def test_trees_of_several_layers_are_those_of_a_dictionary():
    """Couplings of the lower layers are on the grid too, and what they route to depends on it."""
    torch.manual_seed(0)
    options = {"width": 8, "init": "balanced"}
    model = create_model("peer_deep_dynamic", image=(1, 28, 28), n_classes=3, **options)
    data = images(60, side=28)
    found = of_trees(model, data)
    keys = evaluate(model, data, levels=11, measurements=("keys",)).measured["keys"]
    assert found["entropy"] == pytest.approx(keys.entropy, abs=1e-9)
    # As they are, couplings of the layers below lead to other trees.
    plain = evaluate(model, data, measurements=("keys",)).measured["keys"]
    assert plain.entropy != pytest.approx(keys.entropy, abs=0.01)


class WithoutCouple(layers.Routing):
    """Dynamic routing of somebody who has no use for `couple`, which may be left out."""

    def __init__(self):
        super().__init__()
        self.inner = layers.DynamicRouting()

    def create_parameters(self, *, n_in, n_out, d_out):
        self.inner.create_parameters(n_in=n_in, n_out=n_out, d_out=d_out)

    def forward(self, votes, activation, *, keep="none"):
        return self.inner(votes, activation, keep=keep)


def test_a_routing_that_takes_no_couplings_costs_no_training():
    """What it would be without rounding is another number, so there is none."""
    model = create_model("capsnet", image=(1, 28, 28), n_classes=3, routing=WithoutCouple()).train()
    assert of_trees(model, images(4, side=28)) == {"zero_blocks/classes": 0.0}
    assert model.training


class Hidden(nn.Module):
    """Some capsules that are no classes, and a linear layer."""

    def __init__(self, parents, *, keeps):
        super().__init__()
        self.lower = nn.Conv2d(1, 8, 9, 4)
        self.hidden = layers.DenseCapsules(n_in=2 * 2 * 4, d_in=2, n_out=parents, d_out=3)
        self.scores = nn.Linear(parents, 3)
        self.forward = self.keeping if keeps else self.plain

    def keeping(self, image, *, keep="none"):
        children = self.lower(image).flatten(1).unflatten(1, (-1, 2))
        routed = self.hidden(Capsules(children), keep=keep)
        trace = () if keep == "none" else (LayerTrace("hidden", Capsules(children), routed),)
        return Output(self.scores(routed.parents.pose.norm(dim=-1)), "logits", trace=trace)

    def plain(self, image):
        return self.keeping(image)


@pytest.mark.parametrize(("parents", "keeps"), [(2, True), (7, True), (3, False)])
def test_capsules_that_are_no_classes_have_no_trees_of_classes(parents, keeps):
    """Seven of them were taken for three classes, and two ended the training."""
    found = of_trees(OwnNetwork(Hidden(parents, keeps=keeps)), images(20))
    assert found == {"zero_blocks/hidden": 0.0}


def test_trees_of_shared_matrices_are_counted_too():
    torch.manual_seed(0)
    model = create_model("rem_effconv", image=(1, 40, 40), n_classes=3)
    data = images(12, side=40)
    found = of_trees(model, data)
    keys = evaluate(model, data, levels=11, measurements=("keys",)).measured["keys"]
    # No child has a matrix of its own, so there are no blocks.
    assert list(found) == ["entropy", "entropy_bound", "keys"]
    assert found["entropy"] == pytest.approx(keys.entropy, abs=1e-9)
