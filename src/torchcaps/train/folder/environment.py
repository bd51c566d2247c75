"""What a number depends on besides its recipe: versions, machine, code, command."""

import logging
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from torchcaps.errors import TorchcapsError, short
from torchcaps.train.folder.objects import damaged
from torchcaps.train.own_code import imported_files

CHANGED = "+changes"


def environment() -> dict[str, Any]:
    """Give what a number depends on besides its recipe."""
    program = Path(sys.argv[0])
    # `python -m torchcaps` runs a file of this name, which nobody typed.
    name = program.parent.name if program.name == "__main__.py" else program.name
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return {
        "torchcaps": version("torchcaps"),
        "commit": commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{gpu}",
        "threads": torch.get_num_threads(),
        "command": shlex.join([name, *sys.argv[1:]]),
        **({"imported": files} if (files := imported_files()) else {}),
    }


def check_imported(folder: Path, began: Mapping[str, Any]) -> None:
    """Refuse a run, begun with code that is not imported here; tell which files changed since."""
    files = began.get("imported", [])
    files = files if isinstance(files, list) else [files]
    imported = {Path(one["path"]).stem: one for one in imported_files()}
    for each in files:
        if not isinstance(each, Mapping) or not {"path", "sha256"} <= set(each):
            raise damaged(
                folder / "environment.json",
                f"'imported' should hold a path and a sha256 a file, where {short(each)} is",
            )
        path, digest = Path(str(each["path"])), str(each["sha256"])
        if any(one["sha256"] == digest for one in imported.values()):
            # Renamed since, perhaps.
            continue
        here = imported.get(path.stem)
        if here is None and path.stem not in sys.modules:
            # A file of the run that is here is none that was renamed.
            others = [one["path"] for one in imported.values() if one["sha256"] not in str(files)]
            names = " or ".join(Path(other).name for other in others)
            renamed = f"; if {names} is that file, changed since, name it {path.name} again"
            raise TorchcapsError(
                f"{folder} was trained with code of your own, {path.name}, which a run does not "
                f"carry; add --import {path.name} to the command, or import it first in "
                f"Python{renamed if others else ''}."
            )
        if here is not None and here["sha256"] != digest:
            logging.getLogger("torchcaps").warning(
                "%s was begun with another version of %s (SHA-256 %s…, now %s…)",
                folder,
                path.name,
                digest[:12],
                here["sha256"][:12],
            )


def commit() -> str | None:
    """Give the commit of the code that this process runs, "+changes" when it has some; None for an
    installed package.

    Code is read once, and the tree may go on to other commits while a study runs. So it is the
    commit of the first call, and changes that were there then, or are there now, count.
    """
    first, now = _first_commit(), _commit_of(Path(__file__).parents[2])
    if first is None or now is None:
        return None
    has_changes = any(each.endswith(CHANGED) for each in (first, now))
    return first.removesuffix(CHANGED) + (CHANGED if has_changes else "")


@cache
def _first_commit() -> str | None:
    return _commit_of(Path(__file__).parents[2])


def _commit_of(source: Path) -> str | None:
    """Give what the tree of a package is at now."""

    def git(*asked: str) -> subprocess.CompletedProcess[str]:
        # A process that is killed must leave no lock in somebody's repository.
        command = ["git", "--no-optional-locks", "-C", str(source), *asked]
        return subprocess.run(command, capture_output=True, text=True, timeout=10)

    try:
        # An installed package may lie inside somebody else's repository.
        if git("ls-files", "--error-unmatch", "__init__.py").returncode:
            return None
        head = git("rev-parse", "--short=12", "HEAD")
        changes = git("status", "--porcelain", "--", ".")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() + (CHANGED if changes.stdout.strip() else "")
