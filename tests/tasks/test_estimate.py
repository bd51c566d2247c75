"""What a network would take: sizes worked out by hand, and processes that are measured."""

import importlib
import json
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from pages import ROOT, script_at
from torchcaps import create_model
from torchcaps.ops import backend, margin_loss
from torchcaps.tasks import estimate
from torchcaps.tasks.estimate import _votes, _without_memory
from torchcaps.tasks.footprint import Footprint
from torchcaps.train import make_recipe

# The package hides its module `estimate` behind the function.
ESTIMATE = importlib.import_module("torchcaps.tasks.estimate")
BENCHMARKS = ROOT / "benchmarks"


SMALL = {"image": (1, 17, 17), "n_classes": 2, "decoder": False}


def test_parameters_and_flops_of_a_small_network():
    found = estimate("capsnet", **SMALL, batch_size=3)
    # Two 9×9 convolutions, from 17×17 to 9×9 and from there to one position; 32 children.
    convolutions = (81 + 1) * 256, (256 * 81 + 1) * 256
    assert found.parameters == sum(convolutions) + 32 * 2 * 16 * 8
    first, second = 2 * 81 * 256 * 81, 2 * 256 * 81 * 256
    votes, agreement = 2 * 32 * 2 * 16 * 8, 2 * 32 * 2 * 16
    # Three iterations: a sum, which is no product, then two means and two agreements.
    assert found.flops_forward == 3 * (first + second + votes + 4 * agreement)


@pytest.mark.parametrize("fused", [False, True])
def test_flops_are_those_of_the_step_itself(monkeypatch, fused):
    if fused:
        monkeypatch.setattr(backend, "FUSED_FROM", 1)
    found = estimate("capsnet", **SMALL, batch_size=16)
    assert found.votes[0].stored != fused
    network = create_model("capsnet", **SMALL)
    target = torch.zeros(16, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        margin_loss(network(torch.rand(16, 1, 17, 17)).scores, target).backward()
    assert found.flops_step == counter.get_total_flops()


def votes_of(name, batch_size):
    with torch.device("meta"):
        return _votes(create_model(name), batch_size)


def test_votes_are_what_a_textbook_stores():
    (classes,) = votes_of("capsnet", 128)
    assert (classes.layer, classes.shape) == ("layers.classes", (128, 1152, 10, 16))
    assert classes.size == 128 * 1152 * 10 * 16 * 4
    assert not classes.stored
    assert votes_of("capsnet", 1)[0].stored
    windows, _ = votes_of("rem_effconv", 8)
    assert windows.shape == (8, 144, 144, 16, 16)
    assert votes_of("resnet18", 2) == ()


def test_kept_memory_is_reckoned_with(monkeypatch):
    monkeypatch.delenv("TORCHCAPS_KEEP_MEMORY", raising=False)
    monkeypatch.setattr(ESTIMATE, "can_keep_memory", lambda: True)
    kept = estimate("capsnet", batch_size=128)
    monkeypatch.setattr(ESTIMATE, "can_keep_memory", lambda: False)
    returned = estimate("capsnet", batch_size=128)
    assert kept.training.tensors == returned.training.tensors
    assert kept.training.process != returned.training.process


@pytest.mark.parametrize("is_last", [True, False])
def test_convolutions_are_laid_out_as_in_the_recipe(is_last):
    recipe = make_recipe(model="efficient_capsnet", data="mnist", channels_last=is_last)
    with torch.device("meta"):
        network = create_model("efficient_capsnet")
    with FakeTensorMode(), Footprint() as footprint:
        _without_memory(network, footprint, recipe)
        weight = network.get_parameter("backbone.3.weight")
        assert weight.is_contiguous() is not is_last
        assert weight.is_contiguous(memory_format=torch.channels_last) is is_last


def test_stored_votes_are_in_the_peak_and_others_not(monkeypatch):
    monkeypatch.setenv("TORCHCAPS_KEEP_MEMORY", "0")
    size = {"image": (1, 28, 28), "n_classes": 100, "batch_size": 16, "decoder": False}
    tiled = estimate("capsnet", **size)
    monkeypatch.setattr(backend, "LANES_FROM", 17)
    stored = estimate("capsnet", **size)
    assert stored.votes[0].size == tiled.votes[0].size == 16 * 1152 * 100 * 16 * 4
    assert (stored.votes[0].stored, tiled.votes[0].stored) == (True, False)
    assert stored.training.tensors > tiled.training.tensors + stored.votes[0].size
    largest = [size for name, _, size in stored.training.largest if "workspace" not in name]
    assert largest[0] == stored.votes[0].size


def test_half_precision_takes_less():
    full = estimate("capsnet", batch_size=64)
    half = estimate("capsnet", batch_size=64, precision="bfloat16")
    assert half.parameters == full.parameters
    assert half.flops_step == full.flops_step
    assert half.training.tensors < 0.9 * full.training.tensors


def test_inference_takes_less_than_training():
    found = estimate("efficient_capsnet", batch_size=64)
    assert 0 < found.inference.tensors < found.training.tensors / 2
    assert 2.5 < found.flops_step / found.flops_forward < 3.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepcaps", "matrix_capsnet", "tsai_inverted_simple_c10"])
def test_other_families_are_estimated(name):
    found = estimate(name, batch_size=2)
    assert found.votes
    assert found.training.process > found.training.tensors > 4 * found.parameters
    json.dumps(found.numbers())


def test_one_class_is_enough():
    found = estimate("capsnet", image=(1, 17, 17), n_classes=1, batch_size=1)
    lines = found.text().splitlines()
    assert lines[0] == f"capsnet for images of 1×17×17, 1 class: {found.parameters:,} parameters."
    assert lines[1].startswith("A training step with 1 image in float32 takes ")


def test_what_is_said(monkeypatch):
    monkeypatch.setenv("TORCHCAPS_KEEP_MEMORY", "0")
    found = estimate("capsnet", image=(3, 64, 48), n_classes=7, batch_size=128)
    lines = found.text().splitlines()
    assert lines[0] == "capsnet for images of 3×64×48, 7 classes: 26,410,752 parameters."
    assert lines[1].startswith("A training step with 128 images in float32 takes 1.")
    assert lines[3] == (
        "The votes of layers.classes, 128×12288×7×16, are 705 MB and are never stored."
    )
    assert lines[5].split()[:2] == ["294", "MB"]
    assert len(lines) == 10
    numbers = json.loads(json.dumps(found.numbers()))
    assert numbers["votes"][0] == {
        "layer": "layers.classes",
        "shape": [128, 12288, 7, 16],
        "size": 704_643_072,
        "stored": False,
    }
    assert numbers["training"]["process"] == found.training.process
    assert numbers["training"]["largest"][0]["size"] == 128 * 256 * 56 * 40 * 4


HUGE = """
import json, time
from pathlib import Path
import torch
from torchcaps.tasks import estimate
from torchcaps.tasks.estimate import _votes
def memory():
    told = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in told if line.startswith("VmHWM:")) / 1024
estimate("capsnet", batch_size=2)
before, started = memory(), time.process_time()
found = estimate("capsnet", image=(3, 224, 224), n_classes=200, batch_size=512)
print(json.dumps([found.training.process, memory() - before, time.process_time() - started]))
"""


@pytest.mark.slow
def test_nothing_is_allocated():
    done = subprocess.run([sys.executable, "-c", HUGE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    estimated, grown, seconds = json.loads(done.stdout)
    assert estimated > 200e9
    assert grown < 50  # MB
    assert seconds < 20


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield script_at(BENCHMARKS / "estimate.py")


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["efficient", "em", "inverted", "effconv", "inverted_resnet"])
def test_an_estimate_is_within_a_quarter_of_what_a_process_takes(benchmark, name, threads):
    row = benchmark.compare(name, threads=threads)
    assert abs(row["error"]) <= 0.25, row


def test_the_record_spans_two_orders_of_magnitude_and_holds_the_bar():
    record = json.loads((BENCHMARKS / "records" / "estimate.json").read_text())
    measured = [row["measured_mb"] for row in record["rows"]]
    assert len({row["case"] for row in record["rows"]}) == 5
    assert max(measured) > 100 * min(measured)
    assert all(abs(row["error"]) <= 0.25 for row in record["rows"])
    (large,) = {row["measured_mb"] < 4096 for row in record["rows"] if row["case"] == "effconv"}
    assert large
