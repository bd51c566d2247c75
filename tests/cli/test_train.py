"""`torchcaps train`: data on standard output, talk on standard error, and the same line goes on."""

import json
import re
import time
from typing import Any

import pytest
import torch

from cli.command_line import TRAIN, assert_one_sentence, tiny, well
from torchcaps import load
from torchcaps.train import PROTOCOLS, Run
from torchcaps.train.callbacks import SaveState


def test_train_prints_its_result_as_json_and_talks_beside_it(trained, call):
    recipe = Run(trained).recipe
    assert (recipe.seed, recipe.epochs, recipe.batch_size, recipe.data) == (5, 1, 20, "tiny")
    done = well(call("train", *TRAIN, "--out", trained.parent / "again"))
    printed = json.loads(done.out)
    assert printed.pop("run") == str(trained.parent / "again")
    assert printed["training_images"] == 36
    assert printed["test_images"] == 12
    assert printed["test_accuracy"] == Run(trained).result()["test_accuracy"]
    first, *rest = done.err.splitlines()
    assert first.startswith("mitterreiter_5x16: epoch 1/1  loss ")
    assert rest == told_of(printed)


def told_of(result: dict[str, Any]) -> list[str]:
    """After so few steps a network may say one thing of every image."""
    said = result["constant"]
    return [] if said is None else [f"constant: it says {said!r} of every image"]


def test_the_same_line_again_prints_the_same_and_trains_nothing(trained, call):
    done = call("train", *TRAIN, "--out", trained)
    result = Run(trained).result()
    assert (done.code, done.err.splitlines()) == (0, told_of(result))
    # Those of each class, of which there may be hundreds, are in the file alone.
    assert result["measures"].pop("classes")
    assert json.loads(done.out) == {"run": str(trained), **result}


def test_the_end_tells_of_which_epoch_the_weights_are_and_that_a_network_is_constant(
    tmp_path, call
):
    line = [*TRAIN, "--epochs", 3, "--set", "keep=best", "--out", tmp_path / "run"]
    done = call("train", *line)
    run = Run(tmp_path / "run")
    losses = [row["validation_loss"] for row in run.metrics()]
    best = 1 + losses.index(min(losses))
    words = f"weights of epoch {best} of 3, the lowest validation loss"
    assert words in done.err.splitlines()
    run.finish({**run.result(), "constant": "benign"})
    done = call("train", *line)
    assert done.err.splitlines() == [words, "constant: it says 'benign' of every image"]


def test_help_names_every_protocol(call):
    text = " ".join(call("train", "--help").out.split())
    assert all(re.search(rf"\b{name}\b", text) for name in PROTOCOLS)


def test_a_budgeted_training_ends_with_130_and_the_same_line_goes_on(
    tmp_path, call, monkeypatch, trained
):
    given = []
    words = ["train", *TRAIN, "--out", tmp_path / "run", "--time-budget", "1h2m3s"]

    def late(self: SaveState, run: Run, *, until: float, **more: object) -> None:
        given.append(until - time.monotonic())
        init(self, run, until=0.0, **more)

    init = SaveState.__init__
    with monkeypatch.context() as patch:
        patch.setattr(SaveState, "__init__", late)
        done = call(*words)
    assert (done.code, done.out) == (130, "")
    assert "the time budget is used up; the same command continues" in done.err
    assert 3600 < given[0] <= 3723
    done = well(call(*words))
    assert "continuing in epoch 1 after 20 of 36 images" in done.err
    one, two = tmp_path / "run" / "model.safetensors", trained / "model.safetensors"
    assert one.read_bytes() == two.read_bytes()


def test_writing_for_tensorboard_needs_its_package(tmp_path, call, monkeypatch):
    monkeypatch.setattr("lightning.fabric.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
    monkeypatch.setattr("lightning.fabric.loggers.tensorboard._TENSORBOARDX_AVAILABLE", False)
    done = call("train", *TRAIN, "--tensorboard", "--out", tmp_path / "run")
    assert_one_sentence(done, "needs the package tensorboard: pip install tensorboard.")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_tensorboard_reads_what_the_run_wrote(tmp_path, call):
    # Here, because the default tier has not the extra that brings it.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = ["train", *TRAIN, "--epochs", 2, "--tensorboard", "--out", tmp_path / "run"]
    well(call(*words))
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    logged = [(event.step, event.value) for event in events.Scalars("loss")]
    rows = Run(tmp_path / "run").metrics()
    assert [step for step, _ in logged] == [row["epoch"] for row in rows] == [1, 2]
    assert [value for _, value in logged] == pytest.approx([row["loss"] for row in rows])


@pytest.mark.parametrize(
    ("seeds", "note"),
    [
        ("5", "--seeds 5 is one seed, 5; 5 seeds are --seeds 0-4\n"),
        ("0", "--seeds 0 is one seed, 0; 10 seeds are --seeds 0-9\n"),
    ],
)
def test_one_number_is_one_seed_and_said_to_be(seeds, note, tmp_path, call):
    done = well(call("train", *TRAIN[:-2], "--seeds", seeds, "--out", tmp_path / "runs"))
    assert done.err.startswith(note)


def test_seeds_at_once_are_what_each_is_alone(tmp_path, call):
    line = ["train", *TRAIN[:-2], "--seeds", "0,3"]
    for out, more in (("alone", ()), ("once", ["--together"])):
        well(call(*line, *more, "--out", tmp_path / out))
    (alone, once) = (
        [run.read_bytes() for run in sorted((tmp_path / out).glob("*/model.safetensors"))]
        for out in ("alone", "once")
    )
    assert len(set(alone)) == 2
    assert alone == once
    done = call("train", *TRAIN, "--together", "--out", tmp_path / "one")
    assert (done.code, (tmp_path / "one").exists()) == (2, False)
    assert "--together trains several runs at once; give it --seeds 0-4." in done.err


def test_fine_tuning_repeats_neither_network_nor_the_numbers_that_standardise(tmp_path, call):
    line = ["--data", "tiny", "--epochs", 1, "--batch-size", 20, "--out"]
    words = ["--model", "rem_dr", "--set", "standardise=set"]
    for option in ("kernel=7", "width=8", "types=2"):
        words += ["--option", option]
    first, drawn = tmp_path / "first", tmp_path / "drawn"
    well(call("train", *words, *line, first))
    words = ["--init-from", first, "--option", "decoder=true"]
    for part in ("backbone", "primary", "layers"):
        words += ["--freeze", part]
    well(call("train", *words, *line, drawn))
    # All parts that score are frozen, so a decoder on them changes no score.
    pixels = tiny("test", None).batch(slice(None)).pixels
    with torch.no_grad():
        before, after = (load(run)(pixels).scores for run in (first, drawn))
    assert torch.equal(before, after)
    numbers = load(first).config["standardise"]
    recipe = Run(drawn).recipe
    assert (recipe.model, recipe.freeze) == ("rem_dr", ("backbone", "primary", "layers"))
    assert recipe.begins_with is not None
    assert recipe.standardise == tuple(map(tuple, numbers))
    assert 0 < numbers[0][0] < 1
    # What is said beside it wins: measured on these images, which are the same.
    well(call("train", *words, "--set", "standardise=set", *line, tmp_path / "set"))
    assert Run(tmp_path / "set").recipe.standardise == "set"
