"""What a study measured of a run, in the file NAME.values.json beside the folder of the run.

The file holds the SHA-256 of all else in it. A file of an earlier version has none, and is as good
as its form and the result of its run show.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from torchcaps._digests import known_digests
from torchcaps._json import read_json
from torchcaps._names import in_words
from torchcaps._paths import write_whole
from torchcaps.errors import TorchcapsError, short
from torchcaps.train.folder.run import Run

COMMIT = re.compile(r"[0-9a-f]{0,64}(\+changes)?")
LOOK = re.compile(r"[a-z][a-z0-9-]*(\+K\d+(,\d+)*)?@.+/(test|validation|train)", re.DOTALL)
# Between which numbers a statistic lies; others are free.
PERCENT, SHARE, COSINE, POSITIVE = (0, 100), (0, 1), (-1, 1), (0, math.inf)
RANGES = {
    **dict.fromkeys(("accuracy", "sparsity", "nearest_centroid"), PERCENT),
    **dict.fromkeys(("car", "car_twice", "cdr", "confidence", "polarisation", "gini"), SHARE),
    **dict.fromkeys(("small_couplings", "even_couplings", "negative_share"), SHARE),
    **dict.fromkeys(("zero_blocks", "zero_votes", "dead_children"), SHARE),
    **dict.fromkeys(("one_part", "one_part_at_most", "one_part_by_chance"), SHARE),
    **dict.fromkeys(("lowest_cosine", "silhouette"), COSINE),
    **dict.fromkeys(("entropy", "entropy_bound", "keys", "change", "nonzero_parameters"), POSITIVE),
    **dict.fromkeys(("cnm", "cns", "cas", "cds", "capsules_alive"), POSITIVE),
    **dict.fromkeys(("dyr", "dys", "coupling_std", "antipodal_share"), POSITIVE),
}
# What rounding adds to a share.
SLACK = 1e-5


class Values(BaseModel):
    """Hold what was measured: numbers by name, by the name of their look."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")

    # The one that measured last, and that of each look.
    commit: str | None
    by: dict[str, str | None] = {}
    looks: dict[str, dict[str, float]]
    # The digest of the network that the first look saw, where its run wrote one down.
    network: str | None = None
    # The digest of what a look saw, where the run has none.
    images: dict[str, str] = {}
    # Why the cell came to no result.
    failed: str | None = None
    stopped: str | None = None

    @field_validator("looks")
    @classmethod
    def _lie_in_their_ranges(cls, looks: dict[str, dict[str, float]]) -> dict[str, Any]:
        for look, numbers in looks.items():
            if not LOOK.fullmatch(look):
                raise ValueError(f"{short(look)} is not the name of a look, as accuracy@mnist/test")
            for name, value in numbers.items():
                low, high = RANGES.get(re.split("[.]|_at_start", name)[0], (-math.inf, math.inf))
                if not low - SLACK <= value <= high + SLACK:
                    ends = f"from {low}" if high == math.inf else f"from {low} to {high}"
                    raise ValueError(f"{short(name)} of {look} must be {ends}, but is {value:g}")
        return looks

    @model_validator(mode="after")
    def _name_commits_and_looks(self) -> "Values":
        for commit in (self.commit, *self.by.values()):
            if commit is not None and not COMMIT.fullmatch(commit):
                raise ValueError(f"{short(commit)} is no commit, as 0a1b2c3d4e5f is")
        for look in (*self.by, *self.images):
            if look not in self.looks:
                raise ValueError(f"{short(look)} has no numbers")
        return self


def values_file(run: Path) -> Path:
    """Say where the values of a run folder lie."""
    run = run if run.name not in ("", "..") else run.resolve()
    return run.with_name(f"{run.name}.values.json")


def read_values(path: Path) -> dict[str, Any]:
    """Read the fields of `Values` from a file; of one that is not there, those of an empty one."""
    if not path.exists():
        return {"commit": None, "looks": {}}
    try:
        values = read_json(path)
        if not isinstance(values, dict):
            raise ValueError(f"a JSON object belongs where {short(values)} is")
        said = values.pop("sha256", None)
        if said is not None and said != (found := _digest(values)):
            raise ValueError(
                f"its SHA-256 begins with {found[:12]}, but the study wrote {short(said)[1:13]}"
            )
        Values.model_validate(values)
    except ValueError as error:
        why = in_words(error) if isinstance(error, ValidationError) else str(error)
        raise _damaged(path, why) from None
    return values


def write_values(path: Path, values: Mapping[str, Any]) -> None:
    """Replace the file by these fields of `Values` and their digest."""
    write_whole(path, json.dumps({**values, "sha256": _digest(values)}, indent=1))


def network_of(run: Run) -> str | None:
    """Read the digest of a run's network; None where there is none, or an earlier version ran."""
    return known_digests(run.folder).get(run.model_file.name, [None])[0]


def values_of(run: Run) -> dict[str, Any]:
    """Read what was measured of a run; network and accuracy must be those of its result."""
    path = values_file(run.folder)
    values = read_values(path)
    if not (values["looks"] and run.is_done):
        return values
    said, found = values.get("network"), network_of(run)
    if said and found and said != found:
        said, found = (short(each)[1:13] for each in (said, found))
        why = f"it was measured of the network {said}, where {run.model_file} is {found}"
        raise _damaged(path, why)
    recipe = run.recipe
    own = f"accuracy@{recipe.test_data or recipe.data}/test"
    measured = values["looks"].get(own, {}).get("accuracy")
    if measured is not None and measured != run.accuracy:
        raise _damaged(path, f"{own} is {measured}, where {run.result_file} has {run.accuracy}")
    return values


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, why: str) -> TorchcapsError:
    return TorchcapsError(
        f"{path} cannot be read ({why}); was it edited? Remove it, and the cell is measured again."
    )
