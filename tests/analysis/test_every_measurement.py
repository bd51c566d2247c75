"""Laws of all measurements: streamed is all at once; capsules in another order have the
same numbers; bad input is told in a sentence."""

import json
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from torchcaps import analysis
from torchcaps.analysis import measure
from torchcaps.errors import TorchcapsError
from torchcaps.types import Capsules, LayerTrace, Output, Routed, Step, Window

IMAGES, CLASSES, PARTS = 71, 3, 4
WINDOW = Window((3, 3, 1), (2, 2), (1, 1))


def _fixed(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def _capsules(pose):
    return Capsules(pose, pose.norm(dim=-1))


def look(pixels, *, window=WINDOW, classes=CLASSES, scale=1.0, broken=0.0):
    """A network with a layer of windows and one of classes, both of two iterations; in float64.
    Without a window the lower layer is dense."""
    b, flat = len(pixels), pixels.double().flatten(1)
    grid, shape, n_hidden = (3, 3, 1), (9, 8), 8
    if window is not None:
        grid, positions = window.child_grid, math.prod(window.positions)
        shape, n_hidden = (positions, 4, 2), positions * 2

    def made(n, d, seed):
        return (flat @ _fixed(flat.shape[1], n * d, seed=seed)).view(b, n, d).tanh()

    def layer(name, children, shape, n_parents, seed, **more):
        logits = (flat @ _fixed(flat.shape[1], torch.Size(shape).numel(), seed=seed)).view(
            b, *shape
        )
        parents = _capsules(scale * made(n_parents, 3, seed + 1) + broken)
        early = _capsules(0.9 * parents.pose)
        steps = (
            Step(children, torch.full_like(logits, 1 / shape[-1]), early),
            Step(children, logits.softmax(-1) + broken, parents),
        )
        weight = _fixed(shape[-2], shape[-1], 3, 3, seed=seed + 2)
        weight = weight * (weight > 0.5)
        return LayerTrace(name, children, Routed(parents, steps), weight=weight, **more)

    children = _capsules(scale * made(math.prod(grid), 3, 1) + broken)
    low = layer("hidden", children, shape, n_hidden, 10, window=window)
    high = layer("classes", low.routed.parents, (n_hidden, classes), classes, 20)
    top = high.routed.parents
    scores = (top.activation / 2).clamp(max=1)
    return Output(scores, "lengths", top, trace=(low, high))


def listening(network):
    """The network with scores that hear its couplings, and those that take their place."""

    def asked(pixels, *, keep="none", couple=None):
        out = network(pixels)
        scores = out.scores
        for each in out.trace if out.trace and out.trace[0].routed.steps else ():
            coupling = (couple or {}).get(each.name, lambda c: c)(each.routed.steps[-1].coupling)
            if each.name == "classes":
                scores = scores + coupling.mean(-2)
            else:
                scores = scores * coupling.square().flatten(1).sum(1, keepdim=True)
        return replace(out, scores=scores)

    return asked


def _shown(batch):
    return batch.shown


def _poses(classes, labels):
    return classes.pose.flatten(1)


def twice(pixels):
    return (2 * pixels).clamp(max=1)


def flipped(pixels):
    return pixels.flip(-1)


NAMES = sorted(n for n in vars(analysis) if n.startswith("Measure") and n != "Measurement")


def fresh(name, network=look):
    changes = {"twice": twice, "flipped": flipped}
    arguments = {
        "MeasureCausalUse": {"network": listening(network)},
        "MeasureCompactness": {"network": network, "factors": {"all": [*changes.values()]}},
        "MeasureFidelity": {"parts": _shown, "layer": "hidden"},
        "MeasureInvariance": {"network": network, "changes": changes},
        "MeasurePerturbation": {"seen": _poses, "draw": torch.sigmoid},
        "MeasureRobustness": {"network": network, "changes": changes},
        "MeasureSelectivity": {"parts": _shown},
        "MeasureSeparation": {"seen": _poses},
    }
    return getattr(analysis, name)(**arguments.get(name, {}))


def images(n=IMAGES, classes=CLASSES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return SimpleNamespace(
        pixels=torch.rand(n, 1, 4, 4, generator=generator, dtype=torch.float64),
        labels=torch.randint(classes, (n,), generator=generator),
        shown=torch.randint(3, (n, PARTS), generator=generator),
    )


def repeated(whole, n):
    return SimpleNamespace(**{k: v.expand(n, *v.shape[1:]) for k, v in vars(whole).items()})


def batches(whole, size):
    for index in torch.arange(len(whole.pixels)).split(size):
        yield SimpleNamespace(**{name: value[index] for name, value in vars(whole).items()})


def agree(found, expected, where=""):
    """Equal to 1e-9 in every number, and in everything else."""
    assert type(found) is type(expected), where
    if isinstance(found, dict):
        assert found.keys() == expected.keys(), where
        for name in found:
            agree(found[name], expected[name], f"{where}.{name}")
    elif isinstance(found, list):
        assert len(found) == len(expected), where
        for number, pair in enumerate(zip(found, expected, strict=True)):
            agree(*pair, f"{where}[{number}]")
    elif isinstance(found, float):
        assert found == pytest.approx(expected, abs=1e-9), where
    else:
        assert found == expected, where


def numbers(measurement):
    return json.loads(measurement.result().to_json())


@pytest.fixture(scope="module")
def all_at_once():
    made = [fresh(name) for name in NAMES]
    found = measure(look, [images()], made)
    return {name: json.loads(each.to_json()) for name, each in zip(NAMES, found, strict=True)}


@pytest.mark.parametrize("size", [1, 7, 64])
def test_streamed_is_all_at_once(size, all_at_once):
    whole = images()
    made = {name: fresh(name) for name in NAMES}
    # Three parts of unequal sizes, not in order.
    for first, last in ((68, 71), (0, 66), (66, 68)):
        some = SimpleNamespace(**{n: value[first:last] for n, value in vars(whole).items()})
        for batch in batches(some, size):
            out = look(batch.pixels)
            for each in made.values():
                each.update(out, batch)
    for name, each in made.items():
        agree(numbers(each), all_at_once[name], name)


# Numbers of which each capsule has its own, and their axis from the end: "capsules" of a layer of
# capsules, "children" and "parents" of a routed layer, through windows the types of a position.
PER_CAPSULE = {
    "MeasureActivity": {
        "mean": {-1: "capsules"},
        "std": {-1: "capsules"},
        "dead": {-1: "capsules"},
    },
    "MeasureDynamics": {
        "mean": {-2: "children", -1: "parents"},
        "std": {-2: "children", -1: "parents"},
    },
    "MeasureFidelity": {"parts": {-1: "capsules"}},
    "MeasureInDegree": {"each": {-1: "capsules"}},
    "MeasureSelectivity": {"auc": {-2: "capsules"}, "others": {-1: "capsules"}},
}
# Those with a row for each class.
PER_CLASS = ("MeasureCouplings", "MeasureKeys")
# Numbers for which the order of capsules means something: read-outs of a layer are drawn capsule
# after capsule, so that another order gives others; they stay a share. The keys of `MeasureKeys`
# change, too, but none of its numbers: test_keys_of_children_in_another_order_are_others.
BY_CHANCE = {"MeasureSelectivity": ("control",)}
BELOW = {"hidden": "primary", "classes": "hidden"}


class Reordered:
    """`look` with the capsules of one layer in another order, in everything that it returns; where
    they are made through windows, every position orders its types alike."""

    def __init__(self, layer, window):
        self.layer, self.window = layer, window
        n = {"primary": 9, "hidden": 8, "classes": CLASSES}[layer]
        self.order = torch.randperm(n, generator=torch.Generator().manual_seed(5))
        self.types = self.order
        if layer == "hidden" and window is not None:
            self.types = torch.tensor([1, 0])
            self.order = torch.arange(n).view(-1, 2)[:, self.types].flatten()

    def __call__(self, pixels):
        out = look(pixels, window=self.window)
        if self.layer == "classes":
            out = replace(out, scores=out.scores[:, self.order], classes=self._of(out.classes))
        return replace(out, trace=tuple(self._layer(each) for each in out.trace))

    def _of(self, capsules):
        return Capsules(capsules.pose[:, self.order], capsules.activation[:, self.order])

    def _layer(self, each):
        children, weight = each.children, each.weight
        parents, steps = each.routed.parents, each.routed.steps
        if self.layer == each.name:
            parents, weight = self._of(parents), weight[:, self.types]
            steps = [
                Step(s.children, s.coupling[..., self.types], self._of(s.parents)) for s in steps
            ]
        elif self.layer == BELOW[each.name]:
            children, weight = self._of(children), weight[self.order]
            steps = [Step(children, s.coupling[:, self.order], s.parents) for s in steps]
        routed = Routed(parents, tuple(steps))
        return replace(each, children=children, routed=routed, weight=weight)

    def labels(self, labels):
        return self.order.argsort()[labels] if self.layer == "classes" else labels

    def numbers(self, name, found):
        """The numbers of `look`, in the order of these capsules."""
        for layer, row in rows(found):
            for field, axes in PER_CAPSULE.get(name, {}).items():
                for axis, whose in axes.items():
                    order = self.types if whose == "parents" else self.order
                    if self.layer == (BELOW.get(layer) if whose == "children" else layer):
                        row[field] = np.take(np.array(row[field]), order, axis).tolist()
        if name in PER_CLASS and self.layer == "classes":
            old = {int(row["name"]): row for row in found["classes"]}
            places = [(new, was) for new, was in enumerate(self.order.tolist()) if was in old]
            found["classes"] = [{**old[was], "name": str(new)} for new, was in places]
        return found


def rows(found):
    """The rows of a result with the names of their layers, or all of it as one row."""
    for row in found.get("layers", [found]):
        yield row.get("name", row.get("layer")), row


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("layer", "window"),
    [
        pytest.param("primary", None, id="primary"),
        pytest.param("hidden", None, id="hidden"),
        pytest.param("classes", None, id="classes"),
        pytest.param("hidden", WINDOW, id="types of windows"),
        pytest.param("classes", WINDOW, id="classes above windows"),
    ],
)
def test_capsules_in_another_order_have_their_numbers_in_that_order(layer, window, name):
    plain, other = partial(look, window=window), Reordered(layer, window)
    whole = images()
    (expected,) = measure(plain, [whole], [fresh(name, plain)])
    whole.labels = other.labels(whole.labels)
    (found,) = measure(other, [whole], [fresh(name, other)])
    found, expected = json.loads(found.to_json()), json.loads(expected.to_json())
    expected = other.numbers(name, expected)
    for where, row in (*rows(found), *rows(expected)):
        for field in BY_CHANCE.get(name, ()) if where == layer else ():
            assert 0 <= row.pop(field) <= 1
    agree(found, expected, name)


def test_keys_of_children_in_another_order_are_others():
    """A key is written in the order of the children; the number and the sizes of keys stay."""
    networks = partial(look, window=None), Reordered("hidden", None)
    made = [analysis.MeasureKeys(levels=3) for _ in networks]
    for network, each in zip(networks, made, strict=True):
        measure(network, [images()], [each])
    for label in range(CLASSES):
        keys, others = (each.dictionary(label) for each in made)
        assert sorted(keys.values()) == sorted(others.values())
        assert not keys or keys.keys() != others.keys()


def _without(**changes):
    def network(pixels):
        out = look(pixels)
        return replace(out, trace=tuple(replace(each, **changes) for each in out.trace))

    return network


def conv_net(pixels):
    return Output(look(pixels).scores, "lengths")


def kept_nothing(pixels):
    out = look(pixels)
    bare = (replace(each, routed=Routed(each.routed.parents)) for each in out.trace)
    return replace(out, trace=tuple(bare))


def nan_inside(pixels):
    """NaN weights, of a network whose scores hide it."""
    return replace(look(pixels, broken=torch.nan), scores=torch.full((len(pixels), 3), 0.5))


def dead(pixels):
    return look(pixels, scale=0.0)


def one_position(pixels):
    return look(pixels, window=Window((2, 2, 1), (2, 2), (1, 1)))


def one_class(pixels):
    return look(pixels, classes=1)


def with_labels(labels):
    return SimpleNamespace(**{**vars(images()), "labels": labels})


BAD = {
    "no trace": (conv_net, images()),
    "no couplings": (kept_nothing, images()),
    "no weights": (_without(weight=None), images()),
    "NaN weights": (nan_inside, images()),
    "NaN scores": (lambda pixels: look(pixels, broken=torch.nan), images()),
    "all dead": (dead, images()),
    "one class": (one_class, images(classes=1)),
    "no images": (look, images(0)),
    "a single image": (look, images(1)),
    "one image many times": (look, repeated(images(1), 50)),
    "windows with one position": (one_position, images()),
    "no labels": (look, with_labels(None)),
    "seven labels": (look, with_labels(images().labels[:7])),
    "more labels than images": (look, with_labels(images(IMAGES + 9).labels)),
    "one-hot labels": (look, with_labels(one_hot(images().labels, CLASSES))),
    "labels that are no whole numbers": (look, with_labels(images().labels.double())),
    "labels in a list": (look, with_labels(images().labels.tolist())),
}
# Whatever is measured, these are a sentence.
REFUSED = [*[*BAD][-5:], "no images", "NaN scores"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_in_a_sentence_or_measured(case, name):
    network, whole = BAD[case]
    try:
        (found,) = measure(network, [whole], [fresh(name, network)])
    except TorchcapsError as error:
        sentence = str(error)
        assert sentence.endswith(".")
        assert "\n" not in sentence
        return
    assert case not in REFUSED
    assert case != "NaN weights" or name in ("MeasureCalibration", "MeasureRobustness")
    # Neither NaN nor an infinite number is a result; JSON refuses both.
    assert found.to_json()


COMPARE_WITH_LABELS = (
    "MeasureCalibration",
    "MeasureCompactness",
    "MeasureFidelity",
    "MeasurePerturbation",
    "MeasureRobustness",
    "MeasureSeparation",
)


@pytest.mark.parametrize("label", [CLASSES, -1])
@pytest.mark.parametrize("name", COMPARE_WITH_LABELS)
def test_a_label_beyond_the_classes_is_told(name, label):
    whole = images()
    whole.labels[5] = label
    with pytest.raises(TorchcapsError, match=f"labels must be 0 to 2, but .* {label};"):
        measure(look, [whole], [fresh(name)])


@pytest.mark.parametrize("name", ["Calibration", "Couplings", "Keys", "Robustness"])
def test_more_objects_than_classes_are_told(name):
    whole = images()
    whole.labels = whole.shown.clamp(max=2)  # [b, 4]
    with pytest.raises(TorchcapsError, match=r"at most as many as the 3 classes, but came as"):
        measure(look, [whole], [fresh(f"Measure{name}")])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_seen_is_told(name):
    with pytest.raises(TorchcapsError, match=r"no images to measure|update the measurement first"):
        fresh(name).result()


@pytest.mark.parametrize("name", NAMES)
def test_two_objects_an_image_are_measured_or_told(name):
    whole = images()
    whole.labels = torch.stack([whole.labels, (whole.labels + 1) % CLASSES], -1)
    of_one = ("Compactness", "Fidelity", "Perturbation", "Separation")
    if name.removeprefix("Measure") in of_one:
        with pytest.raises(TorchcapsError, match=r"one whole of each image|one label an image"):
            measure(look, [whole], [fresh(name)])
        return
    (found,) = measure(look, batches(whole, 30), [fresh(name)])
    assert found.to_json()
