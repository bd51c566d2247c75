"""A built wheel carries everything that the commands need, and nothing of the court."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Runs outside the repository, on the unpacked wheel alone.
CHECK = """
import pathlib, sys, torchcaps
from torchcaps.report import render
assert pathlib.Path(torchcaps.__file__).is_relative_to(sys.argv[1]), torchcaps.__file__
assert pathlib.Path(torchcaps.__file__).with_name("py.typed").is_file()
assert "Verdict" in render([], title="empty", provenance={})
from torchcaps.train.folder.environment import environment
assert environment()["commit"] is None
import torchcaps as tc
for name in tc.list_models(pretrained=True):
    tc.load(f"zoo:{name}")
    assert pathlib.Path(torchcaps.__file__).with_name("zoo").joinpath(f"{name}.toml").is_file()
assert tc.list_models(pretrained=True)
from torchcaps.cli import main
# Where the tests run, the claims are installed.
import importlib.metadata
importlib.metadata.entry_points = lambda **_: ()
sys.argv = ["torchcaps", "study", "claims"]
try:
    main()
except SystemExit as end:
    assert end.code == 2
print("complete")
"""


@pytest.mark.slow
def test_a_wheel_is_complete(tmp_path):
    built = tmp_path / "built"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if re.search("claims|judges", name)]
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"torchcaps"}
    installed = tmp_path / "installed"
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(installed), str(wheel)],
        check=True,
        capture_output=True,
    )
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(installed)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "complete", done.stderr
    assert done.stderr == (
        "torchcaps: `torchcaps study claims` needs the claims of the papers, an application of its "
        "own in the repository of torchcaps: pip install ./claims in a clone; a study of your own "
        "is a file, my.toml, and needs none of it.\n"
    )
