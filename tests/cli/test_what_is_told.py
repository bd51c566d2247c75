"""Every option reaches the function that its command calls, with the value that was typed."""

import importlib
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.command_line import Call
from torchcaps import TorchcapsError, study
from torchcaps_claims import court

COURT = "torchcaps_claims"
DOCTOR = "doctor --model capsnet --data mnist"
TRAIN = "train --model capsnet --data mnist --out new"
FEW = {"resize": False, "crop": False, "invert": False, "centre": False}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("predict run x.png", "tasks.predict", FEW),
    ("predict run x.png --resize", "tasks.predict", FEW | {"resize": True}),
    ("predict run x.png --crop", "tasks.predict", FEW | {"crop": True}),
    ("predict run x.png --invert", "tasks.predict", FEW | {"invert": True}),
    ("predict run x.png --centre", "tasks.predict", FEW | {"centre": True}),
    (
        "study run peer2022 1 --reduced",
        f"{COURT}.court.study_of",
        {"table": 1, "reduced": True},
    ),
    ("study status peer2022", f"{COURT}.court.study_of", {"table": None, "reduced": False}),
    (
        "study status peer2022 1 --reduced",
        f"{COURT}.court.study_of",
        {"table": 1, "reduced": True},
    ),
    ("study status --reduced", f"{COURT}.court.study_of_claims", {"reduced": True}),
    (
        "study table gu2021 4 --dry-run",
        f"{COURT}.tables.table",
        {"number": 4, "reduced": False},
    ),
    (
        "study table gu2021 4 --dry-run --reduced",
        f"{COURT}.tables.table",
        {"number": 4, "reduced": True},
    ),
    (
        "dissect run --measure keys,couplings --measure dynamics --example 7 --images 50 --root at",
        "tasks.dissect_files",
        {
            "measurements": ["keys", "couplings", "dynamics"],
            "example": 7,
            "images": 50,
            "root": Path("at"),
        },
    ),
    ("demo --seed 5 --out shown", "tasks.demo", {"out": Path("shown"), "seed": 5}),
    (f"{TRAIN} --trunk w.safetensors", "train.fit", {"trunk": Path("w.safetensors")}),
    (f"{DOCTOR} --trunk w.safetensors", "tasks.doctor", {"trunk": Path("w.safetensors")}),
    ("eval run --root at", "tasks.evaluate_file", {"root": Path("at")}),
    ("export run --to onnx --out at", "tasks.export", {"to": "onnx", "out": Path("at")}),
    ("perturb run --root at", "tasks.perturb", {"root": Path("at")}),
    ("dictionary run --root at", "tasks.dictionary", {"root": Path("at")}),
    ("doctor run --root at", "tasks.doctor_run", {"root": Path("at")}),
    (f"{DOCTOR} --root at", "tasks.doctor", {"root": Path("at")}),
    ("estimate --model capsnet --precision bfloat16", "tasks.estimate", {"precision": "bfloat16"}),
]


class Told(list[Any]):
    """Stands for a function, and ends the command where that would be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.append((args, kwargs))
        raise TorchcapsError("told.")


def told(name: str, words: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments by name with which a command calls a function."""
    whole = name if name.startswith(COURT) else f"torchcaps.{name}"
    module, _, function = whole.rpartition(".")
    real = getattr(importlib.import_module(module), function)
    calls = Told()
    monkeypatch.setattr(importlib.import_module(module), function, calls)
    done = call(*words.split())
    assert (done.code, done.out, done.err) == (2, "", "torchcaps: told.\n")
    ((args, kwargs),) = calls
    return inspect.signature(real).bind(*args, **kwargs).arguments


@pytest.mark.parametrize(("words", "function", "expected"), CASES, ids=[each[0] for each in CASES])
def test_a_command_tells_its_function_what_was_typed(
    words: str,
    function: str,
    expected: dict[str, Any],
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = told(function, words, call, monkeypatch)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("--option iterations=2", "options", {"iterations": 2}),
        ("--protocol hinton_em", "protocol", "hinton_em"),
        ("--image-size 24x20", "image_size", (24, 20)),
    ],
)
def test_doctor_examines_the_recipe_that_was_typed(
    words: str, field: str, value: object, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = told("tasks.doctor", f"{DOCTOR} {words}", call, monkeypatch)
    assert getattr(found["recipe"], field) == value


@pytest.mark.parametrize(
    ("words", "function"), [("train --out run", "train.fit"), ("doctor", "tasks.doctor")]
)
def test_groups_are_a_field_of_the_recipe(
    words: str, function: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"{words} --model capsnet --data folder --groups (p[0-9]+)_"
    assert told(function, line, call, monkeypatch)["recipe"].groups == "(p[0-9]+)_"


MINE = """
model = "mitterreiter_5x16"
data = "part-whole"
epochs = 7
batch_size = 20
learning_rate = 0.01
[options]
routing = "uniform"
"""


@pytest.mark.parametrize(
    ("words", "file", "expected"),
    [
        # What is typed beside a file wins, and the rest of it stays.
        ("--epochs 1 --seed 9", MINE, {"epochs": 1, "seed": 9, "learning_rate": 0.01}),
        (
            "--learning-rate 0.002",
            MINE,
            {"learning_rate": 0.002, "options": {"routing": "uniform"}},
        ),
        ("--option bias=true", MINE, {"options": {"routing": "uniform", "bias": True}}),
        ("--data mnist", 'model = "capsnet"', {"model": "capsnet", "data": "mnist"}),
        (
            "--option routing=dynamic --option weight_std=0.5 --option iterations=2",
            MINE,
            {"options": {"routing": "dynamic", "weight_std": 0.5, "iterations": 2}},
        ),
        # As `torchcaps models` lists it, and as JSON has it.
        ("--option bias=False", MINE, {"options": {"routing": "uniform", "bias": False}}),
        ("--option decoder=false", MINE, {"options": {"routing": "uniform", "decoder": False}}),
        (
            "--set schedule=steps --set milestones=[1] --set decay=0.5 --set keep=best",
            MINE,
            {"schedule": "steps", "milestones": (1,), "decay": 0.5, "keep": "best"},
        ),
        ("--protocol peer", 'model = "capsnet"\ndata = "mnist"', {"learning_rate": 1e-4}),
    ],
)
def test_a_recipe_is_its_file_and_what_was_typed_beside_it(
    words: str,
    file: str,
    expected: dict[str, Any],
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "mine.toml").write_text(file)
    line = f"train --out run --recipe {tmp_path / 'mine.toml'} {words}"
    recipe = told("train.fit", line, call, monkeypatch)["recipe"]
    # 2 and 2.0 are equal, and so are 1 and true.
    assert repr({name: getattr(recipe, name) for name in expected}) == repr(expected)


@pytest.mark.parametrize(
    ("words", "model", "options"),
    [
        ("", "capsules_on_backbone", {"weights": "pretrained"}),
        ("--option weights=w.pth --option types=4", "capsules_on_backbone", {"weights": "w.pth"}),
        ("--model linear_on_backbone", "linear_on_backbone", {"weights": "pretrained"}),
    ],
)
def test_a_backbone_is_a_model_and_its_options(
    words: str, model: str, options: dict[str, str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"train --out run --data part-whole --backbone resnet34 {words}"
    recipe = told("train.fit", line, call, monkeypatch)["recipe"]
    assert recipe.model == model
    assert recipe.options.items() >= ({"backbone": "resnet34"} | options).items()


@pytest.mark.parametrize("verb", ["run", "status"])
def test_only_takes_every_text(verb: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(court, "study_of", lambda *args, **kwargs: "planned")
    words = f"study {verb} peer2022 --only depth=4 --only em"
    found = told("study.system.only_those", words, call, monkeypatch)
    assert found == {"study": "planned", "texts": ["depth=4", "em"]}


def test_compare_draws_the_statistic_that_was_typed(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Told()
    found = SimpleNamespace(check_statistic=seen, against=lambda baseline: found)
    monkeypatch.setattr(study, "compare", lambda runs: found)
    assert call("compare", "runs", "--statistic", "dyr.1").err == "torchcaps: told.\n"
    assert seen == [(("dyr.1",), {})]
