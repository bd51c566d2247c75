"""Our contestants of this commit beside those of another one, by the same harness.

The other commit's sources are unpacked into a folder that its processes import torchcaps from; the
benchmark's own files are today's. So these use what both commits have: `create_model`, the layer
classes, `use_backend`. Parity is the tests' business here, and no opponent takes part.
"""

import dataclasses
import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import Case
from contestants import CONTESTANTS, Contestant
from harness import Launch, Settings, measure

Result = dict[str, Any]

_NETWORKS = {
    "inverted-simple-train-32": "inverted-simple-infer-128",
    "inverted-resnet-train-32": "inverted-resnet-infer-128",
    **{
        f"{name}-train-128": f"{name}-infer-128"
        for name in ("em", "gamma", "deepcaps", "capsnet", "efficient")
    },
}
# Ten cases: three of the routing alone, seven networks that train and predict.
NAMED = (
    *("dynamic-full", "dynamic-detach", "dynamic-heavy-full"),
    *(name for both in _NETWORKS.items() for name in both),
)
# A step takes seconds and varies little.
ONE_ROUND = ("dynamic-heavy-full",)
# Below so many times the other commit's speed, or above so many times its memory, a case is named.
LEAST_SPEED, MOST_MEMORY = 0.9, 1.1


def named(commit: str) -> str:
    """A commit's own name, for `HEAD~3` is another one tomorrow."""
    return _git("rev-parse", "--short=12", f"{commit}^{{commit}}").decode().strip()


def unpacked(commit: str, folder: Path) -> Path:
    """The folder that PYTHONPATH is to name for the torchcaps of a commit."""
    packed = _git("archive", "--format=tar", commit, "src")
    with tarfile.open(fileobj=io.BytesIO(packed)) as sources:
        sources.extractall(folder, filter="data")
    return folder / "src"


def _git(*words: str) -> bytes:
    root = Path(__file__).parents[1]
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.decode().strip()}")
    return done.stdout


def pairs(commit: str, sources: Path) -> tuple[Contestant, Contestant]:
    """What users get of either commit: this one's, then the other's."""
    ours = CONTESTANTS["ours-by-default"]
    return ours, dataclasses.replace(ours, name=f"{ours.name}@{commit}", sources=str(sources))


def of_ours(settings: Settings) -> Settings:
    """Settings for two contestants of ours, whose parity is the tests' business."""
    return dataclasses.replace(settings, checked=False, rates=False)


def compared(
    case: Case,
    commit: str,
    sources: Path,
    settings: Settings,
    *,
    launch: Launch | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Result:
    """How many times the other commit's speed and memory this one has."""
    rounds = 1 if case.name in ONE_ROUND else settings.rounds
    settings = dataclasses.replace(of_ours(settings), rounds=rounds)
    now, before = measure(
        case, pairs(commit, sources), ["default"], settings, launch=launch, tell=tell
    )
    return _row(case.name, rounds, now, before)


def _row(name: str, rounds: int, now: Result, before: Result) -> Result:
    row: Result = {"case": name, "rounds": rounds, "now": now, "before": before}
    if "ms" not in now or "ms" not in before:
        return row | {"speed": None, "memory": None, "flags": ["failed"]}
    speed, memory = before["ms"] / now["ms"], now["peak_mb"] / before["peak_mb"]
    flags = ["slower"] * (speed < LEAST_SPEED) + ["more memory"] * (memory > MOST_MEMORY)
    return row | {"speed": speed, "memory": memory, "flags": flags}


def report(rows: list[Result]) -> str:
    """What is printed: a line a case, flags at its end."""
    lines = [f"{'case':28}{'ms':>9}{'before':>9}{'speed':>8}{'MB':>8}{'before':>8}{'memory':>8}"]
    for row in rows:
        now, before, name = row["now"], row["before"], row["case"]
        if row["speed"] is None:
            why = " | ".join(each["failure"] for each in (now, before) if "failure" in each)
            lines.append(f"{name:28}{why}")
            continue
        lines.append(
            f"{name:28}{now['ms']:9.1f}{before['ms']:9.1f}{row['speed']:7.2f}×"
            f"{now['peak_mb']:8.0f}{before['peak_mb']:8.0f}{row['memory']:7.2f}×"
            f"  {', '.join(row['flags'])}".rstrip()
        )
    return "\n".join(lines)
