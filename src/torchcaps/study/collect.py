"""A record out of finished runs, one a seed: everything is read from their folders.

Each run wrote down whether code was changed, so no later commit makes a record clean.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from torchcaps._json import is_finite
from torchcaps.errors import TorchcapsError, short
from torchcaps.study.record import Record, Seed, make_record
from torchcaps.train import Run
from torchcaps.train.folder.environment import CHANGED
from torchcaps.train.folder.objects import damaged, read_objects
from torchcaps.train.folder.run import VERSIONS

# Options that name folders of one machine: no number depends on them.
FOLDERS = re.compile(r"--(root|out|evidence)(=.*)?")


def record_of_runs(
    folders: Sequence[str | os.PathLike[str]],
    *,
    study: str,
    claims: Sequence[str],
    measured: Mapping[int, Mapping[str, float]] | None = None,
    measured_by: Sequence[str | None] = (),
    failed: Mapping[int, str] | None = None,
    failed_in: Sequence[str | os.PathLike[str]] = (),
    reduced: str | None = None,
    departures: Sequence[str] = (),
    supersedes: str | None = None,
) -> Record:
    """Make the record of runs that differ in nothing but their seed.

    Where code of another commit measured than trained, the record names both.

    Arguments:
        folders: run folders, finished.
        study: the folder below evidence/, such as "gu2021/table4".
        claims: ids of the claims that the runs judge.
        measured: statistics by seed beside the accuracy on test images, which runs know.
        measured_by: the commits that measured, as `environment` writes them.
        failed: how a seed failed, by the seed; it has no run among the folders.
        failed_in: folders of the seeds that failed, which say what was trained where none finished.
        reduced: in words, how the protocol is smaller than the paper's.
        departures: what is done otherwise than in the paper.
        supersedes: the hash of the record that this one replaces.

    >>> record_of_runs(["runs/0", "runs/1"], study="mine", claims=["my-claim"])  # doctest: +SKIP
    """
    runs = sorted((Run(Path(folder)) for folder in folders), key=lambda run: run.recipe.seed)
    begun = runs or [Run(Path(folder)) for folder in failed_in]
    measured = measured or {}
    _check(runs, begun, measured)
    first = begun[0].recipe
    environments = [run.began() for run in begun]
    commits = [*(each for run in begun for each in run.commits()), *measured_by]
    return make_record(
        study=study,
        claims=tuple(claims),
        recipe=first.model_dump(mode="json"),
        recipe_hash=first.digest(),
        data=_images(begun[0]),
        seeds=(
            *(
                Seed(
                    seed=run.recipe.seed,
                    values={"accuracy": run.accuracy, **measured.get(run.recipe.seed, {})},
                    per_epoch=tuple(_numbers(run, row) for row in run.metrics()),
                    wall_seconds=run.seconds,
                )
                for run in runs
            ),
            *(Seed(seed=seed, wall_seconds=0, failed=why) for seed, why in (failed or {}).items()),
        ),
        commit=_one([None if each is None else each.removesuffix(CHANGED) for each in commits]),
        dirty=any(CHANGED in (each or "") for each in commits),
        versions={name: _one([each[name] for each in environments]) or "" for name in VERSIONS},
        device=_one([f"{e['machine']}, {e['threads']} threads" for e in environments]) or "",
        command=_command_of(begun[0], environments[0]["command"]),
        made=datetime.now(UTC),
        reduced=reduced,
        departures=tuple(departures),
        supersedes=supersedes,
    )


def _images(run: Run) -> dict[str, str]:
    """Read the digests of its images by set and split; failed training saw no test images."""
    trained_on, tested_on = run.recipe.data, run.recipe.test_data or run.recipe.data
    if not run.is_done:
        (seen,) = read_objects(run.environment_file, words=("training_images",))
        return {f"{trained_on}/train": seen["training_images"]}
    digests = run.image_digests()
    return {f"{trained_on}/train": digests["train"], f"{tested_on}/test": digests["test"]}


def _command_of(run: Run, command: str) -> str:
    """Say the command that began it, without options that name folders; of a path its name."""
    try:
        words = iter(shlex.split(command))
    except ValueError as error:
        raise damaged(run.environment_file, f"its 'command': {error}") from None
    kept = []
    for word in words:
        option = FOLDERS.fullmatch(word)
        if option is None:
            kept.append(PurePath(word).name if PurePath(word).is_absolute() else word)
        elif option[2] is None:
            next(words, None)
    return shlex.join(kept)


def _check(
    runs: Sequence[Run], begun: Sequence[Run], measured: Mapping[int, Mapping[str, float]]
) -> None:
    """Make sure that runs are finished, but for those that failed, and belong together."""
    if not begun:
        raise TorchcapsError("a record needs at least one run, but came none.")
    waiting = [str(run.folder) for run in runs if not run.is_done]
    if waiting:
        raise TorchcapsError(
            f"{', '.join(waiting)} has no result yet; finish the run with its own line first."
        )
    first = begun[0].recipe
    for run in begun[1:]:
        if run.recipe.model_copy(update={"seed": first.seed}) != first:
            raise TorchcapsError(
                f"{run.folder} has another recipe than {begun[0].folder}; the seeds of one record "
                f"differ in nothing but their seed."
            )
        if runs and run.image_digests() != runs[0].image_digests():
            both = (each.image_digests() for each in (run, runs[0]))
            digests = " and ".join(f"{each['train']}, {each['test']}" for each in both)
            raise TorchcapsError(
                f"{run.folder} was trained or tested on other images than {runs[0].folder} "
                f"(digests {digests}); was --root another folder? Remove the one of the wrong "
                f"images, and the same line trains it anew."
            )
    seeds = sorted(run.recipe.seed for run in runs)
    if not set(measured) <= set(seeds):
        raise TorchcapsError(
            f"values came for seeds {sorted(set(measured) - set(seeds))}, but the runs have "
            f"{seeds}."
        )


def _numbers(run: Run, row: Mapping[str, Any]) -> dict[str, float]:
    """Read a row of an epoch, without the tables of what was measured then."""
    row = {name: value for name, value in row.items() if name != "measured"}
    if wrong := [name for name, value in row.items() if not is_finite(value)]:
        raise damaged(run.metrics_file, f"{short(wrong[0])} is no number")
    return row


def _one(values: Sequence[str | None]) -> str | None:
    """Join what all runs have, or all of it where they differ; None where one has none: a draft."""
    known = {value for value in values if value is not None}
    return None if None in values else ", ".join(sorted(known))
