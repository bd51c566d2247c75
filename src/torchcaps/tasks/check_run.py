"""Is every file of a run whole and of one piece, and what can be saved if not?"""

import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torchcaps._digests import NAME, check_digest, formats_alone, known_digests
from torchcaps._paths import path_of
from torchcaps.errors import TorchcapsError, short
from torchcaps.models.files.saving import check_whole
from torchcaps.tasks.tables import in_columns
from torchcaps.tasks.trained import check_is_run
from torchcaps.tasks.values_file import read_values, values_file, values_of
from torchcaps.train.folder.run import Run
from torchcaps.train.folder.state import PARTS, read_state, state_of

# What follows without a file, where the other files are whole.
MENDS = {
    "recipe.json": "the command that began the run writes the recipe again in a new folder; move "
    "the other files there",
    "environment.json": "the command that began the run writes it anew",
    "metrics.jsonl": "training goes on, and the rows of past epochs are lost",
    "state.ckpt": "a finished network stays usable, an unfinished run begins anew",
    "best.safetensors": "a finished run needs it no longer; of an unfinished one remove state.ckpt "
    "too, and it begins anew",
    "model.safetensors": "the command that began the run writes it again from state.ckpt",
    "result.json": "the command that began the run writes it again",
    NAME: "no file can be compared with what the run wrote, and each is as good as its format "
    "shows",
}
# The same of the file beside the run.
MEND_VALUES = "the study measures the run again"


@dataclass(frozen=True)
class CheckedFile:
    """One file of a run: "whole", "damaged" or "missing", and why."""

    name: str
    state: Literal["whole", "damaged", "missing"]
    why: str = ""


@dataclass(frozen=True)
class CheckedRun:
    """Every file that the run wrote down, and what to do about those that are not whole."""

    folder: Path
    files: tuple[CheckedFile, ...]

    @property
    def is_whole(self) -> bool:
        return all(file.state == "whole" for file in self.files)

    def numbers(self) -> dict[str, Any]:
        """Give it as JSON can hold it."""
        files = [asdict(file) for file in self.files]
        return {"run": str(self.folder), "whole": self.is_whole, "files": files}

    def text(self) -> str:
        lines = in_columns((file.name, file.state) for file in self.files)
        for file in self.files:
            if file.state != "whole":
                remove = "remove it; " if file.state == "damaged" else ""
                mend = MENDS.get(file.name, MEND_VALUES)
                lines.append(f"{file.name} is {file.state}: {remove}{mend}.")
                lines.extend([f"    {file.why}"] if file.why else [])
        return "\n".join(lines)


def check_run(folder: str | os.PathLike[str]) -> CheckedRun:
    """Read every file of a run, and what a study measured of it; nothing is changed, and no code of
    one's own is needed.

    Arguments:
        folder: a run, finished or not.

    >>> check_run(Path("my-run")).is_whole  # doctest: +SKIP
    True
    """
    folder = path_of("folder", folder)
    run = Run(folder)
    if not folder.is_dir() or not any((folder / name).exists() for name in MENDS):
        if folder.is_dir() and any(Run(each).recipe_file.is_file() for each in folder.iterdir()):
            check_is_run(folder)
        raise TorchcapsError(f"{folder} holds no run; name the folder that was given as --out.")
    # The files that have a digest, where somebody can read them.
    digested: set[str] | None = None
    with suppress(TorchcapsError):
        digested = set(known_digests(folder))
    checks: dict[str, Callable[[], object]] = {
        run.recipe_file.name: lambda: run.recipe,
        run.environment_file.name: run.began,
        run.metrics_file.name: run.metrics,
        run.state_file.name: lambda: _check_state(run),
        run.best_file.name: lambda: check_whole(run.best_file),
        run.model_file.name: lambda: check_whole(run.model_file),
        run.result_file.name: run.result,
    }
    # A run has a recipe, and one with a result had its network before.
    written = {run.recipe_file.name, *(digested or ())}
    if run.result_file.exists():
        written.add(run.model_file.name)
    files = [_checked(folder / NAME, lambda: _check_names(folder), set(), _is_of_digests(run))]
    with formats_alone() if digested is None else nullcontext():
        for name, check in checks.items():
            files.append(_checked(folder / name, check, digested or set(), name in written))
    files.append(_checked(values_file(folder), lambda: _check_values(run), set(), False))
    return CheckedRun(folder, tuple(file for file in files if file is not None))


def _is_of_digests(run: Run) -> bool:
    """Say whether the version that began it wrote digests, as those do which say this."""
    try:
        return run.environment_file.is_file() and "keeps_memory" in run.about()
    except (TorchcapsError, OSError):
        return False


def _check_state(run: Run) -> None:
    """Check that a state is one of the recipe, where that can be read."""
    try:
        recipe = run.recipe
    except TorchcapsError:
        read_state(run.state_file, needs=PARTS)
    else:
        state_of(run, recipe)


def _check_names(folder: Path) -> None:
    """Refuse a strange name: a file that lost its name there would be compared with nothing."""
    strange = [name for name in known_digests(folder) if name not in MENDS]
    if strange:
        raise TorchcapsError(
            f"{folder / NAME} names {short(strange[0])}, which no run writes; was the name of a "
            f"file changed there, or did a later torchcaps write it?"
        )


def _check_values(run: Run) -> None:
    """Check the values of a study against the run, where its own files are whole."""
    read_values(values_file(run.folder))
    try:
        run.recipe, run.result()
    except (TorchcapsError, OSError):
        return
    values_of(run)


def _checked(
    path: Path, check: Callable[[], object], digested: set[str], was_written: bool
) -> CheckedFile | None:
    """Look at one file; None for a file that the run did not come to write."""
    if not path.exists():
        return CheckedFile(path.name, "missing") if was_written else None
    try:
        if not path.is_file():
            raise TorchcapsError("it is a folder or a device.")
        check_digest(path)
        # What the run wrote is whole, whether or not the code is here that reads it.
        if path.name not in digested:
            check()
    except (TorchcapsError, OSError) as error:
        return CheckedFile(path.name, "damaged", str(error))
    return CheckedFile(path.name, "whole")
