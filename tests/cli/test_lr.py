"""`torchcaps lr`: a sentence, or JSON, and a picture."""

import json
from pathlib import Path

import pytest

from cli.command_line import Call


@pytest.mark.slow
def test_it_tries_the_rates_of_a_run_and_draws_them(
    run_folder: Path, tmp_path: Path, call: Call
) -> None:
    line = ["lr", run_folder, "--low", 1e-4, "--high", 1e-2, "--steps", 10]
    done = call(*line, "--picture", tmp_path / "lr.svg")
    assert done.code == 0, done.err
    assert done.out.startswith("10 steps at learning rates from 0.0001 to 0.01: the loss ")
    assert (tmp_path / "lr.svg").read_text().startswith("<?xml")
    found = json.loads(call(*line, "--json").out)
    assert len(found["rates"]) == len(found["losses"]) == 10
