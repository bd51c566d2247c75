"""What the command line says of what it cannot do, in errors.txt, word by word.

A line ends in the sentence, with exit code 2 and nothing on standard output, and leaves the folder
it was typed in as it was."""

import contextlib
import io
import re
import shlex
import tempfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from cli.command_line import TRAIN, tiny
from error_text import cases_of, settled
from laid_runs import few_numbers, lay_run, small_network
from torchcaps import save
from torchcaps.cli import main
from torchcaps.data import SOURCES

ERRORS = Path(__file__).with_name("errors.txt")
NETWORKS = {
    "network": ("mitterreiter_5x16", {}),
    "eff": ("rem_eff_mnist", {}),
    "matrix": ("matrix_capsnet_mnist", {}),
    "convnet": ("efficient_convnet", {}),
    "drawing": ("convnet_fc", {"reconstruction": True}),
    "stereo": ("mitterreiter_5x16", {"image": (2, 24, 24)}),
}


FOLDER = tempfile.TemporaryDirectory()


@cache
def laid():
    """A folder with a finished run, two in a folder, and networks without one."""
    folder = Path(FOLDER.name)
    result = {"class_names": list(tiny("train", None).class_names)}
    fields = {"epochs": 1, "batch_size": 20, "seed": 5}
    for name in ("run", "runs/s0", "runs/s1"):
        lay_run(folder / name, result, seen=tiny("train", None).digest(), **fields)
    lay_run(folder / "stopped", **fields)
    lay_run(folder / "of_convnet", result, network=small_network("efficient_convnet"), **fields)
    for name, (model, options) in NETWORKS.items():
        save(small_network(model, **options), folder / f"{name}.safetensors")
    for name in ("a.csv", "a.png"):
        (folder / name).mkdir()
    for name, content in (("x.png", "PK"), ("weights.pt", "PK"), ("thesis/thesis.tex", "years")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return folder


def files():
    return {path: path.stat().st_mtime_ns for path in Path().rglob("*")}


def said(line):
    """The sentence that a line ends in, without digests of weights."""
    words = [*shlex.split(line.replace("TRAIN", "train " + shlex.join(TRAIN)))]
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(SOURCES, tiny=tiny, sign=few_numbers),
        contextlib.chdir(laid()),
        patch("sys.argv", ["torchcaps", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        before = files()
        with pytest.raises(SystemExit) as stop:
            main()
        assert files() == before
    text = err.getvalue()
    assert (stop.value.code, out.getvalue(), text.count("\n")) == (2, "", 1), text
    assert text.startswith("torchcaps: ")
    text = settled(text.removeprefix("torchcaps: ").rstrip())
    return re.sub(r"holds [0-9a-f]{12}", "holds …", text)


@pytest.mark.parametrize(("line", "sentence"), cases_of(ERRORS))
def test_what_is_told(line, sentence):
    assert said(line) == sentence
