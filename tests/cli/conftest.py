"""The command line in this process, and runs for it to look at."""

import sys

import numpy as np
import pytest
from PIL import Image

from cli.command_line import TRAIN, tiny
from laid_runs import few_numbers, lay_run
from torchcaps.cli import main
from torchcaps.data import SOURCES


@pytest.fixture(autouse=True, scope="module")
def _tiny():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "tiny", tiny)
        patch.setitem(SOURCES, "sign", few_numbers)
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A finished run, made by the command line."""
    out = tmp_path_factory.mktemp("cli") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "tiny", tiny)
        patch.setattr(sys, "argv", ["torchcaps", "train", *TRAIN, "--out", str(out)])
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code
    return out


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """The files of a finished run, laid down without training."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return lay_run(folder, {"class_names": tiny("train", None).class_names}, seed=3).folder


@pytest.fixture
def picture(tmp_path):
    pixels = np.arange(576, dtype=np.uint8).reshape(24, 24)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    return tmp_path / "x.png"
