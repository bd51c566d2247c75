"""A step can be made a graph of: on tensors without values it asks for none, and one step is the
same sequence of operators as the next. What GPUs do with it, tests/gpu says."""

import itertools
import random
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from torchcaps import create_model
from torchcaps.data import Batch, ImageSet
from torchcaps.models import list_models
from torchcaps.models.limits import without_memory
from torchcaps.train import make_recipe
from torchcaps.train import update as of_update
from torchcaps.train.batches import Batches
from torchcaps.train.captured import Captured, why_not
from torchcaps.train.pruning import make_pruner
from torchcaps.train.ranks import Ranks
from torchcaps.train.recipe import Loss, Optimiser, Precision, Schedule
from torchcaps.train.update import Rows, Update

CUDA, META = torch.device("cuda"), torch.device("meta")
SCHEDULES = {
    "constant": {},
    "steps": {"milestones": [1], "decay": 0.5},
    "exponential": {"decay": 0.9},
    "cosine": {},
}
LOSSES, PRECISIONS = ("margin", "spread", "cross_entropy"), ("float32", "bfloat16")
OPTIMISERS = ("adam", "adamw", "sgd")


class Recorded(TorchDispatchMode):
    """The operators that were called: names, shapes, strides and numbers."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        flat, _ = tree_flatten((args, kwargs or {}))
        self.calls.append((str(func), *map(said, flat)))
        return func(*args, **(kwargs or {}))


def said(value):
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.device.type
    # What a profiler is told of an optimiser's step differs and is no number.
    return type(value).__name__ if isinstance(value, torch.ScriptObject) else value


def drawn(name):
    """A combination for a preset."""
    draw = random.Random(name)
    return tuple(map(draw.choice, (sorted(SCHEDULES), LOSSES, PRECISIONS, OPTIMISERS)))


def without_values(network, mode):
    """Put tensors that have a shape alone in the place of its weights and buffers."""
    for part in network.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                fake = mode.from_tensor(weight.detach())
                part._parameters[name] = nn.Parameter(fake, weight.requires_grad)
        for name, each in part._buffers.items():
            if each is not None:
                part._buffers[name] = mode.from_tensor(each)


def steps_of(preset, schedule, loss, precision, optimiser):
    """What two steps call, after what is made in a first one."""
    recipe = make_recipe(
        **{"model": preset, "data": "own", "loss": loss, "precision": precision},
        **{"optimiser": optimiser, "schedule": schedule, **SCHEDULES[schedule]},
        **({"momentum": 0.9} if optimiser == "sgd" else {}),
    )
    network = create_model(preset).train()
    shape = network.image
    mode = FakeTensorMode()
    without_values(network, mode)
    steps = []
    with mode:
        update = Update(network, recipe)
        update._measured, update._gradients = Rows(50), Rows(50)
        batch = Batch(torch.rand(2, *shape), torch.zeros(2, dtype=torch.int64))
        for weight in update.weights:
            weight.grad = torch.zeros_like(weight)
        # Losses and accuracy; their sum is told beside them where there is a decoder.
        has_decoder = getattr(network, "decoder", None) is not None
        update._measured.write([torch.zeros(())] * (4 if has_decoder else 2))
        update._move()
        for update.step in range(1, 3):
            update.fill()
            with Recorded() as step:
                update.work(batch)
            steps.append(step.calls)
    return steps


def assert_can_be_captured(*what):
    one, other = steps_of(*what)
    assert one == other
    names = {name for name, *_ in one}
    assert not [name for name in names if "lift" in name or "_local_scalar" in name]


# One of every family; the others make an epoch of such steps longer, and say no more.
FAMILIES = ("capsnet", "convnet_avg", "gu_capsnet", "mitterreiter_5x16")
FAMILIES += ("peer_sign_em", "rem_gamma", "rem_eff_norb", "tsai_inverted_simple_c10")


@pytest.mark.parametrize(
    "preset",
    [
        each if each in FAMILIES else pytest.param(each, marks=pytest.mark.slow)
        for each in list_models()
    ],
)
def test_a_step_of_any_network_can_be_captured(preset):
    assert_can_be_captured(preset, *drawn(preset))


@pytest.mark.slow
@pytest.mark.parametrize("how", [*itertools.product(SCHEDULES, LOSSES, PRECISIONS, OPTIMISERS)])
@pytest.mark.parametrize("preset", FAMILIES)
def test_a_step_by_any_recipe_can_be_captured(preset, how):
    assert_can_be_captured(preset, *how)


@pytest.mark.parametrize("preset", FAMILIES)
def test_a_step_makes_and_reads_no_tensor_on_a_processor(preset, monkeypatch):
    """A GPU would wait for its copy. The meta device is in its place: beside a tensor on it, one of
    a processor is told at once. What optimisers make is PyTorch's, and has no fused form there."""
    monkeypatch.setattr(of_update, "make_optimiser", lambda _, weights, slower: Still(weights))
    with without_memory():
        network = create_model(preset).train()
        update = Update(network, make_recipe(model=preset, data="own", loss=drawn(preset)[1]))
        batch = Batch(torch.rand(2, *network.image), torch.zeros(2, dtype=torch.int64))
    # The first step makes the rows of measures.
    update.work(batch)
    with Recorded() as step:
        update.work(batch)
    assert len(step.calls) > 50
    assert {device for _, *flat in step.calls for device in map(device_of, flat)} == {None, "meta"}


class Still:
    """In place of an optimiser."""

    def __init__(self, weights):
        self.weights, self.param_groups = weights, [{}]

    def zero_grad(self):
        for weight in self.weights:
            weight.grad = None

    def step(self):
        pass


def device_of(value):
    return value[3] if isinstance(value, tuple) else None


def test_an_epoch_of_batches_is_made_where_images_lie():
    """But for their order, which is drawn on a processor and goes there once."""
    here = ImageSet("noise", torch.zeros(20, 1, 8, 8).byte(), torch.arange(20) % 2, ("a", "b"))
    # Not by `to`, which looks at the labels once more.
    vars(here).update(images=here.images.to(META), labels=here.labels.to(META))
    batches = Batches(here, 8, seed=0, device=META)
    for epoch in range(2):
        batches.sampler.set_epoch(epoch)
        with Recorded() as made:
            assert [len(batch.labels) for batch in batches] == [8, 8, 4]
        met = [{*map(device_of, flat)} - {None} for _, *flat in made.calls]
        assert {"meta"} in met
        assert {"cpu", "meta"} not in met
        (_, moved), *others = [call[:2] for call in made.calls if META in call]
        assert not others
        assert moved[0] == (20,)


def test_what_is_not_captured_is_listed(monkeypatch):
    """Of every schedule, loss, precision and optimiser that there is: half precision alone."""
    monkeypatch.setenv("TORCHCAPS_CAPTURE", "1")
    fields = {"schedule": Schedule, "loss": Loss, "precision": Precision, "optimiser": Optimiser}
    assert set(SCHEDULES) == set(get_args(Schedule))
    assert set(OPTIMISERS) == set(get_args(Optimiser))
    refused = []
    for how in itertools.product(*map(get_args, fields.values())):
        chosen = dict(zip(fields, how, strict=True)) | SCHEDULES[how[0]]
        recipe = make_recipe(model="capsnet", data="own", **chosen)
        if why_not(recipe, CUDA, Ranks()):
            refused.append(how)
    assert refused == [
        (schedule, loss, "float16", optimiser)
        for schedule in get_args(Schedule)
        for loss in get_args(Loss)
        for optimiser in get_args(Optimiser)
    ]


def test_nothing_that_a_step_reads_or_writes_moves_in_memory():
    """A graph finds it where it was."""
    recipe = make_recipe(
        **{"model": "peer_sign_em", "data": "own", "loss": "spread", "schedule": "cosine"},
        **{"prune": "magnitude", "prune_to": 0.5, "prune_ramp": 2},
    )
    torch.manual_seed(0)
    network = create_model("peer_sign_em").train()
    pruner = make_pruner(recipe, network)
    update = Update(network, recipe, pruner=pruner)
    batch = Batch(torch.rand(2, *network.image), torch.tensor([0, 1]))

    def addresses():
        of_optimiser = [each for kept in update.optimiser.state.values() for each in kept.values()]
        rows = [update._measured.kept, update._gradients.kept]
        return [
            each.data_ptr()
            for each in (
                *network.state_dict().values(),
                *(*of_optimiser, *pruner.masks.pruned.values()),
                *(*rows, update.rate, update.margin),
            )
        ]

    update(batch)
    before, rate = addresses(), float(update.rate)
    for epoch in range(5):
        update(batch)
        pruner.after_epoch(epoch, lambda: 0.0)
    assert addresses() == before
    assert float(update.rate) < rate
    assert pruner.masks.count == round(0.5 * pruner.masks.size)


@pytest.mark.parametrize(
    ("changed", "device", "ranks", "text"),
    [
        ({}, CUDA, Ranks(), ""),
        ({}, torch.device("cpu"), Ranks(), "graphs are for a GPU"),
        ({}, CUDA, Ranks(0, 2), "several devices share every batch"),
        ({"accumulate": 2}, CUDA, Ranks(), "an update goes by several batches"),
        (
            {"precision": "float16"},
            CUDA,
            Ranks(),
            "whether an update in float16 counts is decided step by step",
        ),
        (
            {"prune": "lobster"},
            CUDA,
            Ranks(),
            "LOBSTER shrinks weights by another number in each epoch",
        ),
        (None, CUDA, Ranks(), "TORCHCAPS_CAPTURE=1 is not in the environment"),
    ],
)
def test_why_a_recipe_is_not_captured(monkeypatch, changed, device, ranks, text):
    monkeypatch.setenv("TORCHCAPS_CAPTURE", "0" if changed is None else "1")
    recipe = make_recipe(model="capsnet", data="own", **(changed or {}))
    assert why_not(recipe, device, ranks) == text


class Told:
    """In place of an update: what it was asked for, and of which pixels."""

    device = torch.device("cpu")
    optimiser = SimpleNamespace(zero_grad=lambda: None)

    def __init__(self):
        self.happened = []

    def fill(self):
        pass

    def work(self, batch):
        self.happened.append(("work", float(batch.pixels.sum())))

    def worked(self, images):
        self.happened.append(("worked", images))


class Graph:
    """In place of a CUDA graph: what was captured is not done, and done when it is replayed."""

    @contextmanager
    def captured(self, update):
        before = len(update.happened)
        yield
        self.update, self.of = update, update.happened.pop()
        assert len(update.happened) == before

    def replay(self):
        self.update.happened.append(("replay", self.of[1]))


@pytest.fixture
def graphs(monkeypatch):
    """Streams and graphs where there is no GPU."""
    update, stream = Told(), SimpleNamespace(wait_stream=lambda other: None)
    for name, stand_in in {
        "Stream": lambda device: stream,
        "current_stream": lambda: stream,
        "stream": lambda which: nullcontext(),
        "graph_pool_handle": lambda: None,
        "CUDAGraph": Graph,
        "graph": lambda graph, **how: graph.captured(update),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return update


def of(pixels, count=2):
    return Batch(torch.full((count, 1, 1, 1), float(pixels)), torch.zeros(count).long())


def test_a_step_is_captured_after_three_and_then_repeated_for_each_size(graphs):
    step = Captured(graphs)
    for k in range(5):
        step(of(k))
        step(of(k, 1), images=0)
    large = [("work", 0), ("work", 2), ("work", 4), ("replay", 6), ("replay", 6)]
    small = [("work", 0), ("work", 1), ("work", 2), ("replay", 3), ("replay", 3)]
    expected = []
    for one, two in zip(large, small, strict=True):
        expected += [one, ("worked", 2), two, ("worked", 0)]
    assert graphs.happened == expected
    # The graph reads the images of the last step where those of the first one lay.
    assert [float(there.pixels.sum()) for _, there in step.graphs.values()] == [8, 4]


def test_a_step_that_cannot_be_captured_says_so_once_and_is_done(graphs, monkeypatch, caplog):
    def refused(*_, **__):
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    monkeypatch.setattr(torch.cuda, "graph", refused)
    step = Captured(graphs)
    for k in range(6):
        step(of(k))
    assert [each for each, _ in graphs.happened] == ["work", "worked"] * 6
    assert [record.message for record in caplog.records] == [
        "no graph could be made of a training step (operation not permitted when stream is "
        "capturing), so Python goes through each"
    ]
