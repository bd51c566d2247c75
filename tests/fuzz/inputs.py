"""Bad files for every reader.

A file is taken as it should be, changed, and read: what comes must be a sentence, or, where a file
carries a digest, what was there before.
"""

import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fuzz.bench import Bench
from fuzz.mutate import mutated
from fuzz.trial import Wrong, check_sentence, in_time
from torchcaps import TorchcapsError, load
from torchcaps.data import from_npz, image_folder, mnist, smallnorb
from torchcaps.data.idx import read_idx
from torchcaps.data.mat import read_mat
from torchcaps.study import compare, read_record
from torchcaps.study.measured import values_file
from torchcaps.study.runner import Ledger, study_of
from torchcaps.tasks.check_run import check_run
from torchcaps.train import Run, read_recipe
from torchcaps.train.state import state_of

__all__ = ["Target", "check_file", "targets"]


class Target(NamedTuple):
    """A file and who reads it; `same` says whether what was read is what was there before."""

    name: str
    path: Path
    read: Callable[[], Any]
    same: Callable[[Any], bool] = lambda found: True


def targets(bench: Bench) -> list[Target]:
    run, folder = bench.run, bench.folder
    found = [
        Target("recipe.toml", bench.recipe, lambda: read_recipe(bench.recipe)),
        Target(
            "saved network",
            bench.network,
            lambda: load(bench.network).state_dict(),
            _equal_to(load(bench.network).state_dict()),
        ),
        Target("npz", folder / "set.npz", lambda: from_npz(folder / "set.npz")),
    ]
    for name, read in _readers_of(run).items():
        path = getattr(run, name) if hasattr(run, name) else run.folder / "digests.json"
        before = read()
        found.append(Target(f"run: {path.name}", path, read, _equal_to(before)))
        found.append(Target(f"check: {path.name}", path, lambda: check_run(run.folder)))
    found += _of_results(bench)
    for path in sorted((folder / "mnist").iterdir()):
        split = "train" if path.name.startswith("train") else "test"
        found.append(Target(path.name, path, lambda split=split: mnist(folder / "mnist", split)))
    for path in sorted((folder / "norb").iterdir()):
        found.append(Target(path.name, path, lambda: smallnorb(folder / "norb", "train")))
    for path in sorted((folder / "pictures").glob("*/*")):
        read = lambda: image_folder(folder / "pictures", size=(5, 5))  # noqa: E731
        found.append(Target(f"picture {path.suffix}", path, read))
    plain = folder / "mnist" / "t10k-labels-idx1-ubyte"
    found.append(Target("idx", plain, lambda: read_idx(plain, axes=1)))
    found.append(Target("as mat", plain, lambda: read_mat(plain, ("X", "y"))))
    return found


def _of_results(bench: Bench) -> list[Target]:
    old, record = bench.old, bench.record
    side_by_side = lambda: compare([old.folder]).text()  # noqa: E731
    read = [
        (old.recipe_file, side_by_side),
        (old.metrics_file, side_by_side),
        (old.result_file, side_by_side),
        (values_file(old.folder), side_by_side),
        (bench.folder / "old.claim", lambda: Ledger(bench.folder).claimed_by(1, "here")),
        (bench.study, lambda: study_of(str(bench.study)).cells()),
        (record, lambda: _read_under_its_digest(record)),
    ]
    whole = Target("record", record, lambda: read_record(record), _equal_to(read_record(record)))
    return [whole, *(Target(f"results: {path.name}", path, reader) for path, reader in read)]


def _read_under_its_digest(path: Path) -> None:
    """A changed record whose name was changed too, so that its digest is right."""
    if not path.is_file():
        # A folder or a pipe in its place has no content to be named after.
        read_record(path)
    content = path.read_bytes()
    named = path.with_name(f"{hashlib.sha256(content).hexdigest()[:12]}.json")
    before = named.exists()
    named.write_bytes(content)
    try:
        read_record(named)
    finally:
        if not before:
            named.unlink()


def _readers_of(run: Run) -> dict[str, Callable[[], Any]]:
    """By the file that each reads first."""
    recipe = run.recipe
    return {
        "recipe_file": lambda: run.recipe,
        "environment_file": run.began,
        "metrics_file": run.metrics,
        "result_file": run.result,
        "model_file": lambda: load(run.model_file).state_dict(),
        "state_file": lambda: state_of(run, recipe) and run.state_file.read_bytes(),
        "digests": lambda: run.result(),
    }


def _equal_to(before: Any) -> Callable[[Any], bool]:
    if isinstance(before, dict) and any(isinstance(x, torch.Tensor) for x in before.values()):
        return lambda found: (
            list(found) == list(before)
            and all(torch.equal(found[key], before[key]) for key in before)
        )
    return lambda found: bool(found == before)


def check_file(target: Target, draw: random.Random) -> str:
    """ "refused" in a sentence, or "accepted"; what is wrong is an error of its own."""
    good = target.path.read_bytes()
    bad = None if draw.random() < 0.05 else mutated(good, draw)
    try:
        if bad is None:
            target.path.unlink()
            # A pipe waits for whoever reads it.
            draw.choice([os.mkdir, os.mkfifo])(target.path)
        else:
            target.path.write_bytes(bad)
        with in_time():
            found = target.read()
    except TorchcapsError as error:
        check_sentence(str(error))
        return "refused"
    finally:
        if bad is None:
            (target.path.rmdir if target.path.is_dir() else target.path.unlink)()
        target.path.write_bytes(good)
    if bad != good and not target.same(found):
        raise Wrong(f"{target.name}: something else than before came out of a changed file")
    return "accepted"
