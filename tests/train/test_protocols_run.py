"""Every protocol, once from its data to its evaluation: one epoch of a few stand-in images, by a
network of its paper, made small where it can be."""

from functools import cache

import pytest
import torch

from tables import beside
from torchcaps.data import SOURCES, DiverseMultiMnist, Expanded, ImageSet, MultiMnist
from torchcaps.tasks import evaluate_file
from torchcaps.train import PROTOCOLS, fit, make_recipe
from torchcaps.train.images import images_of

RUNS = {name: told["run"] for name, told in beside(__file__, "protocols.toml").items()}


@cache
def pictures(split, image, n_classes):
    """A bar a class, in noise."""
    count = {"train": 40, "test": 20}[split]
    generator = torch.Generator().manual_seed(count)
    images = torch.rand(count, *image, generator=generator) * 0.3
    labels = torch.arange(count) % n_classes
    for number, label in enumerate(labels.tolist()):
        images[number, :, 2 * label : 2 * label + 2] += 0.6
    return ImageSet("stand-in", images, labels, tuple(map(str, range(n_classes))))


def digits(split):
    return pictures(split, (1, 28, 28), 10)


STAND_INS = {
    "cifar10": lambda split, root: pictures(split, (3, 32, 32), 10),
    "diverse-multi-mnist": lambda split, root: DiverseMultiMnist(digits(split)),
    "expanded-mnist": lambda split, root: Expanded(digits(split)),
    "mnist": lambda split, root: digits(split),
    "multi-mnist-100": lambda split, root: MultiMnist(digits(split), copies=2),
    "smallnorb": lambda split, root: pictures(split, (2, 32, 32), 5),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if run.get("is_quick") else pytest.mark.slow)
        for name, run in RUNS.items()
    ],
)
def test_a_protocol_trains_and_is_evaluated(name, monkeypatch, tmp_path):
    for data, source in STAND_INS.items():
        monkeypatch.setitem(SOURCES, data, source)
    given = {key: value for key, value in RUNS[name].items() if key != "is_quick"}
    protocol, recipe = PROTOCOLS[name], make_recipe(protocol=name, epochs=1, **given)
    run = fit(recipe, tmp_path / name)
    result = run.result()
    epochs = protocol.fields["epochs"]
    shorter = () if epochs == 1 else (f"epochs: 1, where the protocol {name} has {epochs}",)
    assert result["protocol"] == name
    assert tuple(result["departures"]) == (*protocol.departs.values(), *shorter)
    test = images_of(recipe, "test")
    assert (result["test_images"], result["judged_by"]) == (len(test), test.judged_by)
    held_out = round(recipe.validation_share * len(images_of(recipe, "train")))
    assert result["training_images"] == len(images_of(recipe, "train")) - held_out
    (row,) = run.metrics()
    assert all(value == value for value in row.values() if isinstance(value, float))
    found = evaluate_file(run.folder)
    assert found.accuracy == pytest.approx(result["test_accuracy"])
    assert (found.judged_by, found.changed) == (test.judged_by, False)
