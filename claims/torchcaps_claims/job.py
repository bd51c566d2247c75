"""A job: what has to be trained and looked at for a claim. Nothing is run here."""

import dataclasses
import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torchcaps._words import value_of
from torchcaps.data.registry import data_set
from torchcaps.models import MODELS
from torchcaps.train import PROTOCOLS, make_recipe
from torchcaps.train.recipe import Recipe
from torchcaps_claims.narrow import NARROW, WIDTHS
from torchcaps_claims.pruned import pruning_fields
from torchcaps_claims.statistics import STATISTICS

Split = Literal["test", "train", "validation"]


# Levels of the grid of couplings, [renzulli2025] B.3; 11 where the paper names none.
USUAL_LEVELS: tuple[int, ...] = (11,)
LEVELS_OF_MODEL: dict[str, tuple[int, ...]] = {"rem_effconv": (21,), "rem_gamma": (11, 6)}
LEVELS_OF_SET: dict[str, tuple[int, ...]] = {"tiny-imagenet": (129,)}


def ends_at(at: Mapping[str, Any]) -> dict[str, Any]:
    """The field of the last epoch, where a row looks at an early one. A run that ends there is the
    same up to there: no protocol of such a row has rates that know how many epochs there are."""
    epoch = at.get("epoch")
    epoch = 1 if epoch == "first" else epoch
    return {"epochs": epoch} if isinstance(epoch, int) else {}


@dataclass(frozen=True)
class Reduced:
    """A smaller form of the same question, and in words what is smaller."""

    says: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    train: str | None = None
    test: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    protocol: str | None = None


@dataclass(frozen=True)
class Job:
    """One trained system, seed by seed, and what is measured of it.

    `train` and `test` are data sets, `split` the images of `test` that are looked at. `at` says
    where in the network, or when: {"layer": 4}. `after` are steps that change what is trained,
    names of `pruned.WAYS` and `narrow`, and "quantise", which looks at couplings on a grid.
    """

    model: str
    train: str
    test: str
    protocol: str
    metrics: tuple[str, ...]
    seeds: int
    options: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    split: Split = "test"
    at: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    reduced: Reduced | None = None
    departures: tuple[str, ...] = ()

    @property
    def is_narrow(self) -> bool:
        """Whether it is as narrow as the living part of its routed twin."""
        return NARROW in self.after

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels of the grid that couplings are quantised to: those its row names, or those of
        [renzulli2025] B.3; one number for all routed layers, or one for each from below."""
        if "quantise" not in self.after:
            return ()
        # A row may say that the paper states none.
        if str(self.at.get("K", "")).isdecimal():
            return (int(self.at["K"]),)
        return LEVELS_OF_MODEL.get(self.model, LEVELS_OF_SET.get(self.test, USUAL_LEVELS))

    def recipe(self, *, seed: int = 0) -> Recipe:
        """The recipe of one seed. Of a network that is to be narrow it is the one before it is."""
        return make_recipe(
            protocol=self.protocol,
            model=self.model,
            options=dict(self.options),
            seed=seed,
            **{"data": self.train, **self.pruning, **self.fields, **self.ends},
        )

    @property
    def ends(self) -> dict[str, Any]:
        """The field of the last epoch, where a row looks at an early one."""
        return ends_at(self.at)

    @property
    def pruning(self) -> dict[str, Any]:
        """Fields of the recipe that its steps stand for."""
        return pruning_fields(self.after, self.at, train=self.train)

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels, height and width of what the network sees."""
        channels, *sides = data_set(self.train).image
        height, width = self.fields.get("crop", self.fields.get("image_size", sides))
        return channels, height, width

    @property
    def key(self) -> str:
        """Eight characters that two jobs share which train the same networks, whether a default is
        written out or not."""
        # How much is pruned is decided in training; quantising looks at a trained network.
        pruned = [*(x for x in self.after if x != "quantise"), self.at.get("sparsity")]
        text = json.dumps([self.protocol, self._told(), pruned], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def _told(self) -> dict[str, Any]:
        """The fields of the recipe that are no defaults, and all options of the network."""
        known = MODELS[self.model].options
        given = {**PROTOCOLS[self.protocol].fields, "data": self.train, **self.fields, **self.ends}
        usual = {name: field.default for name, field in Recipe.model_fields.items()}
        fields = {name: value for name, value in given.items() if value != usual.get(name, ...)}
        return {"model": self.model, "options": {**known, **self.options}, **fields}

    def commands(self, *, seed: int = 0, root: str = "data") -> tuple[str, ...]:
        """The `torchcaps` commands of one seed, as far as commands exist: train, then measure."""
        run = f"runs/{self.model}-{self.key}-s{seed}"
        commands = [self._train_command(run, seed, root)]
        statistics = [STATISTICS[name] for name in self.metrics]
        measured_by = {each.command for each in statistics}
        where = ["--data", self.test, *_root(root, self.test)]
        # The result of a run is its accuracy on the test images of its own data.
        elsewhere = self.test != self.train or self.split != "test"
        looks = []
        if self.levels:
            looks += ["--quantise", ",".join(map(str, self.levels))]
        for name in dict.fromkeys(each.measured_as for each in statistics if each.measured_as):
            looks += ["--measure", name]
        if "eval" in measured_by and (elsewhere or looks):
            words = ["torchcaps", "eval", run, *where, "--split", self.split, *looks]
            commands.append([*words, "--json"])
        if "dissect" in measured_by:
            page = f"{run}.html"
            commands.append(["torchcaps", "dissect", run, *where, "--out", page, "--json"])
        if "estimate" in measured_by:
            sides, classes = "x".join(map(str, self.image)), str(data_set(self.train).n_classes)
            words = ["torchcaps", "estimate", "--model", self.model, "--image", sides]
            commands.append([*words, "--classes", classes, *self._option_words(), "--json"])
        return tuple(map(shlex.join, commands))

    def _option_words(self) -> list[str]:
        # A word that the option refuses: nobody knows the widths before the twin is trained.
        options = {**self.options, **({WIDTHS: "ALIVE"} if self.is_narrow else {})}
        pairs = [f"{name}={_word(value)}" for name, value in options.items()]
        return [word for pair in pairs for word in ("--option", pair)]

    def _train_command(self, run: str, seed: int, root: str) -> list[str]:
        words = ["torchcaps", "train", "--protocol", self.protocol, "--model", self.model]
        words += ["--data", self.train, *_root(root, self.train), *self._option_words()]
        prescribed = PROTOCOLS[self.protocol].fields
        pruning = {n: v for n, v in self.pruning.items() if prescribed.get(n) != v}
        for name, value in {**pruning, **self.fields, **self.ends}.items():
            if name == "image_size":
                words += ["--image-size", "x".join(map(str, value))]
            else:
                words += ["--set", f"{name}={_word(value)}"]
        if "trunk" in self.options:
            words += ["--trunk", f"{root}/{self.options['trunk']}.safetensors"]
        return [*words, "--seed", str(seed), "--out", run]

    def smaller(self) -> "Job":
        """The reduced form as a job of its own; the job itself where nothing is to be reduced."""
        if self.reduced is None:
            return self
        train = self.reduced.train or self.train
        test = self.reduced.test or (train if self.test == self.train else self.test)
        return dataclasses.replace(
            self,
            train=train,
            test=test,
            protocol=self.reduced.protocol or self.protocol,
            fields={**self.fields, **self.reduced.fields},
            options={**self.options, **self.reduced.options},
            reduced=None,
            departures=(*self.departures, f"reduced: {self.reduced.says}"),
        )

    def numbers(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {**dataclasses.asdict(self), "key": self.key}


def _root(root: str, data: str) -> list[str]:
    return ["--root", root] if data_set(data).has_files else []


def _word(value: Any) -> str:
    """A value as --option and --set read it: a word that looks like a number needs its quotes."""
    return value if isinstance(value, str) and value_of(value) == value else json.dumps(value)
