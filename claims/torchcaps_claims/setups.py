"""The protocols that claims name, as ours, and the jobs that each makes of systems.

They stand in setups.toml. Departures are written where we do something else than the paper, not
where the paper leaves something open.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchcaps.data.registry import SETS
from torchcaps.errors import TorchcapsError, nearest
from torchcaps.models import MODELS
from torchcaps.train import PROTOCOLS
from torchcaps_claims.cells import Cell, cells
from torchcaps_claims.job import Job, Reduced, Split, ends_at
from torchcaps_claims.pruned import way_in
from torchcaps_claims.texts import alike, read_texts

# Fields that change how a network is trained, and not only how long.
COURSE = (
    "train_images",
    "validation_share",
    "batch_size",
    "learning_rate",
    "precision",
    "schedule",
    "milestones",
    "prune_shrink",
    "spread_steps",
)
# Trained without moving, and looked at on moved images of the same digits.
TRANSFER = {"affnist": "expanded-mnist"}
SOFTMAX = ("convnet_avg", "convnet_fc", "gu_convnet_fc_lk", "gu_convnet_r")
MADE_AFFNIST = "generated images in place of affNIST's own test set"


@dataclass(frozen=True)
class Setup:
    """How a paper trains: everything of a job but the system and what is measured."""

    protocol: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    departures: tuple[str, ...] = ()
    reduced: Mapping[str, Any] = field(default_factory=dict)
    narrower: Mapping[str, Any] = field(default_factory=dict)
    by_way: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_loss: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    smaller_data: Mapping[str, str] = field(default_factory=dict)
    smaller_protocol: str | None = None

    def jobs(
        self,
        systems: str,
        *,
        metrics: str,
        seeds: int,
        data: tuple[str, ...],
        split: Split = "test",
        at: Mapping[str, Any] | None = None,
    ) -> tuple[Job, ...]:
        """One job for every cell of `systems` on every data set. `split="train"` looks at the
        images that were trained on, whatever `data` is tested on."""
        followed = PROTOCOLS[self.protocol]
        return tuple(
            Job(
                model=cell.model,
                options=cell.options,
                train=train,
                test=seen,
                split=split,
                protocol=self.protocol,
                fields={**self._fields_of(cell, train), **cell.fields},
                metrics=tuple(metrics.split()),
                seeds=seeds,
                at={**(at or {}), **cell.at},
                after=cell.after,
                reduced=self._smaller(cell, seen, ends_at({**(at or {}), **cell.at})),
                departures=(
                    *followed.departures({**self.fields, **cell.fields}),
                    *self.departures,
                ),
            )
            for train, seen in (
                (_trained_on(test), _trained_on(test) if split == "train" else test)
                for test in data
            )
            for cell in cells(systems)
        )

    def _fields_of(self, cell: Cell, train: str) -> dict[str, Any]:
        loss = self.by_loss.get(cell.fields.get("loss", ""), {})
        fields = {**self.fields, **self.by_data.get(train, {}), **loss}
        # A softmax names one class; where images show several, each class is there or not.
        if train.startswith("multi-mnist") and cell.model in SOFTMAX:
            fields |= {} if cell.options.get("margin") else {"loss": "binary"}
        return fields

    def _smaller(self, cell: Cell, test: str, ends: Mapping[str, Any]) -> Reduced | None:
        """The reduced form of one network on the images of one test set."""
        if not self.reduced:
            return None
        reduced = {**self.reduced, **self.by_way.get(way_in(cell.after) or "", {}), **ends}
        protocol = self.smaller_protocol or self.protocol
        fields = {**PROTOCOLS[protocol].fields, **self.fields, **reduced, **cell.fields}
        if fields.get("loss") != "spread":
            reduced.pop("spread_steps", None)
        if not _has_as_many(_trained_on(test), fields):
            del reduced["train_images"]
        epochs = reduced["epochs"]
        stops = fields.get("stop_at") is not None or fields.get("patience") is not None
        says = [f"{'at most ' * stops}{epochs} epoch{'s' * (epochs > 1)}, fixed beforehand"]
        narrower = _narrower(cell, self.narrower)
        others = [f"{name} {value}" for name, value in reduced.items() if name in COURSE]
        others += [f"{name} {value}" for name, value in narrower.items()]
        says += [", ".join(others)] if others else []
        smaller = self.smaller_data.get(test)
        if test == "affnist":
            says.append(MADE_AFFNIST)
        elif smaller is not None:
            says.append(f"{smaller} in place of {test}")
        return Reduced(
            "; ".join(says),
            reduced,
            train=smaller,
            test="affnist-style" if test == "affnist" else None,
            options=narrower,
            protocol=self.smaller_protocol,
        )


def _plain(value: Any) -> Any:
    """Write a value as recipes have it: TOML has neither tuples nor None."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return None if value == "null" else value


SETUPS = {name: Setup(**_plain(row)) for name, row in alike(read_texts("setups")).items()}


def _has_as_many(train: str, fields: Mapping[str, Any]) -> bool:
    """Whether a set has the images that a reduced form asks for, beside those held out."""
    n_train, held_out = fields.get("train_images", 0), fields.get("validation_share", 0.1)
    return train not in SETS or n_train <= SETS[train].n_train * (1 - held_out)


def _narrower(cell: Cell, options: Mapping[str, Any]) -> dict[str, Any]:
    """Take the options that the network has and its row does not name; a trunk that somebody
    trained has its own width."""
    if cell.model not in MODELS or "trunk" in cell.options:
        return {}
    known = MODELS[cell.model].options
    return {n: v for n, v in options.items() if n in known and n not in cell.options}


def _trained_on(test: str) -> str:
    """The data set that networks are trained on which are tested on another."""
    return TRANSFER.get(test, test.removesuffix("-familiar"))


def setups_in(text: str) -> tuple[str, ...]:
    """The names of the setups that a claim's protocol lists, in its order; those that need no
    training are left out.

    >>> setups_in("gu-full (shared), gu-earlystop (non-shared)")
    ('gu-full', 'gu-earlystop')
    """
    words = re.findall(r"numeric float64|[a-z][\w-]+", re.sub(r"\([^)]*\)", "", text))
    found = []
    for word in words:
        if word in SETUPS:
            found.append(word)
        elif word.split("-")[0] in {"mitt", "peer", "gu", "tsai", "rem"}:
            raise TorchcapsError(
                f"protocol {word!r} of a claim is unknown; {nearest(word, SETUPS)}."
            )
    return tuple(found)
