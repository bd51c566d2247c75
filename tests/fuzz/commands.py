"""Odd words for every command: it ends with exit code 0, 2 or 130, and never with a traceback."""

import hashlib
import io
import json
import random
import sys
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

from typer.main import get_command

from fuzz.bench import Bench
from fuzz.mutate import odd_value
from fuzz.trial import Wrong, check_sentence, in_time, quiet
from study_line import in_this_process
from torchcaps.cli import main
from torchcaps.cli.application import app
from torchcaps.data import PUBLISHED
from torchcaps.data.registry import PublishedSet, RemoteFile
from torchcaps.study import pool

TOLD = tomllib.loads(Path(__file__).with_name("commands.toml").read_text(encoding="utf-8"))
ARGUMENTS, GOOD = TOLD["arguments"], TOLD["good"]
# Of other machines, of which the bench has none.
ELSEWHERE = {"--on", "--device"}


def _commands(group: Any, before: str = "") -> dict[str, Any]:
    """Every command by its words, as `data get`."""
    found = {}
    for name in group.list_commands(None):
        each = group.get_command(None, name)
        words = f"{before}{name}"
        found |= _commands(each, f"{words} ") if hasattr(each, "commands") else {words: each}
    return found


KNOWN = _commands(get_command(app))
_OPTIONS = {
    name: [each for each in KNOWN[name].params if each.param_type_name == "option"]
    for name in ARGUMENTS
}
COMMANDS = {
    name: (ARGUMENTS[name], [each.opts[0] for each in options if each.opts[0] not in ELSEWHERE])
    for name, options in _OPTIONS.items()
}
FLAGS = {each.opts[0] for options in _OPTIONS.values() for each in options if each.is_flag}
# It comes from a server that is not there, unless it lies in the folder of the bench.
EMPTY = hashlib.sha256(b"").hexdigest()
FILE = RemoteFile("empty.bin", 0, EMPTY, ("http://127.0.0.1:9/empty.bin",))
NEAR = PublishedSet("bytes", "free", "here", (FILE,))


def draw_command(draw: random.Random, bench: Bench) -> list[str]:
    """Some command with a few options, of which most values are odd."""
    name = draw.choice(list(COMMANDS))
    arguments, options = COMMANDS[name]
    words = name.split()
    if arguments and draw.random() < 0.9:
        words.append(_argument(draw, draw.choice(arguments), bench))
    for option in draw.sample(options, k=min(len(options), draw.randint(0, 4))):
        words += [option] if option in FLAGS else [option, _argument(draw, option, bench)]
    # What trains has to stop soon, and what writes needs a place.
    if name == "prune":
        words += ["--out", str(bench.folder / f"out{draw.randrange(3)}"), "--time-budget", "1s"]
    if name == "crossval":
        words += ["--data", "folder", "--out", str(bench.folder / "folds"), "--dry-run"]
    if name == "study run":
        words += ["--time-budget", "1s"]
    if name == "train":
        words += ["--model", draw.choice(GOOD["--model"]), "--data", draw.choice(GOOD["--data"])]
        words += ["--out", str(bench.folder / f"out{draw.randrange(3)}"), "--time-budget", "1s"]
    return words


def _argument(draw: random.Random, what: str, bench: Bench) -> str:
    good = [each.replace("{bench}", str(bench.folder)) for each in GOOD.get(what, [])]
    if draw.random() < 0.4 and good:
        return draw.choice(good)
    if what in ("--set", "--option"):
        return f"{draw.choice(['epochs', 'kernel', 'lr', 'x', ''])}={_text(odd_value(draw))}"
    if not what.startswith("--") and what.islower() and draw.random() < 0.5:
        return what
    return _text(odd_value(draw))


def _text(value: Any) -> str:
    """No argument of a program holds the character zero."""
    try:
        text = value if isinstance(value, str) else json.dumps(value)
    except ValueError:
        text = "9" * 5000
    return text.replace("\0", "")


def check_command(words: list[str]) -> str:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["torchcaps", *words]),
        mock.patch.object(pool, "here", in_this_process),
        mock.patch.dict(PUBLISHED, mnist=NEAR),
        quiet(out, err),
        in_time(),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    if code == 0:
        return "accepted"
    text = err.getvalue()
    if code not in (2, 130) or "Traceback" in text:
        raise Wrong(f"exit code {code}: {text[:300]!r}")
    said = text.strip().splitlines()[-1:]
    check_sentence(said[0] if said else "")
    return "refused"
