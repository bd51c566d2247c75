"""docs/own-pictures.md runs as it stands, on pictures of all sizes."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from cli.command_line import COMMAND
from pages import DOCS, blocks_of

PAGE = DOCS / "own-pictures.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Cats are bright, dogs are dark; sizes, modes and kinds are mixed."""
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    for name, level in (("cat", 190), ("dog", 60)):
        (home / "pictures" / name).mkdir(parents=True)
        for k in range(30):
            height, width = rng.integers(20, 120, 2)
            noise = rng.integers(-40, 40, (height, width, 3)) + level
            picture = Image.fromarray(noise.astype(np.uint8))
            mode, ending = [("RGB", "jpg"), ("L", "png"), ("RGBA", "png"), ("P", "bmp")][k % 4]
            picture.convert(mode).save(home / "pictures" / name / f"{k}.{ending}")
    picture.save(home / "new.jpg")
    return home


def run(words, folder):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_commands_run_in_their_order(folder):
    (script,) = blocks_of(PAGE, "sh")
    lines = script.replace("\\\n", " ").splitlines()
    assert [line.split()[1] for line in lines] == ["train", "eval", "predict", "dissect"]
    printed = [run([COMMAND, *line.split()[1:]], folder) for line in lines]
    assert (folder / "pets.csv").read_text().count("\n") == 13
    assert "dog" in printed[2]
    assert (folder / "pets.html").stat().st_size > 10_000


FROM_FOLDER, FROM_ARRAYS = blocks_of(PAGE)


@pytest.mark.slow
@pytest.mark.parametrize("script", [FROM_FOLDER, FROM_ARRAYS], ids=["folder", "arrays"])
def test_the_same_in_python(folder, script):
    assert 0 <= float(run([sys.executable, "-c", script], folder).split()[0]) <= 1
