"""What importing costs, what may not be imported, what is cited, and what is said when it lacks."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
NOT_AT_ONCE = ("matplotlib", "lightning", "pydantic", "scipy", "typer", "rich", "jinja2")

TIMED = f"""
import json, sys, time
import torch
before, started = set(sys.modules), time.perf_counter()
import torchcaps
seconds = time.perf_counter() - started
new = set(sys.modules) - before
heavy = sorted(name for name in {NOT_AT_ONCE!r} if name in new)
print(json.dumps([seconds, heavy, sorted(n for n in new if n.startswith("torchcaps."))]))
"""

# Every command in one process: each ends as a user would see it.
BLOCKED = """
import contextlib, io, json, sys

blocked, *lines = sys.argv[1:]

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked.split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from torchcaps.cli import main

found = []
for line in lines:
    sys.argv = ["torchcaps", *line.split()]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    found.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


def run(code, *arguments, folder=None):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_is_quick_and_loads_nothing_heavy():
    for _ in range(3):
        seconds, heavy, own = run(TIMED)
        assert heavy == []
        # torch alone: neither the networks nor the data are there before somebody asks.
        assert set(own) <= {"torchcaps._lazy", "torchcaps.errors", "torchcaps.types"}
        # Again where the machine was busy.
        if seconds < 0.3:
            break
    assert seconds < 0.3


@pytest.mark.parametrize("missing", ["lightning", "matplotlib"])
def test_a_missing_extra_is_one_sentence(missing, tmp_path):
    lines = ["demo", "dissect nothing"]
    if missing == "lightning":  # pictures are not needed to train
        lines.append("train --model mitterreiter_5x16 --data part-whole --out run")
        lines.append("models")
    stopped = run(BLOCKED, missing, *lines, folder=tmp_path)
    if missing == "lightning":
        code, listed, talk = stopped.pop()
        assert (code, talk) == (0, "")
        assert "capsnet  1×28×28, 10 classes, 8,215,568 parameters" in listed
    sentence = re.compile(
        rf"torchcaps: torchcaps\.\w+ needs {missing}, which comes with the "
        r"extra \[(train|study)\]: pip install 'torchcaps\[\1\]'\.\n"
    )
    for code, out, err in stopped:
        assert code == 2
        assert out == ""
        assert sentence.fullmatch(err), err
    assert not any(tmp_path.iterdir())


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_the_library_imports_neither_torchvision_nor_the_laboratory():
    banned = {"torchvision", "studies", "benchmarks", "tests", "reference", "conftest"}
    assert SOURCES
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in imported(path)
        if name.split(".")[0] in banned
    ]
    assert found == []


def test_torchmetrics_waits_for_the_function_that_needs_it():
    # It loads torchvision, scipy and others, wherever they are installed.
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            named = [getattr(node, "module", None), *(x.name for x in getattr(node, "names", ()))]
            assert not any(str(name).startswith("torchmetrics") for name in named), path


def test_no_postponed_annotations():
    assert [path for path in SOURCES if "__future__" in imported(path)] == []


# Not ids of claims, which begin alike.
CITED = re.compile(r"\b([a-z]{2,}(?:19|20)\d\d[a-z]?)\b(?!-)")
ENTRY = re.compile(r"^@(\w+)\{(\w+),\n(.*?)^\}", re.M | re.S)


def cited(path):
    """Keys in the strings of a file: docstrings, and the sources of the registry."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from CITED.findall(node.value)


def test_every_cited_key_has_an_entry_and_every_entry_a_citation():
    text = (ROOT / "src" / "torchcaps" / "study" / "references.bib").read_text(encoding="utf-8")
    entries = {key: fields for _, key, fields in ENTRY.findall(text)}
    assert len(entries) == f"\n{text}".count("\n@") == len(ENTRY.findall(text))
    keys = {key for path in SOURCES for key in cited(path)}
    assert {"sabour2017", "mazzia2021"} <= keys
    # Those of data sets and optimisers are cited by what `torchcaps paper` writes.
    used = {key for key, fields in entries.items() if "\n  keywords" in fields}
    assert keys <= set(entries) <= keys | used
    for key, fields in entries.items():
        entry = dict(re.findall(r"^  (\w+)\s*= \{(.*?)\},\n", fields, re.M | re.S))
        assert {"author", "title", "year"} <= entry.keys()
        assert re.sub(r"\D", "", key) == entry["year"]
        assert entry["author"].split(",")[0].lower() == re.sub(r"\d.*", "", key)


def test_docstrings_hold_no_broken_quotes():
    """A wrapped literal inside a docstring leaves its quotes behind."""
    broken = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r'^\s*"[^"]+"""$', line)
    ]
    assert broken == []
