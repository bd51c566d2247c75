"""The state of a run: whole, and of its recipe, before anything is taken out of it."""

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from torchcaps._digests import check_digest
from torchcaps._paths import make_new
from torchcaps.errors import TorchcapsError
from torchcaps.train.folder.recipe_file import AS_BEFORE
from torchcaps.train.folder.run import Run
from torchcaps.train.recipe import Recipe, make_recipe

# Where a state says of which recipe it is.
RECIPE = "torchcaps_recipe"
# Where torch says to how many bytes tensors are aligned in an archive.
ALIGNMENT = ".storage_alignment"
# What Lightning goes on from: it takes a state that lacks some of it, and trains other weights.
PARTS = ("epoch", "global_step", "state_dict", "loops", "callbacks", "optimizer_states", RECIPE)


def state_of(run: Run, recipe: Recipe) -> Path | None:
    """Give the file to go on from, or None where the run begins."""
    path = run.state_file
    if not path.exists():
        if run.is_done:
            raise TorchcapsError(
                f"{run.folder} is finished, but has no {path.name}, so more epochs would begin "
                f"anew and lose its result (a run masked at its end never has one); choose another "
                f"folder, or remove {run.result_file.name} to begin anew."
            )
        return None
    state = read_state(path, needs=PARTS)
    _check_recipe(path, state, recipe)
    return path


def write_state(state: dict[str, Any], path: Path) -> None:
    """Write a state whole to a new file, or leave none and say which could not be written."""
    make_new(path)
    try:
        with path.open("wb") as file:
            torch.save(state, file)
    except BaseException as error:
        path.unlink(missing_ok=True)
        # Where a disk is full, torch raises an error of its own that does not say so.
        why = error if isinstance(error, OSError) else error.__context__
        if isinstance(why, OSError):
            raise OSError(why.errno, why.strerror, str(path)) from None
        raise


def read_state(path: Path, *, needs: tuple[str, ...], device: str = "meta") -> dict[str, Any]:
    """Read what a state holds, if the file is whole and has these parts."""
    if not path.is_file():
        raise TorchcapsError(
            f"{path} should be a file, but is a folder or a device; remove it, and the run begins "
            f"anew."
        )
    try:
        check_digest(path)
        return _read(path, needs, device)
    except OSError as error:
        raise TorchcapsError(
            f"{path} could not be opened ({error.strerror}), which says nothing of what is in it; "
            f"is it yours, and is the disk well?"
        ) from None
    except TorchcapsError:
        raise
    except Exception as error:
        # A garbled pickle makes torch raise errors of any kind.
        reason = (str(error) or type(error).__name__).splitlines()[0][:100]
        raise TorchcapsError(
            f"{path} cannot be read ({reason}); it is damaged: remove it, and the run begins anew."
        ) from None


def _read(path: Path, needs: tuple[str, ...], device: str) -> dict[str, Any]:
    # torch itself reads on where a checksum of the archive does not fit.
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            _check_sizes(archive, path.stat().st_size)
            broken = archive.testzip()
            if broken is not None:
                raise pickle.UnpicklingError(f"the checksum of {broken} does not fit")
            _check_alignment(archive)
    state = torch.load(path, weights_only=True, map_location=device)
    lacking = [part for part in needs if not isinstance(state, dict) or part not in state]
    if lacking:
        raise pickle.UnpicklingError(f"it holds no {lacking[0]!r}")
    return dict(state)


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse an archive that takes more memory than its file has bytes, as bombs do."""
    members = archive.infolist()
    if any(each.compress_type != zipfile.ZIP_STORED for each in members):
        raise pickle.UnpicklingError("it is compressed, and torch compresses nothing")
    if sum(each.file_size for each in members) > size:
        raise pickle.UnpicklingError("its parts have more bytes than the file")


def _check_alignment(archive: zipfile.ZipFile) -> None:
    """Refuse an alignment of 0, by which torch would divide, which ends the process."""
    for name in archive.namelist():
        if name.endswith(ALIGNMENT):
            text = archive.read(name)[:20]
            if not text.isdigit() or int(text) == 0:
                raise pickle.UnpicklingError(f"{name} holds {text!r}, which is no number of bytes")


def _check_recipe(path: Path, state: dict[str, Any], recipe: Recipe) -> None:
    """Refuse the state of another recipe, but for one that goes on as this began."""
    try:
        there = make_recipe(**{**AS_BEFORE, **json.loads(state[RECIPE])})
    except (ValueError, TypeError, RecursionError) as error:
        raise TorchcapsError(
            f"{path} does not say of which recipe it is ({error}); remove it, and the run begins "
            f"anew."
        ) from None
    changed = recipe.unlike(there)
    if changed and not recipe.goes_on_from(there):
        raise TorchcapsError(
            f"{path} is the state of another recipe ({changed}); was recipe.json edited? Put it "
            f"back, or train the new recipe in a folder of its own."
        )
