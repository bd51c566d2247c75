"""A few turns of `make fuzz`, from another seed each time, which pytest says at its end."""

import os
from pathlib import Path
from types import SimpleNamespace

from fuzz.__main__ import fuzz

# At most: a few turns are done long before on a machine that is free.
SECONDS = 60


def test_a_few_turns_find_nothing():
    seed = int(os.environ["TORCHCAPS_FUZZ_SEED"])
    found = fuzz(seed, seconds=SECONDS, files=40, commands=15, made=40, cases=40)
    assert found["wrong"] == [], f"make fuzz SEED={seed}"
    assert min(found[kind]["tried"] for kind in ("files", "commands", "values", "numbers")) > 0


def test_every_run_of_pytest_says_the_seed(request):
    conftest = Path(__file__).parents[1] / "conftest.py"
    said = []
    for plugin in request.config.pluginmanager.get_plugins():
        if getattr(plugin, "__file__", None) == str(conftest):
            plugin.pytest_terminal_summary(SimpleNamespace(write_line=said.append))
    assert said == [f"make fuzz SEED={os.environ['TORCHCAPS_FUZZ_SEED']}"]
