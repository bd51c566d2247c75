"""Records of what was run: one file a system, with all of its seeds, written once and never edited.

A record lies at `evidence/<study>/<hash>.json`, where the hash is that of its own content, so an
edited file gives itself away. Who measures again writes another record that names the one it
supersedes. A record of changed code is a draft: it is kept, and no table shows it.
"""

import hashlib
import json
import math
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from torchcaps._json import parsed, read_text
from torchcaps._names import in_words
from torchcaps._paths import path_of, write_whole
from torchcaps.errors import TorchcapsError, short

# Raised when a field is added, removed or means something else.
SCHEMA = 1
STUDY = re.compile(r"[a-z0-9][a-z0-9_-]*(?:/[a-z0-9][a-z0-9_-]*)*")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Seed(_Frozen):
    """What one seed gave. A seed that failed says how, and stays in the record."""

    seed: int = Field(ge=0, lt=2**32)
    values: dict[str, float] = {}
    # One row an epoch: {"epoch": 1, "accuracy": …}.
    per_epoch: tuple[dict[str, float], ...] = ()
    wall_seconds: float = Field(ge=0)
    failed: str | None = None

    @model_validator(mode="after")
    def _values_or_a_reason(self) -> Self:
        if bool(self.values) == (self.failed is not None):
            raise ValueError("a seed has values, or says in `failed` why it has none")
        return self


class Record(_Frozen):
    """One system of a study: a recipe, all its seeds, and everything that a number depends on."""

    schema_version: Literal[1] = 1
    study: str
    # Those that it judges; none in a study of one's own.
    claims: tuple[str, ...]
    # The recipe of the first seed, resolved, and its digest; only `seed` differs in the others.
    recipe: dict[str, Any]
    recipe_hash: str = Field(min_length=1)
    # Digest of the images by the name of their set and split, "mnist/train".
    data: dict[str, str] = Field(min_length=1)
    seeds: tuple[Seed, ...] = Field(min_length=1)
    commit: str | None
    dirty: bool
    versions: dict[str, str]
    device: str
    command: str
    made: datetime
    # How a shrunk protocol is smaller; None for the paper's own.
    reduced: str | None = None
    departures: tuple[str, ...] = ()
    # The hash of the record that this one replaces.
    supersedes: str | None = None

    @field_validator("study")
    @classmethod
    def _is_a_folder_name(cls, study: str) -> str:
        if not STUDY.fullmatch(study):
            raise ValueError(
                f"study must be lower-case words with slashes between, gu2021/table4, not {study!r}"
            )
        return study

    @field_validator("recipe")
    @classmethod
    def _names_its_network(cls, recipe: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(recipe.get("model", ""), str):
            raise ValueError(f"recipe must name its model, not {short(recipe['model'])}")
        if not isinstance(recipe.get("options", {}), dict):
            raise ValueError(f"options of a recipe must be a table, not {short(recipe['options'])}")
        return recipe

    @field_validator("made")
    @classmethod
    def _knows_its_zone(cls, made: datetime) -> datetime:
        if made.tzinfo is None:
            raise ValueError("made must name its time zone; datetime.now(UTC) does")
        return made

    @model_validator(mode="after")
    def _every_seed_once(self) -> Self:
        seeds = [each.seed for each in self.seeds]
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"every seed may be there once, but seeds are {seeds}")
        return self

    @property
    def wall_seconds(self) -> float:
        """Sum the seconds of all seeds."""
        return math.fsum(each.wall_seconds for each in self.seeds)

    @property
    def failed(self) -> int:
        """Count the seeds that failed."""
        return sum(each.failed is not None for each in self.seeds)

    @property
    def measured(self) -> int:
        """Count the seeds that did not."""
        return len(self.seeds) - self.failed

    @property
    def is_draft(self) -> bool:
        """Whether the code that made it is no commit; drafts are shown in no table."""
        return self.dirty or self.commit is None

    def values(self, statistic: str) -> list[float]:
        """List one value a seed, of the seeds that did not fail."""
        known = {name for each in self.seeds for name in each.values}
        if known and statistic not in known:
            raise TorchcapsError(
                f"the record of {self.study} has no {statistic!r}; it has "
                f"{', '.join(sorted(known))}."
            )
        return [each.values[statistic] for each in self.seeds if statistic in each.values]

    def text(self) -> str:
        """Write the file's text: fields in order, keys of tables sorted."""
        fields = self.model_dump(mode="json")
        fields["recipe"] = dict(sorted(fields["recipe"].items()))
        return json.dumps(fields, indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    def digest(self) -> str:
        """Give twelve characters that change when anything in the record does."""
        return _digest(self.text())


def make_record(**fields: Any) -> Record:
    """Make a record of its fields, or say everything wrong with them in one sentence.

    Arguments:
        fields: those of `Record`.

    >>> make_record(**json.loads(text))
    """
    try:
        return Record(**fields)
    except ValidationError as error:
        raise TorchcapsError(f"the record does not hold: {in_words(error)}.") from None


def write_record(record: Record, root: str | os.PathLike[str] = "evidence") -> Path:
    """Write a record to its place, and return the path. The same record again changes nothing.

    A record that supersedes another needs that one beside it, in the same study.

    Arguments:
        record: what was found.
        root: the folder of records.

    >>> write_record(record)
    """
    folder = Path(root) / record.study
    path = folder / f"{record.digest()}.json"
    if record.supersedes is not None:
        _check_link(record, folder)
    if path.exists():
        read_record(path)
        return path
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, record.text())
    return path


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a record, as it was written.

    Arguments:
        path: the file of one record.

    >>> read_record("evidence/peer2022/1.json")  # doctest: +SKIP
    """
    path = path_of("path", path)
    if not path.is_file():
        raise TorchcapsError(f"there is no record at {path}.")
    try:
        text = read_text(path)
        content = parsed(text)
    except ValueError as error:
        raise TorchcapsError(
            f"{path} is no record: it cannot be read as JSON ({error}); was its copy cut short?"
        ) from None
    schema = content.get("schema_version") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise TorchcapsError(
            f"{path} is a record of schema {short(schema)}, and this torchcaps reads schema "
            f"{SCHEMA}; read it with the version of torchcaps that its `versions` name."
        )
    if path.stem != _digest(text):
        raise TorchcapsError(
            f"{path} was edited: its content has the hash {_digest(text)}. Records are never "
            f"edited; restore the file, and write a new record that supersedes it."
        )
    try:
        return Record.model_validate_json(text)
    except ValidationError as error:
        raise TorchcapsError(
            f"{path} is no record of schema {SCHEMA} ({in_words(error)})."
        ) from None


def read_records(
    root: str | os.PathLike[str] = "evidence", *, study: str | None = None, drafts: bool = False
) -> dict[str, Record]:
    """Read the records that stand, by their hash: neither superseded nor, unless asked for, drafts.

    A draft supersedes nothing but drafts, so that changed code cannot take a result away.

    Arguments:
        root: the folder of records.
        study: only those of this study; None: all.
        drafts: whether drafts are read too.

    >>> len(read_records("evidence"))  # doctest: +SKIP
    """
    if Path(root).is_file():
        raise TorchcapsError(
            f"{root} is a file, where the folder of all records belongs; name that folder: "
            f"--evidence FOLDER on the command line."
        )
    folder = Path(root) if study is None else Path(root) / study
    every = {path.stem: read_record(path) for path in sorted(folder.rglob("*.json"))}
    chosen = {name: record for name, record in every.items() if drafts or not record.is_draft}
    replaced = {
        record.supersedes
        for record in every.values()
        if record.supersedes in every and (not record.is_draft or every[record.supersedes].is_draft)
    }
    return {name: record for name, record in chosen.items() if name not in replaced}


def _check_link(record: Record, folder: Path) -> None:
    assert record.supersedes is not None
    old = folder / f"{record.supersedes}.json"
    if not old.is_file():
        raise TorchcapsError(
            f"the record supersedes {record.supersedes}, but {folder} holds no such record; write "
            f"it beside the one that it replaces."
        )
    if lost := set(read_record(old).claims) - set(record.claims):
        raise TorchcapsError(
            f"the record supersedes {record.supersedes}, which judges {sorted(lost)[0]} as well; a "
            f"record is replaced by one of the same claims, or of more."
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
