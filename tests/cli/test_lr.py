"""`torchcaps lr`: a sentence, or JSON, and a picture."""

import json
from pathlib import Path

import pytest

from cli.command_line import Call, assert_one_sentence


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


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("learning_rate=1", "the rates go from --low to --high; leave it out."),
        ("accumulate=4", "every step is of one batch, whose size is --set batch_size=…;"),
        ("epochs=4", "the number of steps is --steps;"),
        ("patience=2", "patience would do nothing in a test of rates: it has no part in"),
    ],
)
def test_what_would_do_nothing_is_a_sentence(
    run_folder: Path, call: Call, field: str, words: str
) -> None:
    assert_one_sentence(call("lr", run_folder, "--set", field), words)


def test_bad_input_is_a_sentence(tmp_path: Path, call: Call) -> None:
    assert_one_sentence(call("lr", tmp_path / "none.toml"), "there is no recipe at")
    bad = call("lr", "--model", "capsnet", "--data", "tiny", "--picture", "x.gif")
    assert_one_sentence(bad, "the picture must end in .svg or .png, but is x.gif.")
