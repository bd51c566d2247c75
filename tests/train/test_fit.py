"""A stopped run goes on as if nothing had happened, whatever stopped it and whenever."""

import csv
import errno
import json
import os
import random
import re
import shutil
import signal
import tempfile
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
from lightning.pytorch.loggers import CSVLogger

from error_text import text_of
from laid_runs import assert_readable, assert_same, contents, rows, tiny_images
from single_steps import (
    FIT,
    before_steps,
    by_single_steps,
    ending,
    raising,
    signalled,
    step_that,
)
from torchcaps._ctrl_c import interrupt
from torchcaps.analysis.shares import Commonest
from torchcaps.data import SOURCES, Cropped, ImageSet, channel_statistics, load
from torchcaps.errors import Interrupted, TorchcapsError
from torchcaps.models import load as load_network
from torchcaps.tasks.trained import open_trained
from torchcaps.train import Run, accuracy, fit, make_recipe
from torchcaps.train.class_measures import ClassMeasures, Measure
from torchcaps.train.folder.alone import alone
from torchcaps.train.images import images_of, parted, watched
from torchcaps.train.judging import Judged
from torchcaps.train.loop import Loop
from torchcaps.train.start import initial_model
from torchcaps.train.stopping import KeepBest

EPOCHS, STEPS = 3, 3
WITHOUT_NORM = {"model": "peer_sign_dynamic", "options": {}}
tiny = tiny_images(48, size=20)


def recipe(**changed):
    fields = {"model": "matrix_capsnet_mnist", "data": "tiny", "epochs": EPOCHS, "batch_size": 16}
    return make_recipe(**{"options": {"sizes": "2-2-2-2"}} | fields | changed)


def test_a_run_that_holds_nothing_out_trains_on_every_image(tmp_path):
    run = fit(recipe(validation_share=0.0, epochs=1), tmp_path / "all")
    assert run.result()["training_images"] == 48
    (row,) = run.metrics()
    assert not [name for name in row if name.startswith("validation")]
    assert {"training_sample_loss", "training_sample_accuracy"} < set(row)
    assert run.result()["departures"] == []


def slow(*values):
    """One more moment of what others show already."""
    return pytest.param(*values, marks=pytest.mark.slow)


class Crash(BaseException):
    """Nothing catches it, as nothing catches a pulled plug."""


DATA = {"tiny": tiny}


@pytest.fixture(autouse=True)
def _as_before():
    interrupt = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, interrupt)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    torch.manual_seed(1)
    return fit(recipe(), tmp_path_factory.mktemp("whole"))


def test_a_run_holds_what_it_promises(whole):
    assert sorted(file.name for file in whole.folder.iterdir()) == [
        "digests.json",
        "environment.json",
        "metrics.jsonl",
        "model.safetensors",
        "recipe.json",
        "result.json",
        "state.ckpt",
    ]
    assert_readable(whole.folder)
    assert whole.recipe == recipe()
    assert [row["epoch"] for row in whole.metrics()] == [1, 2, 3]
    names = {"epoch", "loss", "accuracy", "validation_loss", "validation_accuracy", "seconds"}
    layers = ("conv_1", "conv_2", "classes")
    names |= {f"coupling_std/{layer}" for layer in layers}
    of_capsules = ("dead_capsules", "revivals")
    names |= {f"{name}/{layer}" for name in of_capsules for layer in ("primary", *layers)}
    names |= {f"gradient_norm/{part}" for part in ("backbone", "primary", *layers)}
    assert all(set(row) == names for row in whole.metrics())
    # round(0.1 × 48) images are held out.
    assert whole.result()["training_images"] == 43
    assert whole.result()["test_images"] == 12
    assert whole.result()["judged_by"] == "class"
    digest = json.loads(whole.environment_file.read_text())["training_images"]
    assert digest == tiny("train").digest() == whole.result()["digests"]["train"]


def test_the_state_is_read_without_pickle_and_knows_where_it_is(whole):
    state = torch.load(whole.state_file, weights_only=True)
    assert state["global_step"] == EPOCHS * STEPS
    saved = safetensors.torch.load_file(whole.model_file)
    named = {f"model.{name}": weight for name, weight in saved.items()}
    torch.testing.assert_close(state["state_dict"], named, rtol=0, atol=0)
    assert state["optimizer_states"][0]["state"][0]["step"] == EPOCHS * STEPS


def test_another_seed_gives_other_weights(whole, tmp_path):
    other = fit(recipe(seed=1, epochs=1), tmp_path)
    assert rows(other)[0]["loss"] != rows(whole)[0]["loss"]
    images = tiny("train")
    one, two = (initial_model(recipe(seed=seed), images).state_dict() for seed in (0, 1))
    name = "layers.classes.weight"
    # Draws of N(0, 1) that share nothing: their correlation is near 0, not near 1.
    shared = (one[name] * two[name]).mean()
    assert abs(shared) < 4 / one[name].numel() ** 0.5


def test_the_first_weights_are_a_function_of_the_recipe_alone(monkeypatch):
    images = tiny("train")
    torch.manual_seed(3)
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    before = torch.get_rng_state()
    one = initial_model(recipe(), images).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    # Of a GPU neither, which has no say in the weights.
    assert seeded == []
    torch.manual_seed(4)
    two = initial_model(recipe(epochs=9, batch_size=1), images).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_fit_leaves_the_global_generators_alone(tmp_path):
    def states():
        # The old generator is the one that a library would disturb.
        state = np.random.get_state()  # noqa: NPY002
        return torch.get_rng_state().tolist(), state[1].tolist(), random.getstate()

    before = states()
    fit(recipe(epochs=1), tmp_path)
    assert states() == before


OUT = raising(RuntimeError("out"))
TERM, INT, TWICE = (
    signalled(*numbers)
    for numbers in ([signal.SIGTERM], [signal.SIGINT], [signal.SIGINT, signal.SIGINT])
)
TOLD, CUT = (f"^training was {x}; the same command" for x in ("told to stop", "interrupted"))


# What happens before which step, what is said of it, and how many steps are saved: all of whole
# epochs, and after a signal the step that it came in.
@pytest.mark.parametrize(
    ("act", "at", "said", "saved"),
    [
        *[(OUT, 0, "out", 0), slow(OUT, 3, "out", 3), (OUT, 4, "out", 3), slow(OUT, 8, "out", 6)],
        *[slow(TERM, 0, TOLD, 1), (TERM, 4, TOLD, 5), slow(TERM, 5, TOLD, 6), (TERM, 8, TOLD, 9)],
        *[(INT, 0, TOLD, 1), slow(INT, 4, TOLD, 5)],
        # The second one does not wait.
        *[(TWICE, 4, CUT, 3), (raising(KeyboardInterrupt()), 4, CUT, 3)],
    ],
)
def test_whatever_stops_a_run_it_goes_on_to_the_same_bits(
    whole, tmp_path, monkeypatch, act, at, said, saved
):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    numbers = signal.SIGINT, signal.SIGTERM
    handlers = [*map(signal.getsignal, numbers)]
    with ending(Loop, "training_step", step_that(act, at), (RuntimeError, Interrupted), said):
        fit(recipe(), tmp_path)
    assert [*map(signal.getsignal, numbers)] == handlers
    run = Run(tmp_path)
    assert (len(run.metrics()), run.is_done) == (saved // STEPS, False)
    assert_readable(tmp_path)
    if saved:
        assert torch.load(run.state_file, weights_only=True)["global_step"] == saved
    trained = []
    spy = before_steps(lambda loop: trained.append(loop.global_step))
    monkeypatch.setattr(Loop, "training_step", spy)
    # Elsewhere: the folder holds all there is.
    moved = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-elsewhere"))
    assert_same(fit(recipe(), moved), whole)
    assert trained == list(range(saved, EPOCHS * STEPS))


@pytest.mark.parametrize("hook", ["on_train_epoch_start", "on_train_epoch_end"])
def test_an_error_in_a_callback_costs_no_more_than_its_epoch(whole, tmp_path, hook):
    def broken(self, loop):
        if loop.current_epoch == 1:
            raise RuntimeError("no screen")

    with ending(FIT.ShowProgress, hook, broken, RuntimeError, "no screen"):
        fit(recipe(), tmp_path)
    assert len(Run(tmp_path).metrics()) == 1
    assert_same(fit(recipe(), tmp_path), whole)


def test_a_run_stopped_after_every_single_step_ends_with_the_same_bits(whole, tmp_path):
    run = Run(tmp_path)
    # One step a call, for the budget is used up at once; the last step of an epoch ends it.
    for step in range(1, EPOCHS * STEPS + 1):
        with pytest.raises(Interrupted) as stop:
            fit(recipe(), tmp_path, time_budget=1e-6)
        assert str(stop.value) == (
            f"the time budget is used up; the same command continues {tmp_path} from where it is."
        )
        assert_readable(tmp_path)
        assert torch.load(run.state_file, weights_only=True)["global_step"] == step
        assert len(run.metrics()) == step // STEPS
    assert_same(fit(recipe(), tmp_path, time_budget=1e-6), whole)


def test_on_the_command_line_a_second_ctrl_c_ends_the_process(tmp_path, monkeypatch):
    signal.signal(signal.SIGINT, interrupt)
    seen = []

    def once():
        os.kill(os.getpid(), signal.SIGINT)
        seen.append(signal.getsignal(signal.SIGINT))

    monkeypatch.setattr(Loop, "training_step", step_that(once, 1))
    with pytest.raises(Interrupted, match=r"^training was told to stop; the same command"):
        fit(recipe(), tmp_path)
    assert seen == [signal.SIG_DFL]
    assert torch.load(Run(tmp_path).state_file, weights_only=True)["global_step"] == 2


def test_who_answers_ctrl_c_otherwise_goes_on_doing_so(tmp_path, monkeypatch):
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    own = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(Loop, "training_step", step_that(INT, 1))
    assert fit(recipe(epochs=1), tmp_path).is_done
    assert seen == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is own


def test_a_crash_within_a_long_epoch_costs_minutes_alone(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.train.callbacks.SAVE_SECONDS", 0.0)
    with ending(Loop, "training_step", step_that(raising(Crash()), STEPS + 2), Crash):
        fit(recipe(), tmp_path)
    assert torch.load(Run(tmp_path).state_file, weights_only=True)["global_step"] == STEPS + 2
    # Saved within its epochs, and going on: their metrics are counted once.
    assert_same(fit(recipe(), tmp_path), whole)


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("changed", "epochs"),
    [
        # Without a step, and without normalisation over batches, the loss stays as it is.
        ({"patience": 1, "optimiser": "sgd", "learning_rate": 1e-30, **WITHOUT_NORM}, 2),
        ({"keep": "best"}, EPOCHS),
    ],
    ids=["patience", "keep"],
)
def test_stopping_and_keeping_survive_a_stop_after_every_step(tmp_path, changed, epochs):
    expected = fit(recipe(**changed), tmp_path / "whole")
    assert len(expected.metrics()) == epochs
    assert_same(by_single_steps(recipe(**changed), tmp_path / "stopped"), expected)
    if "keep" in changed:
        losses = [row["validation_loss"] for row in expected.metrics()]
        first_best = 1 + losses.index(min(losses))
        assert expected.result()["best_epoch"] == first_best
        best = fit(recipe(epochs=first_best), tmp_path / "best")
        kept = [safetensors.torch.load_file(run.model_file) for run in (expected, best)]
        torch.testing.assert_close(*kept, rtol=0, atol=0)


def judged_in_turn(monkeypatch, *shares):
    found = iter(shares)
    rest = Commonest("a", 0.5), None, ClassMeasures({}, {}, Measure(0.5))
    monkeypatch.setattr(FIT, "share_right", lambda *_, **__: next(found))
    monkeypatch.setattr(FIT, "judge", lambda *_, **__: Judged(next(found), *rest))


@pytest.mark.parametrize("stopped", [False, True])
def test_an_accuracy_reached_within_an_epoch_ends_it(tmp_path, monkeypatch, stopped):
    # Near the target after the first epoch, there one step later; the last is that of the test.
    judged_in_turn(monkeypatch, 0.945, 0.96, 0.75)
    run = (by_single_steps if stopped else fit)(recipe(stop_at=0.95, stop_every=1), tmp_path)
    reached = {"accuracy": 0.96, "step": STEPS + 1, "reached": True}
    assert run.result()["stop"] == {"at": 0.95, "on": "validation", **reached}
    assert run.result()["test_accuracy"] == 0.75
    assert [row["epoch"] for row in run.metrics()] == [1, 2]


def test_the_network_that_is_good_enough_is_saved_whatever_was_best_before(tmp_path, monkeypatch):
    def keep_the_first(self, loop):
        if loop.current_epoch == 0:
            self.run.put_network(loop.model, self.run.best_file)

    monkeypatch.setattr(KeepBest, "on_validation_end", keep_the_first)
    judged_in_turn(monkeypatch, 0.5, 0.96, 0.75, 0.75)
    stopped = fit(recipe(stop_at=0.95, keep="best"), tmp_path / "stopped")
    assert stopped.result()["stop"]["reached"]
    assert "best_epoch" not in stopped.result()
    two_epochs = fit(recipe(epochs=2), tmp_path / "two")
    kept = [safetensors.torch.load_file(run.model_file) for run in (stopped, two_epochs)]
    torch.testing.assert_close(*kept, rtol=0, atol=0)


def test_seconds_of_an_epoch_are_those_of_all_its_stretches(tmp_path, monkeypatch):
    now = [0.0]

    def lasts(loop):
        now[0] += 2.0**loop.global_step

    clock = SimpleNamespace(perf_counter=lambda: now[0], monotonic=time.monotonic)
    monkeypatch.setattr("torchcaps.train.callbacks.time", clock)
    monkeypatch.setattr(Loop, "training_step", before_steps(lasts))
    with pytest.raises(Interrupted):
        fit(recipe(epochs=2), tmp_path, time_budget=1e-6)
    now[0] += 1000.0
    fit(recipe(epochs=2), tmp_path)
    assert [row["seconds"] for row in Run(tmp_path).metrics()] == [1 + 2 + 4, 8 + 16 + 32]


# Torch thinks four too many for two cores.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_workers_change_no_bit_and_neither_does_a_stop(tmp_path):
    """Of images that each epoch draws anew."""
    changing = recipe(augment="shift2", epochs=2)
    expected = fit(changing, tmp_path / "here")
    assert rows(expected)[0]["loss"] != rows(fit(recipe(epochs=1), tmp_path / "as they are"))[0]
    for workers in (1, 4):
        assert_same(fit(changing, tmp_path / str(workers), workers=workers), expected)
    out = tmp_path / "stopped"
    for budget in (1e-6, 1e-6, 1e-6, 1e-6):
        with pytest.raises(Interrupted):
            fit(changing, out, workers=1, time_budget=budget)
    assert_same(fit(changing, out, workers=1), expected)


def test_of_a_run_with_more_epochs_the_old_result_is_gone_before_the_recipe_is_new(
    short, whole, tmp_path
):
    shutil.copytree(short.folder, tmp_path, dirs_exist_ok=True)
    with ending(Path, "replace", lambda *_: raising(Crash())(), Crash):
        fit(recipe(), tmp_path)
    run = Run(tmp_path)
    assert (run.recipe, run.is_done) == (recipe(epochs=2), False)
    assert_same(fit(recipe(), tmp_path), whole)


def test_fewer_epochs_and_a_rate_that_falls_to_the_last_one_are_refused(short, tmp_path):
    before = contents(short.folder)
    assert "(epochs 2 there, 1 here)" in text_of(lambda: fit(recipe(epochs=1), short.folder))
    assert contents(short.folder) == before
    Run(tmp_path).begin(recipe(schedule="cosine"), "abc")
    words = text_of(lambda: fit(recipe(schedule="cosine", epochs=4), tmp_path))
    assert "(epochs 3 there, 4 here)" in words


def test_loggers_get_the_rows_of_the_metrics(whole, tmp_path):
    """Nor does a budget that is not spent change a bit, or what was drawn before."""
    torch.manual_seed(2)
    logger = CSVLogger(tmp_path / "log", name="", version="")
    run = fit(recipe(), tmp_path / "run", loggers=[logger], time_budget=3600)
    assert_same(run, whole)
    with (tmp_path / "log" / "metrics.csv").open() as file:
        logged = [
            {name: float(value) for name, value in row.items()} for row in csv.DictReader(file)
        ]
    assert logged == [
        {("step" if name == "epoch" else name): value for name, value in row.items()}
        for row in run.metrics()
    ]
    assert "matrix_capsnet_mnist" in (tmp_path / "log" / "hparams.yaml").read_text()


def test_what_a_step_draws_is_the_same_after_a_stop(tmp_path, monkeypatch):
    drawn = {}

    def draw(loop):
        drawn.setdefault(loop.global_step, []).append(float(torch.rand(())))
        if stop_at == loop.global_step:
            raise RuntimeError("out")

    monkeypatch.setattr(Loop, "training_step", before_steps(draw))
    stop_at = None
    fit(recipe(), tmp_path / "whole")
    stop_at = STEPS + 1
    with pytest.raises(RuntimeError, match="out"):
        fit(recipe(), tmp_path / "stopped")
    stop_at = None
    fit(recipe(), tmp_path / "stopped")
    # Each step of the whole run drew a number of its own, and drew it again in the stopped one.
    assert sorted(drawn) == list(range(EPOCHS * STEPS))
    assert all(len(set(numbers)) == 1 for numbers in drawn.values())
    assert len({numbers[0] for numbers in drawn.values()}) == EPOCHS * STEPS
    assert [len(drawn[step]) for step in range(EPOCHS * STEPS)] == [2] * 3 + [3, 3] + [2] * 4


# The files that two epochs replace, in their order; the digest of each comes before it.
WRITES = [
    *("digest of recipe", "recipe", "digest of environment", "environment"),
    *("digest of metrics 1", "metrics 1", "digest of state 1", "state 1"),
    *("digest of metrics 2", "metrics 2", "digest of state 2", "state 2"),
    *("digest of model", "model", "digest of result", "result"),
]


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return fit(recipe(epochs=2), tmp_path_factory.mktemp("short"))


def test_training_needs_no_room_in_the_temporary_folder(short, tmp_path, monkeypatch):
    """$TMPDIR may be full, and what is written there outlives who is killed."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "_mkstemp_inner", full)
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert_same(fit(recipe(epochs=2), tmp_path), short)


# By default before the first, within an epoch, between two epochs, and before the last.
BY_DEFAULT = {"recipe", "digest of state 1", "state 1", "metrics 2", "result"}


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(k, id=name, marks=() if name in BY_DEFAULT else pytest.mark.slow)
        for k, name in enumerate(WRITES)
    ],
)
def test_a_crash_between_any_two_writes_leaves_a_run_that_goes_on(short, tmp_path, last):
    replace = Path.replace
    done = []

    def replace_or_crash(self, target):
        if len(done) == last:
            raise Crash
        done.append(target.name)
        return replace(self, target)

    with ending(Path, "replace", replace_or_crash, Crash):
        fit(recipe(epochs=2), tmp_path)
    assert len(done) == last
    assert_readable(tmp_path)
    assert {file.name for file in tmp_path.iterdir() if file.suffix != ".partial"} == set(done)
    assert_same(fit(recipe(epochs=2), tmp_path), short)


def test_a_state_half_written_is_never_seen(short, tmp_path):
    save = Loop.save

    def half(self, path):
        save(self, path)
        if self.current_epoch == 1:
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
            raise Crash

    with ending(Loop, "save", half, Crash):
        fit(recipe(epochs=2), tmp_path)
    assert_readable(tmp_path)
    # A row more than the state knows of; the row is written again.
    assert [row["epoch"] for row in Run(tmp_path).metrics()] == [1, 2]
    assert torch.load(Run(tmp_path).state_file, weights_only=True)["global_step"] == STEPS
    assert_same(fit(recipe(epochs=2), tmp_path), short)


def test_a_finished_run_is_returned_as_it_is(whole, monkeypatch):
    before = contents(whole.folder)
    monkeypatch.setitem(SOURCES, "tiny", lambda split, root: pytest.fail("data were asked for"))
    assert fit(recipe(), whole.folder) == whole
    assert contents(whole.folder) == before


def test_another_recipe_and_a_foreign_folder_are_refused_before_any_data_are_read(
    whole, tmp_path, monkeypatch
):
    monkeypatch.setitem(SOURCES, "tiny", lambda split, root: pytest.fail("data were asked for"))
    (tmp_path / "thesis.tex").write_text("years of work")
    for folder, words in (
        (whole.folder, r"holds a run of another recipe \(epochs 3 there, 2 here\); continue it"),
        (tmp_path, "is not empty and holds no run; nothing was touched: choose a new folder"),
    ):
        before = contents(folder)
        with pytest.raises(TorchcapsError, match=words):
            fit(recipe(epochs=2), folder)
        assert contents(folder) == before


def test_test_images_are_looked_at_once_after_training(tmp_path, monkeypatch):
    happened = []
    monkeypatch.setitem(SOURCES, "tiny", lambda split, _: happened.append(split) or tiny(split))
    spy = before_steps(lambda loop: happened.append(loop.current_epoch))
    monkeypatch.setattr(Loop, "training_step", spy)
    fit(recipe(epochs=2), tmp_path)
    assert happened == ["train", 0, 0, 0, 1, 1, 1, "test"]


def test_validation_images_come_out_of_the_training_split_and_are_never_trained_on(
    tmp_path, monkeypatch
):
    seen = {"training_step": set(), "validation_step": set()}
    for name, step in [(name, getattr(Loop, name)) for name in seen]:

        def spy(self, batch, *where, name=name, step=step):
            seen[name].update(image.numpy().tobytes() for image in batch[0])
            return step(self, batch, *where)

        monkeypatch.setattr(Loop, name, spy)
    fit(recipe(epochs=2), tmp_path)
    trained, validated = seen.values()
    images = tiny("train")
    assert (len(trained), len(validated)) == (43, 5)
    assert not trained & validated
    assert trained | validated == {image.numpy().tobytes() for image in images.pixels(slice(None))}


def test_the_result_is_the_accuracy_of_the_saved_network(whole):
    expected = accuracy(load_network(whole.model_file), load("tiny", split="test"))
    assert whole.result()["test_accuracy"] == expected


def test_training_that_diverges_stops_with_one_sentence(tmp_path):
    with pytest.raises(TorchcapsError, match=r"^the loss became .+ so training diverged; take a"):
        fit(recipe(learning_rate=1e30), tmp_path)
    assert_readable(tmp_path)
    assert not (tmp_path / "result.json").exists()


def test_a_loss_that_is_lost_in_validation_ends_in_one_sentence(tmp_path, monkeypatch):
    def lost(self, batch):
        lost, right = torch.tensor([float("nan"), 0.1])
        return self.model(batch.pixels), {"validation_loss": lost, "validation_accuracy": right}

    monkeypatch.setattr(Loop, "validation_step", lost)
    text = text_of(lambda: fit(recipe(), tmp_path))
    assert text == (
        "validation_loss became nan in epoch 1, so training diverged; take a smaller learning rate "
        "than 0.001, in a new folder."
    )


def test_float16_is_for_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    text = text_of(lambda: fit(recipe(precision="float16"), tmp_path / "run"))
    assert text.startswith("float16 is for a GPU, and there is none here; on a CPU take bfloat16")
    assert not (tmp_path / "run").exists()


def test_a_state_that_cannot_be_opened_is_not_called_damaged(tmp_path, monkeypatch):
    Run(tmp_path).begin(recipe(epochs=2), tiny("train").digest())
    (tmp_path / "state.ckpt").write_bytes(b"whatever")
    denied = PermissionError(13, "Permission denied")
    monkeypatch.setattr(torch, "load", lambda *_, **__: raising(denied)())
    text = text_of(lambda: fit(recipe(epochs=2), tmp_path))
    assert text.startswith(f"{tmp_path / 'state.ckpt'} could not be opened (Permission denied),")


def copied(run, to):
    shutil.copytree(run.folder, to)
    return Run(to)


def unfinished(run, to):
    """A copy that was stopped before its end was written down."""
    found = copied(run, to)
    found.result_file.unlink()
    found.model_file.unlink()
    return found


def test_a_state_of_flipped_bits_is_never_used(short, tmp_path):
    """torch.load does not look at the checksums of the archive it reads."""
    run = unfinished(short, tmp_path / "run")
    content = run.state_file.read_bytes()
    draw = random.Random(0)
    for at in (draw.randrange(len(content)) for _ in range(20)):
        flipped = bytearray(content)
        flipped[at] ^= 1 << draw.randrange(8)
        run.state_file.write_bytes(flipped)
        assert "state.ckpt is damaged or was edited: its SHA-256" in text_of(
            lambda: fit(recipe(epochs=2), run.folder)
        )
    run.state_file.write_bytes(content)
    assert_same(fit(recipe(epochs=2), run.folder), short)


def without_digests(run, to):
    """As runs of earlier versions are, and as somebody else may have packed a state."""
    found = unfinished(run, to)
    (found.folder / "digests.json").unlink()
    return found


def changed(change):
    """Save the state anew after a change of its parts."""

    def damage(file):
        state = torch.load(file, weights_only=True)
        change(state)
        torch.save(state, file)

    return damage


def flipped(file):
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        largest = max(archive.infolist(), key=lambda member: member.file_size)
    content[largest.header_offset + 200] ^= 1
    file.write_bytes(content)


def aligned_to(alignment):
    """Found by make fuzz: torch divides by it, and the process was gone."""

    def damage(file):
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        (name,) = (name for name in members if name.endswith(".storage_alignment"))
        with zipfile.ZipFile(file, "w") as archive:
            for each, content in (members | {name: alignment}).items():
                archive.writestr(each, content)

    return damage


def in_a_folder(file):
    file.unlink()
    file.mkdir()


DAMAGED = r"state\.ckpt cannot be read \({}\); it is damaged: remove it, and the run begins anew\.$"
NOTHING = r"^{file} cannot be gone on from \(.+ or remove it, and the run begins anew\.$"
# Behind digests that are not there: what is done to a state, and what is told.
DAMAGES = {
    "empty": (lambda file: file.write_bytes(b""), DAMAGED.format(".+")),
    "cut": (lambda file: file.write_bytes(b"PK\x03\x04 cut"), DAMAGED.format(".+")),
    "garbage": (lambda file: file.write_bytes(b"garbage"), DAMAGED.format(".+")),
    "a flipped bit": (flipped, DAMAGED.format(".+ does not fit")),
    "a folder": (in_a_folder, r"state\.ckpt should be a file, but is a folder"),
    **{
        f"aligned to {alignment!r}": (
            aligned_to(alignment),
            DAMAGED.format(rf".+ holds {alignment!r}, which is no number of bytes"),
        )
        for alignment in (b"0", b"00", b"", b"x", b"-1")
    },
    **{
        f"without {part}": (
            changed(lambda state, part=part: state.pop(part)),
            DAMAGED.format(f"it holds no '{part}'"),
        )
        for part in ("loops", "callbacks", "state_dict", "optimizer_states", "torchcaps_recipe")
    },
}
CHANGES = {
    "optimiser": lambda state: state["optimizer_states"][0].update(param_groups=[]),
    "combined loader": lambda state: state["loops"]["fit_loop"]["state_dict"].update(
        combined_loader=[{}]
    ),
    "epoch": lambda state: state.update(epoch="1"),
    "step": lambda state: state.update(global_step="4"),
    "no callbacks": lambda state: state.update(callbacks=[None]),
    "seconds": lambda state: state["callbacks"]["SaveState"].update(seconds="x"),
}
DAMAGES |= {name: (changed(change), NOTHING) for name, change in CHANGES.items()}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_state_is_told_and_not_unpickled(short, tmp_path, damage, words):
    run = without_digests(short, tmp_path / "run")
    damage(run.state_file)
    said = text_of(lambda: fit(recipe(epochs=3), run.folder))
    assert re.search(words.replace("{file}", re.escape(str(run.state_file))), said), said


def test_a_state_of_an_optimiser_of_other_sizes_is_told(short, tmp_path):
    """A fused step does not look, and the process was gone."""
    run = without_digests(short, tmp_path / "run")
    state = torch.load(run.state_file, weights_only=True)
    state["optimizer_states"][0]["state"][0]["exp_avg"] = torch.zeros(1)
    torch.save(state, run.state_file)
    assert "keeps 'exp_avg' of size (1,) where its network has (" in text_of(
        lambda: fit(recipe(epochs=3), run.folder)
    )


def test_a_state_knows_its_recipe(short, tmp_path):
    """recipe.json was edited, and the same value is given in the call."""
    run = without_digests(short, tmp_path / "run")
    other = recipe(epochs=2, learning_rate=0.5)
    run.recipe_file.write_text(other.model_dump_json())
    said = text_of(lambda: fit(other, run.folder))
    assert "state.ckpt is the state of another recipe (learning_rate 0.00" in said
    assert "there, 0.5 here); was recipe.json edited?" in said


def test_a_state_of_another_length_is_gone_on_from_only_where_its_epochs_are_the_same(
    short, tmp_path
):
    run = without_digests(short, tmp_path / "run")
    fewer = recipe(epochs=1)
    run.recipe_file.write_text(fewer.model_dump_json())
    said = text_of(lambda: fit(fewer, run.folder))
    assert "state.ckpt is the state of another recipe (epochs 2 there, 1 here)" in said


def test_a_refused_line_leaves_a_finished_run_as_it_is(short, tmp_path):
    run = copied(short, tmp_path / "run")
    run.state_file.write_bytes(run.state_file.read_bytes()[:-100])
    before = contents(run.folder)
    assert "state.ckpt is damaged" in text_of(lambda: fit(recipe(epochs=3), run.folder))
    assert contents(run.folder) == before


@pytest.mark.parametrize("name", ["model.safetensors", "result.json"])
def test_a_finished_run_of_which_a_file_is_damaged_is_not_called_done(short, tmp_path, name):
    run = copied(short, tmp_path / "run")
    content = bytearray((run.folder / name).read_bytes())
    content[-1] ^= 1
    (run.folder / name).write_bytes(content)
    assert f"{name} is damaged" in text_of(lambda: fit(recipe(epochs=2), run.folder))


def test_the_network_of_an_earlier_end_is_no_longer_that_of_the_run(short, tmp_path):
    run = copied(short, tmp_path / "run")
    earlier = run.model_file.read_bytes()
    longer = fit(recipe(epochs=3), run.folder)
    longer.model_file.write_bytes(earlier)
    assert "model.safetensors is damaged" in text_of(lambda: load_network(longer.folder))


def test_a_run_that_trains_on_has_no_network_yet(short, tmp_path):
    run = copied(short, tmp_path / "run")
    run.result_file.unlink()
    assert "trains on, and its model.safetensors is that of an earlier epoch" in text_of(
        lambda: load_network(run.folder)
    )


def test_images_of_ones_own_give_the_same_run(whole, tmp_path):
    own = tiny("train"), tiny("test")
    run = fit(recipe(data="own"), tmp_path, own=own)
    # Only the name of the images is another.
    fields = run.result() | {"test_data": whole.result()["test_data"]}
    run.write(run.result_file, json.dumps(fields))
    assert_same(run, whole)


def test_two_processes_do_not_train_in_one_folder(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.train.folder.alone.LOCK_SECONDS", 0.2)
    fit(recipe(epochs=1), tmp_path)
    before = contents(tmp_path)
    with alone(tmp_path):
        # A lock belongs to the opened folder, so this process is another one for it.
        text = text_of(lambda: fit(recipe(), tmp_path))
    assert text == (
        f"another process is training in {tmp_path}; wait for it, or choose another folder."
    )
    assert contents(tmp_path) == before
    assert_same(fit(recipe(), tmp_path), whole)


def test_channels_last_goes_on_to_the_same_weights_and_learns_the_same(whole, tmp_path):
    assert not whole.recipe.channels_last
    last = recipe(channels_last=True)
    run = fit(last, tmp_path / "whole")
    fit(recipe(channels_last=True, epochs=1), tmp_path / "parts")
    assert_same(fit(last, tmp_path / "parts"), run)
    for row, plain in zip(run.metrics(), whole.metrics(), strict=True):
        assert row["loss"] == pytest.approx(plain["loss"], rel=5e-3)


@pytest.mark.parametrize("keeps", [True, False])
def test_memory_is_kept_unless_the_environment_says_no(tmp_path, monkeypatch, keeps):
    asked = []
    monkeypatch.setattr(FIT, "keep_memory", lambda: asked.append(True) or keeps)
    run = fit(recipe(epochs=1), tmp_path)
    seen = json.loads(run.environment_file.read_text())
    assert seen["keeps_memory"] is keeps
    assert asked == [True]


@pytest.mark.slow
def test_bfloat16_goes_on_to_the_same_weights_and_to_others_than_float32(tmp_path):
    # A tiny network of EM routing moves by more than rounding.
    network = {"model": "mitterreiter_5x16", "options": {}}
    whole = fit(recipe(**network), tmp_path / "float32")
    half = recipe(**network, precision="bfloat16")
    run = fit(half, tmp_path / "whole")
    fit(recipe(**network, precision="bfloat16", epochs=1), tmp_path / "parts")
    assert_same(fit(half, tmp_path / "parts"), run)
    assert run.model_file.read_bytes() != whole.model_file.read_bytes()
    # Later roundings, of another size on every processor, have grown: seen were 0.001 to 5 percent.
    for row, exact in zip(run.metrics()[:2], whole.metrics()[:2], strict=True):
        assert row["loss"] == pytest.approx(exact["loss"], rel=0.02)
    kept = safetensors.torch.load_file(run.model_file)
    assert {tensor.dtype for tensor in kept.values()} <= {torch.float32, torch.int64}


def test_images_are_trained_on_in_the_size_of_the_recipe(tmp_path):
    fields = WITHOUT_NORM | {"image_size": (7, 5), "epochs": 1}
    named = fit(recipe(**fields), tmp_path / "named")
    assert load_network(named.model_file).image == (1, 7, 5)
    both = (tiny("train"), tiny("test"))
    own = fit(recipe(data="own", **fields), tmp_path / "own", own=both)
    assert own.model_file.read_bytes() == named.model_file.read_bytes()


def test_windows_of_images_of_ones_own_stay_where_they_are(tmp_path, monkeypatch):
    def look(images, device):
        seen.append(images)
        raise Crash

    monkeypatch.setattr(FIT, "held_on", look)
    moved = tuple(Cropped(tiny(split), (20, 18), seed=5) for split in ("train", "test"))
    middle = tuple(replace(each, seed=None) for each in moved)
    for name, own in (("moved", moved), ("middle", middle)):
        seen = []
        with pytest.raises(Crash):
            fit(recipe(data="own", epochs=1), tmp_path / name, own=own)
        assert [each.seed for each in seen] == [own[0].seed]


@pytest.mark.parametrize("few", [{}, {"train_images": 20}], ids=["all", "some"])
def test_windows_are_drawn_for_training_and_cut_from_the_middle_elsewhere(
    tmp_path, monkeypatch, few
):
    seen = []
    plain = FIT.held_on
    monkeypatch.setattr(
        FIT, "held_on", lambda each, device: seen.append(each) or plain(each, device)
    )
    fields = WITHOUT_NORM | {"image_size": (9, 8), "crop": (7, 5), "epochs": 1}
    run = fit(recipe(**fields, **few), tmp_path)
    training, validation = seen
    for images, moves in ((training, True), (validation, False)):
        pixels = [images.batch(slice(None), epoch).pixels for epoch in (0, 1)]
        assert torch.equal(*pixels) is not moves
    assert {each.image_shape for each in seen} == {(1, 7, 5)}
    test = images_of(run.recipe, "test")
    assert run.result()["digests"]["test"] == test.digest()
    assert torch.equal(
        test.batch(slice(1)).pixels, test.images.batch(slice(1)).pixels[..., 1:8, 1:6]
    )


def test_what_standardises_is_measured_on_the_images_that_are_trained_on(tmp_path):
    fields = WITHOUT_NORM | {"epochs": 1, "validation_share": 0.25}
    run = fit(recipe(standardise="set", **fields), tmp_path / "set")
    training, _ = watched(run.recipe, tiny("train"))
    model = load_network(run.model_file)
    numbers = channel_statistics(training)
    assert model.config["standardise"] == tuple(map(list, numbers))
    named = fit(recipe(standardise=numbers, **fields), tmp_path / "numbers")
    assert named.model_file.read_bytes() == run.model_file.read_bytes()
    plain = fit(recipe(**fields), tmp_path / "plain")
    assert rows(plain) != rows(run)


other = tiny_images(8, n_test=10, size=20, seed=5)


def test_a_recipe_may_test_on_another_set_but_stops_on_its_own(tmp_path, monkeypatch):
    monkeypatch.setitem(SOURCES, "other", other)
    judged = []
    for name, plain in (("share_right", FIT.share_right), ("judge", FIT.judge)):

        def spy(model, images, *rest, plain=plain, **most):
            judged.append(images)
            return plain(model, images, *rest, **most)

        monkeypatch.setattr(FIT, name, spy)
    stop = {"stop_at": 1e-6, "stop_on": "test", "stop_every": 1}
    run = fit(recipe(**WITHOUT_NORM, epochs=1, test_data="other", **stop), tmp_path)
    own, others = tiny("test").digest(), other("test").digest()
    assert [images.digest() for images in (judged[0], judged[-1])] == [own, others]
    result = run.result()
    assert (result["test_data"], result["test_images"]) == ("other", 10)
    assert result["digests"]["test"] == others


def test_a_run_remembers_where_its_data_lies(tmp_path, monkeypatch):
    asked = []

    def files(split, root):
        asked.append(root)
        return tiny(split)

    monkeypatch.setitem(SOURCES, "files", files)
    monkeypatch.chdir(tmp_path)
    Path("sets").mkdir()
    run = fit(recipe(**WITHOUT_NORM, data="files", epochs=1), "run", root="sets")
    assert run.root == tmp_path / "sets"
    asked.clear()
    fit(recipe(**WITHOUT_NORM, data="files", epochs=2), "run")
    trained = open_trained(run.folder)
    trained.images("test")
    assert set(asked) == {tmp_path / "sets"}
    trained.images("test", root="moved")
    assert asked[-1] == Path("moved")
    assert fit(recipe(**WITHOUT_NORM, epochs=1), tmp_path / "made").root is None


def test_a_run_that_is_done_refuses_other_images(tmp_path):
    pair = tiny("train"), tiny("test")
    one = recipe(data="own", epochs=1)
    fit(one, tmp_path / "run", own=pair)
    assert fit(one, tmp_path / "run", own=pair).is_done
    before = contents(tmp_path / "run")
    for line in (one, recipe(data="own", epochs=2)):
        said = text_of(lambda line=line: fit(line, tmp_path / "run", own=pair[::-1]))
        assert said.startswith(f"{tmp_path}/run was begun on other training images (digest ")
    # Its accuracy would be taken for that of the images given.
    then, now = pair[1].digest(), pair[0].digest()
    assert text_of(lambda: fit(one, tmp_path / "run", own=(pair[0], pair[0]))) == (
        f"{tmp_path}/run is done, and its accuracy is that of other test images (digest {then}, "
        f"now {now}); what it says of these is evaluate(run.model(), test)."
    )
    assert contents(tmp_path / "run") == before


def test_one_class_that_parting_leaves_is_told(tmp_path):
    """Of thirteen images the one of the other class may be held out."""
    labels = torch.tensor([0] * 12 + [1])
    few = ImageSet("few", torch.rand(13, 1, 20, 20), labels, ("a", "b"))
    seeds = range(30)
    held = [seed for seed in seeds if bool((parted(recipe(seed=seed), few)[1].labels == 1).any())]
    own = {"data": "own", "epochs": 1, "seed": held[0]}
    said = text_of(lambda: fit(recipe(**own), tmp_path / "run", own=(few, few)))
    assert said.endswith("and were all images of another class held out?")
    assert not (tmp_path / "run").exists()


def test_a_best_network_that_is_gone_is_told_before_more_is_trained(tmp_path, monkeypatch):
    best = recipe(keep="best")
    fit(recipe(keep="best", epochs=1), tmp_path / "run")
    run = Run(tmp_path / "run")
    run.best_file.unlink()
    monkeypatch.setattr(FIT.Going, "steps", lambda *_, **__: pytest.fail("it was trained"))
    assert text_of(lambda: fit(best, run.folder)) == (
        f"{run.best_file} is missing, which holds the best network so far; put it back, or remove "
        f"state.ckpt as well, and the run begins anew."
    )
