"""A few turns of `make fuzz`, from another seed each time, which pytest says at its end."""

import contextlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fuzz import __main__ as fuzzing
from fuzz import inputs, numbers, values
from fuzz.__main__ import fuzz, main
from fuzz.commands import COMMANDS, FLAGS, KNOWN

# At most: a few turns are done long before on a machine that is free.
SECONDS = 60


@pytest.mark.slow
def test_a_few_turns_find_nothing():
    seed = int(os.environ["TORCHCAPS_FUZZ_SEED"])
    most = {"files": 40, "commands": 15, "values": 40, "numbers": 40}
    found = fuzz(seed, seconds=SECONDS, most=most)
    assert found["wrong"] == [], f"make fuzz SEED={seed}"
    assert min(found[kind]["tried"] for kind in most) > 0


@pytest.mark.parametrize(
    ("fault", "strict", "lenient"),
    [(numbers.Off("off by 0.1"), 1, 0), (AssertionError("not finite"), 1, 1), (None, 0, 0)],
    ids=["off", "not finite", "none"],
)
def test_lenient_lets_a_number_be_off_and_nothing_else(monkeypatch, capsys, fault, strict, lenient):
    def check(drawn):
        if fault is not None:
            raise fault
        return {"fused": "right"}

    monkeypatch.setattr(numbers, "check", check)
    if fault is not None:  # Nobody looks at the folder of good files, which takes seconds to make.
        monkeypatch.setattr(fuzzing, "bench", contextlib.nullcontext)
        monkeypatch.setattr(inputs, "targets", lambda bench: [])
        monkeypatch.setattr(values, "properties", lambda bench: [])
    line = ["fuzz", "--minutes", "1", "--seed", "5", "--inputs", "0", "--numbers", "3"]
    for words, code in ((line, strict), ([*line, "--lenient"], lenient)):
        monkeypatch.setattr(sys, "argv", words)
        assert main() == code
        said = capsys.readouterr().out
        assert said.startswith("seed 5\n")
        assert said.count("numbers: Drawn(") == (0 if fault is None else 3)


def test_every_run_of_pytest_says_the_seed(request):
    conftest = Path(__file__).parents[1] / "conftest.py"
    said = []
    for plugin in request.config.pluginmanager.get_plugins():
        if getattr(plugin, "__file__", None) == str(conftest):
            plugin.pytest_terminal_summary(SimpleNamespace(write_line=said.append))
    assert said == [f"make fuzz SEED={os.environ['TORCHCAPS_FUZZ_SEED']}"]


def test_commands_are_drawn_with_the_options_that_they_have():
    assert set(KNOWN) - set(COMMANDS) == {"demo", "explore"}
    assert {"--seeds", "--trunk", "--tensorboard"} <= set(COMMANDS["train"][1])
    assert "--dry-run" in COMMANDS["study table"][1]
    assert {"--json", "--dry-run", "--crop"} <= FLAGS
    assert not {"--root", "--out"} & FLAGS
