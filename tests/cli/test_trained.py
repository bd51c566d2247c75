"""eval, predict and doctor: data on standard output, talk beside it, one sentence when it fails."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.cli import main
from torchcaps.data import SOURCES, PartWholeSpec, part_whole
from torchcaps.models import save
from torchcaps.train import Run, make_recipe
from torchcaps.train.fit import initial_model
from torchcaps.train.run import write_whole

COMMAND = Path(sys.executable).with_name("torchcaps")


class Done(NamedTuple):
    code: int
    out: str
    err: str


@cache
def tiny(split, root):
    return part_whole(split, {"train": 40, "test": 12}[split], spec=PartWholeSpec(size=24))


@pytest.fixture(autouse=True, scope="module")
def _tiny():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "tiny", tiny)
        yield


@pytest.fixture
def call(monkeypatch, capsys):
    """The command line in this process, where the tiny data are known."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["torchcaps", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        return Done(stop.value.code or 0, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The files of a finished run, laid down without training."""
    run = Run(tmp_path_factory.mktemp("runs") / "run")
    recipe = make_recipe(model="mitterreiter_5x16", data="tiny", seed=3)
    run.begin(recipe, "abc")
    save(initial_model(recipe, tiny("train", None)), run.model_file)
    names = list(tiny("train", None).class_names)
    write_whole(run.result_file, json.dumps({"class_names": names}))
    return run.folder


@pytest.fixture
def picture(tmp_path):
    pixels = np.arange(576, dtype=np.uint8).reshape(24, 24)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    return tmp_path / "x.png"


def assert_one_sentence(done, words):
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("torchcaps: ")
    assert done.err.count("\n") == 1
    assert words in done.err


def test_eval_prints_numbers_for_people_and_for_programs(trained, call):
    done = call("eval", trained)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("accuracy  ")
    assert " of 12 test images of part-whole (95 % Wilson interval " in done.out
    done = call("eval", trained, "--json")
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    found = json.loads(done.out)
    assert (found["images"], found["split"], found["in_training"]) == (12, "test", 0)
    assert len(found["confusion"]) == 10


def test_eval_writes_a_line_for_every_image(trained, call, tmp_path):
    file = tmp_path / "said.jsonl"
    done = call("eval", trained, "--predictions", file, "--split", "validation", "--json")
    found, rows = json.loads(done.out), list(map(json.loads, file.read_text().splitlines()))
    assert len(rows) == found["images"] == 4
    assert sum(row["right"] for row in rows) == found["right"]


def test_a_saved_network_is_evaluated_on_data_that_are_named(trained, call):
    file = trained / "model.safetensors"
    assert_one_sentence(call("eval", file), "which does not know its data; name it with --data.")
    named = json.loads(call("eval", file, "--data", "tiny", "--json").out)
    own = json.loads(call("eval", trained, "--json").out)
    assert named == own


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["none"], "there is no run folder and no saved network at none."),
        (["{run}", "--split", "tset"], "split='tset' is unknown; did you mean 'test'?"),
        (["{run}", "--predictions", "no/p.csv"], "the folder no does not exist; make it, or"),
        (["{run}", "--data", "tny"], "data 'tny' is unknown; did you mean 'tiny'?"),
        (["."], ". holds no finished run (result.json is missing); finish it with torchcaps"),
    ],
)
def test_bad_evaluation_ends_in_one_sentence(trained, call, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    assert_one_sentence(call("eval", *(word.format(run=trained) for word in words)), sentence)
    assert not list(tmp_path.iterdir())


# Whoever leaves out the network gets no number at all: the newest file is not good enough.
def test_eval_refuses_to_guess_the_network(call, trained, monkeypatch):
    monkeypatch.chdir(trained)
    done = call("eval")
    assert (done.code, done.out) == (2, "")
    assert "Missing argument" in done.err


def test_predict_prints_a_line_a_picture(trained, call, picture):
    done = call("predict", trained, picture, picture)
    assert done.code == 0
    first, second = done.out.splitlines()
    assert first == second
    assert first.startswith(f"{picture}: ")
    assert done.err == (
        "scores are lengths of class capsules: each says how likely its class is there, by itself; "
        "they are no softmax and need not sum to one\n"
    )


def test_predict_speaks_json_and_draws(trained, call, picture, tmp_path):
    drawn = tmp_path / "drawn.svg"
    done = call("predict", trained, picture, "--json", "--picture", drawn)
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["path"] == str(picture)
    assert found["class"] in tiny("train", None).class_names
    assert found["class"] == found["classes"][int(torch.tensor(found["scores"]).argmax())]
    assert drawn.read_text().startswith("<?xml")


def test_predict_says_what_it_did_to_a_picture(trained, call, tmp_path):
    file = tmp_path / "wide.png"
    Image.new("RGB", (48, 24), "red").save(file)
    assert_one_sentence(call("predict", trained, file), "or let --resize stretch it.")
    done = call("predict", trained, file, "--resize", "--json")
    assert done.code == 0
    told = f"{file}: stretched from 24 × 48 to 24 × 24 pixels, which changes its proportions"
    assert done.err == f"{told}, colours made grey.\n"
    assert json.loads(done.out)["notes"] == [done.err.rstrip("\n")]


def test_a_picture_that_cannot_be_read_ends_in_one_sentence(trained, call, picture, tmp_path):
    picture.write_bytes(picture.read_bytes()[:60])
    drawn = tmp_path / "drawn.png"
    done = call("predict", trained, picture, "--picture", drawn)
    assert_one_sentence(done, "could not be read as a picture (")
    assert not drawn.exists()


def test_doctor_examines_what_is_to_be_trained(call):
    words = ["--model", "mitterreiter_5x16", "--data", "tiny", "--seconds", 1]
    done = call("doctor", *words)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("mitterreiter_5x16 on 40 training images of tiny, before training\n")
    done = call("doctor", *words, "--option", "weight_std=0.00001", "--json")
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    found = json.loads(done.out)
    assert found["subject"].startswith("mitterreiter_5x16 (weight_std=1e-05) on ")
    verdicts = {row["check"]: row["verdict"] for row in found["findings"]}
    assert (verdicts["scores"], verdicts["pixels"]) == ("broken", "fine")


def test_doctor_takes_a_recipe_as_train_does(call, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('model = "mitterreiter_5x16"\ndata = "tiny"\n')
    done = call("doctor", "--recipe", recipe, "--set", "loss=cross_entropy", "--seconds", 1)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("mitterreiter_5x16 on 40 training images of tiny, before training\n")
    done = call("doctor", "--recipe", recipe, "--protocol", "nobody")
    assert_one_sentence(done, "protocol 'nobody' is unknown; ")


def test_doctor_examines_a_run(trained, call):
    done = call("doctor", trained, "--seconds", 1)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0].endswith(" of tiny, after training")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "doctor needs a run folder, or --model and --data of a network that is to be trained"),
        (["--model", "capsnet"], "doctor needs a run folder, or --model and --data of a network"),
        (["run", "--set", "seed=1"], "a run knows its network and its data; give the run folder"),
        (["run", "--data", "tiny"], "a run knows its network and its data; give the run folder"),
        (["none"], "there is no run folder at none."),
        (["."], ". is no run folder (recipe.json is missing); for a network that was not"),
        (["--model", "capsnt", "--data", "tiny"], "model: 'capsnt' is unknown; did you mean 'caps"),
        (["--model", "capsnet", "--data", "tny"], "data: 'tny' is unknown; did you mean 'tiny'?"),
    ],
)
def test_a_doctor_without_a_patient_says_so(call, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    assert_one_sentence(call("doctor", *words), sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["eval", "predict", "doctor"])
def test_help_says_what_is_printed(call, command):
    done = call(command, "--help")
    assert done.code == 0
    assert f"Usage: torchcaps {command}" in done.out
    assert "Prints" in done.out


def test_a_torchvision_of_another_torch_is_told_in_a_process_of_its_own(tmp_path):
    package = tmp_path / "torchvision"
    about = tmp_path / "torchvision-0.20.0.dist-info"
    package.mkdir()
    about.mkdir()
    fault = 'raise RuntimeError("operator torchvision::nms does not exist")'
    (package / "__init__.py").write_text(fault)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.20.0\n")
    ended = subprocess.run(
        [COMMAND, "doctor", "run"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    done = Done(ended.returncode, ended.stdout, ended.stderr)
    assert_one_sentence(
        done,
        "torchvision is installed but cannot be imported (operator torchvision::nms does not "
        "exist); it was built for another torch: install the one that fits, or pip uninstall",
    )
