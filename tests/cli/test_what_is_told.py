"""Every option reaches the function that its command calls, with the value that was typed."""

import importlib
import inspect
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchcaps import TorchcapsError, study
from torchcaps_claims import court

TOLD = tomllib.loads(Path(__file__).with_name("told.toml").read_text(encoding="utf-8"))


class Told(list):
    """Stands for a function, and ends the command where that would be called."""

    def __call__(self, *args, **kwargs):
        self.append((args, kwargs))
        raise TorchcapsError("told.")


def told(name, line, call, monkeypatch):
    """The arguments by name with which a command calls a function."""
    whole = name if name.startswith("torchcaps_claims.") else f"torchcaps.{name}"
    module, _, function = whole.rpartition(".")
    real = getattr(importlib.import_module(module), function)
    calls = Told()
    monkeypatch.setattr(importlib.import_module(module), function, calls)
    done = call(*line.split())
    assert (done.code, done.out, done.err) == (2, "", "torchcaps: told.\n")
    ((args, kwargs),) = calls
    return inspect.signature(real).bind(*args, **kwargs).arguments


def as_json(values):
    """Unlike in Python 2 and 2.0 differ, and so do 1 and true. TOML has no word for nothing."""
    plain = {name: "none" if value is None else value for name, value in values.items()}
    return json.dumps(plain, sort_keys=True, default=str)


@pytest.mark.parametrize("case", TOLD["told"], ids=lambda case: case["line"])
def test_a_command_tells_its_function_what_was_typed(case, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(case.get("file", TOLD["mine"]))
    found = told(case["calls"], case["line"], call, monkeypatch)
    if "recipe" in case:
        found = found["recipe"].model_dump()
    expected = case.get("recipe") or case["given"]
    assert as_json({name: found[name] for name in expected}) == as_json(expected)


@pytest.mark.parametrize("verb", ["run", "status"])
def test_only_takes_every_text(verb, call, monkeypatch):
    monkeypatch.setattr(court, "study_of", lambda *args, **kwargs: "planned")
    words = f"study {verb} peer2022 --only depth=4 --only em"
    found = told("study.system.only_those", words, call, monkeypatch)
    assert found == {"study": "planned", "texts": ["depth=4", "em"]}


def test_compare_draws_the_statistic_that_was_typed(call, monkeypatch):
    seen = Told()
    found = SimpleNamespace(check_statistic=seen, against=lambda baseline: found)
    monkeypatch.setattr(study, "compare", lambda runs: found)
    assert call("compare", "runs", "--statistic", "dyr.1").err == "torchcaps: told.\n"
    assert seen == [(("dyr.1",), {})]
