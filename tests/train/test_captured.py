"""A step can be made a graph of: on tensors without values it asks for none, and one step is the
same sequence of operators as the next. What GPUs do with it, tests/gpu says."""

import itertools
import math
import random
import re
import signal
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from laid_runs import assert_same, tiny_images
from recorded_graph import Recorded, graphs_on_a_processor
from single_steps import ending, signalled, step_that
from torchcaps import create_model
from torchcaps.data import Batch, ImageSet
from torchcaps.errors import Diverged
from torchcaps.layers import InvertedRouting, use_backend
from torchcaps.models import list_models
from torchcaps.models.limits import without_memory
from torchcaps.train import fit, make_recipe
from torchcaps.train import update as of_update
from torchcaps.train.batches import Batches
from torchcaps.train.captured import Captured, has_dropout, why_not
from torchcaps.train.loop import Loop
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


def as_on_a_gpu(preset):
    """A network that stores votes and convolves in one way, where a processor has several."""
    network = create_model(preset).train()
    use_backend(network, "plain")
    return network


def steps_of(preset, schedule, loss, precision, optimiser):
    """What each of two steps calls, after what is made in a first one."""
    recipe = make_recipe(
        **{"model": preset, "data": "own", "loss": loss, "precision": precision},
        **{"optimiser": optimiser, "schedule": schedule, **SCHEDULES[schedule]},
        **({"momentum": 0.9} if optimiser == "sgd" else {}),
    )
    network = as_on_a_gpu(preset)
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
        for update.step in (1, 2):
            update.fill()
            with Recorded() as step:
                update.work(batch)
            steps.append(step.calls)
    return steps


def assert_can_be_captured(one, other):
    """Fake tensors refuse to tell a value themselves."""
    assert other == one
    names = {name for name, *_ in one}
    assert not [name for name in names if "lift" in name or "_local_scalar" in name]


# Another network is made of the same parts, in another number or size.
LIKE_ANOTHER = re.compile(
    "tsai_.*(_c100|_d36|_d64|_42m)|tsai_(dynamic|em)_resnet_c10|matrix_capsnet|gamma_capsnet|"
    "rem_deepcaps|efficient_capsnet|rem_eff_(cifar|mnist|svhn)|mitterreiter_grid|peer_sign_dynamic|"
    "gu_convnet_(r|cr_sf)"
)
NETWORKS = [
    pytest.param(each, marks=pytest.mark.slow) if LIKE_ANOTHER.fullmatch(each) else each
    for each in list_models()
]


# One of every family, and of every layer that no family has.
FAMILIES = ("capsnet", "convnet_avg", "gu_capsnet", "mitterreiter_5x16")
FAMILIES += ("peer_sign_em", "rem_gamma", "rem_eff_norb", "tsai_inverted_simple_c10")
OTHERS = ("capsules_on_backbone", "deepcaps", "hahn_sr_resnet20", "mhsa_stack")


@pytest.mark.parametrize(
    "preset",
    [
        each if each in FAMILIES + OTHERS else pytest.param(each, marks=pytest.mark.slow)
        for each in list_models()
    ],
)
def test_two_steps_of_any_network_ask_for_no_value_and_are_the_same(preset):
    assert_can_be_captured(*steps_of(preset, *drawn(preset)))


@pytest.mark.drawn(48)
@pytest.mark.parametrize("how", [*itertools.product(SCHEDULES, LOSSES, PRECISIONS, OPTIMISERS)])
@pytest.mark.parametrize("preset", FAMILIES)
def test_two_steps_by_any_recipe_are_the_same(preset, how):
    assert_can_be_captured(*steps_of(preset, *how))


@pytest.mark.parametrize("preset", NETWORKS)
def test_a_step_makes_and_reads_no_tensor_on_a_processor(preset, monkeypatch):
    """A GPU would wait for its copy. The meta device is in its place: beside a tensor on it, one of
    a processor is told at once. What optimisers make is PyTorch's, and has no fused form there."""
    monkeypatch.setattr(of_update, "make_optimiser", lambda _, weights, slower: Still(weights))
    with without_memory():
        network = as_on_a_gpu(preset)
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
    every, refused = [*itertools.product(*map(get_args, fields.values()))], []
    for how in every:
        chosen = dict(zip(fields, how, strict=True)) | SCHEDULES[how[0]]
        recipe = make_recipe(model="capsnet", data="own", **chosen)
        if why_not(recipe, CUDA, Ranks()):
            refused.append(how)
    assert refused == [how for how in every if how[2] == "float16"]


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
        kept = [*network.state_dict().values(), *of_optimiser, *pruner.masks.pruned.values()]
        kept += [update._measured.kept, update._gradients.kept, update.rate, update.margin]
        return [each.data_ptr() for each in kept]

    update(batch)
    before, rate = addresses(), float(update.rate)
    for epoch in range(5):
        update(batch)
        pruner.after_epoch(epoch, lambda: 0.0)
    assert addresses() == before
    assert float(update.rate) < rate
    assert pruner.masks.count == round(0.5 * pruner.masks.size)


@pytest.mark.parametrize(
    ("text", "case"),
    [
        ("", {}),
        ("graphs are for a GPU", {"device": torch.device("cpu")}),
        ("several devices share every batch", {"ranks": Ranks(0, 2)}),
        ("an update goes by several batches", {"accumulate": 2}),
        ("whether an update in float16 counts is decided step by step", {"precision": "float16"}),
        ("LOBSTER shrinks weights by another number in each epoch", {"prune": "lobster"}),
        ("TORCHCAPS_CAPTURE=1 is not in the environment", {"asked": "0"}),
    ],
)
def test_why_a_recipe_is_not_captured(monkeypatch, text, case):
    fields = {"device": CUDA, "ranks": Ranks(), "asked": "1", **case}
    device, ranks, asked = (fields.pop(name) for name in ("device", "ranks", "asked"))
    monkeypatch.setenv("TORCHCAPS_CAPTURE", asked)
    assert why_not(make_recipe(model="capsnet", data="own", **fields), device, ranks) == text


class Adding:
    """In place of an update: adds up what it is shown, times a rate that rises with every step."""

    device = torch.device("cpu")
    optimiser = SimpleNamespace(zero_grad=lambda: None)

    def __init__(self):
        self.rate, self.total = torch.zeros(()), torch.zeros(())
        self.by_python, self.images = 0, []

    def fill(self):
        self.rate.add_(1)

    def work(self, batch):
        self.by_python += 1
        self.total.add_(self.rate * (batch.pixels.sum() + 10 * batch.labels.sum()))

    def worked(self, images):
        self.images.append(images)


def of(number, count=2):
    return Batch(torch.full((count, 1, 1, 1), float(number)), torch.full((count,), number))


def test_a_step_is_captured_after_three_and_then_repeated_for_each_size(monkeypatch):
    graphs, update = graphs_on_a_processor(monkeypatch), Adding()
    step = Captured(update)
    for k in range(6):
        step(of(k))
        step(of(k, 1), images=0)
    # Three ordinary steps of each size, and its capture, which adds nothing.
    assert update.by_python == 8
    assert [graph.replays for graph in graphs] == [3, 3]
    assert update.images == [2, 0] * 6
    assert update.total == sum(11 * k * (2 * (2 * k + 1) + (2 * k + 2)) for k in range(6))


def test_a_step_that_cannot_be_captured_says_so_once_and_is_done(monkeypatch, caplog):
    graphs, update = graphs_on_a_processor(monkeypatch), Adding()

    def refused(*_, **__):
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    monkeypatch.setattr(torch.cuda, "graph", refused)
    step = Captured(update)
    for k in range(6):
        step(of(k))
    assert not graphs
    assert update.by_python == 6
    assert update.total == sum(22 * k * (k + 1) for k in range(6))
    assert [record.message for record in caplog.records] == [
        "no graph could be made of a training step (operation not permitted when stream is "
        "capturing), so Python goes through each"
    ]


OWN = [*map(tiny_images(40, n_test=6, size=20, n_classes=3), ("train", "test"))]
# A rate that falls, a margin that grows, masks, momentum, statistics of batches, half precision.
RUNS = {
    "capsnet": {
        "options": {"width": 4, "types": 1, "d_primary": 4, "d_class": 4},
        **{"schedule": "exponential", "decay": 0.9},
    },
    "mitterreiter_5x16": {
        **{"options": {"decoder": False}, "optimiser": "sgd", "learning_rate": 0.05},
        **{"momentum": 0.9, "schedule": "steps", "decay": 0.5, "milestones": [1, 3]},
    },
    "peer_sign_em": {
        **{"loss": "spread", "spread_steps": 20, "schedule": "cosine", "precision": "bfloat16"},
        **{"optimiser": "adamw", "prune": "magnitude", "prune_to": 0.5, "prune_ramp": 3},
    },
}


@pytest.mark.parametrize("model", RUNS)
def test_a_run_by_graphs_is_the_run_without_them_also_after_a_stop(model, tmp_path, monkeypatch):
    """Bit for bit, by operators that are repeated on a processor; what steps measured is read
    several steps later, as on a GPU."""
    fields = {"data": "own", "epochs": 4, "batch_size": 8, "validation_share": 0.25}
    recipe = make_recipe(model=model, **fields, **RUNS[model])
    whole = fit(recipe, tmp_path / "whole", own=OWN)
    graphs = graphs_on_a_processor(monkeypatch)
    monkeypatch.setattr("torchcaps.train.loop.why_not", lambda *_, **__: "")
    monkeypatch.setattr(of_update, "Rows", lambda most: Rows(3))
    with ending(Loop, "training_step", step_that(signalled(signal.SIGTERM), 5)):
        fit(recipe, tmp_path / "graphs", own=OWN)
    run = fit(recipe, tmp_path / "graphs", own=OWN)
    # Of batches of eight: one of the first stretch, and those after three of the second.
    assert [graph.replays for graph in graphs] == [2, 4]
    assert_same(run, whole)


def test_a_loss_that_is_lost_is_told_with_its_step_when_it_is_read(monkeypatch):
    monkeypatch.setattr(of_update, "Rows", lambda most: Rows(3))
    update = Update(nn.Linear(1, 1), make_recipe(model="own", data="own"))
    update._names = ("loss",)
    for loss in (1.0, 2.0, 3.0, 4.0, math.nan):
        update._measured.write([torch.tensor(loss)])
        # As a batch after which weights do not move, so that there are no gradients.
        update.step += 1
        update.worked(2, last=False)
    assert update.sums.means() == {"loss": 2.0}
    with pytest.raises(Diverged, match="the loss became nan at step 5, so"):
        update.read()


def test_runs_beside_each_other_share_no_graphs_of_dropout():
    assert why_not(make_recipe(model="capsnet", data="own"), CUDA, Ranks(), shares_random=True) == (
        "graphs of several runs would draw dropout from one generator"
    )
    assert has_dropout(nn.Sequential(nn.Dropout2d(0.1)))
    assert has_dropout(nn.Sequential(InvertedRouting(dropout=0.1)))
    assert not has_dropout(nn.Sequential(InvertedRouting(), nn.Linear(1, 1)))
