"""What to train: frozen, validated, hashed to tell runs apart."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypedDict, TypeVar, Unpack

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from torchcaps.data import AUGMENTATIONS, SOURCES
from torchcaps.data.by_name import why_no_source
from torchcaps.data.groups import check_named
from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.models import MODELS
from torchcaps.models.layout import is_faster_with_channels_last
from torchcaps.models.options import check_option_name
from torchcaps.models.own import OWN
from torchcaps.prune import Scope
from torchcaps.train.faults import in_words
from torchcaps.train.meant import MEANT
from torchcaps.train.measured_names import Measured
from torchcaps.train.protocols import PROTOCOLS
from torchcaps.train.pruning_fields import Prune, Share, check_pruning, uses
from torchcaps.train.selecting import SelectBy

# Told by name, so that a recipe says what is meant and a wrong word lists the right ones.
Loss = Literal["auto", "margin", "spread", "cross_entropy", "binary", "focal"]
MARGIN = ("m_plus", "m_minus", "lambda_")
Optimiser = Literal["adam", "adamw", "sgd"]
Schedule = Literal["constant", "steps", "exponential", "cosine"]
Precision = Literal["float32", "bfloat16", "float16"]
# Of any count in a recipe.
MOST = 10**9
T = TypeVar("T")
# Of a field younger than the first records of runs. Its default says what was done before it was
# there, and at that it leaves the digest as it was, so that runs and records of before keep their
# names. Whoever adds a field makes it one.
Younger = Annotated[T, "younger"]

Side = Annotated[int, Field(ge=1, le=MOST)]
Weight = Annotated[float, Field(ge=0)]


class Recipe(BaseModel):
    """One training run, but for where its files lie.

    A field that other settings make unused must keep its default, so that a recipe never says what
    is not done.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: str
    data: str
    # Another set, on whose test images the network is tested when training is done; it is trained,
    # validated and, with stop_on = "test", stopped on `data`.
    test_data: Younger[str | None] = None
    # (height, width) to which images are stretched, in training and whenever the run shows some.
    image_size: tuple[Side, Side] | None = None
    # Which pictures of a folder belong together, so that no group of them is parted: a regular
    # expression on their paths, or FILE.csv:COLUMN, as `data.image_folder` takes it.
    groups: Younger[str | None] = None
    # Which of how many folds of a folder is tested, (2, 5); the others are trained on.
    fold: Younger[tuple[Side, Side] | None] = None
    # (height, width) of the window that is shown of each image: from anywhere inside, drawn anew in
    # every epoch, of those that are trained on, and from the centre of all others.
    crop: Younger[tuple[Side, Side] | None] = None
    # Trained on so many of the training images, drawn by the seed; None is all of them.
    train_images: Younger[int | None] = Field(None, ge=1, le=MOST)
    # Whether the network brings each channel to mean 0 and standard deviation 1: by what the
    # training images have, "set", or by (means, standard deviations).
    standardise: Younger[Literal["set"] | tuple[tuple[float, ...], tuple[float, ...]] | None] = None
    options: dict[str, Any] = {}
    epochs: int = Field(3, ge=1, le=MOST)
    batch_size: int = Field(128, ge=1, le=MOST)
    # What is done to training images, freshly drawn in every epoch; a name of
    # data.AUGMENTATIONS.
    augment: str | None = None
    # "auto" is margin loss for lengths, cross-entropy for logits, binary for independent logits.
    loss: Loss = "auto"
    # Updates over which the margin of the spread loss grows from 0.2 to 0.99; validation has all.
    spread_steps: int = Field(500_000, ge=1, le=MOST)
    # Of the margin loss: how probable a class should be that is there, how probable at most one
    # that is not, and what the latter weighs.
    m_plus: float = Field(0.9, gt=0, le=1)
    m_minus: float = Field(0.1, ge=0, lt=1)
    lambda_: float = Field(0.5, ge=0)
    # Of the focal loss: how little counts what is nearly right.
    focal_gamma: Younger[float] = Field(2.0, ge=0)
    # What the loss of an image is multiplied by: a number a class, or as many as make all classes
    # count the same.
    class_weights: Younger[Literal["balanced"] | tuple[Weight, ...] | None] = None
    # Each image once an epoch, or every class equally often: of small ones images come again.
    sampling: Younger[Literal["shuffled", "balanced"]] = "shuffled"
    reconstruction_weight: float = Field(0.0005, ge=0)
    optimiser: Optimiser = "adam"
    learning_rate: float = Field(1e-3, gt=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    # "steps" multiplies by `decay` after each epoch in `milestones`; "exponential" does so after
    # every epoch, or after every `decay_every` updates; "cosine" falls to nothing at the end.
    schedule: Schedule = "constant"
    decay: float = Field(1.0, gt=0, le=1)
    decay_every: int | None = Field(None, ge=1, le=MOST)
    milestones: tuple[Annotated[int, Field(le=MOST)], ...] = ()
    precision: Precision = "float32"
    # Whether 2-D convolutions hold their weights with channels last; results differ by rounding.
    # Where nobody says, `models.layout` does, and the recipe is written out with the answer.
    channels_last: bool = False
    # How weights are set to zero, a way of `torchcaps.prune`; none is pruned where nobody says so.
    prune: Younger[Prune | None] = None
    # Which share of the weights, of all layers together; for magnitude also a list, one an epoch;
    # for lobster the most, which it stops at; at 0 it only shrinks them.
    prune_to: Younger[Share | None] = None
    # After how many epochs magnitude is there; from then on what is left trains on.
    prune_ramp: Younger[int] = Field(5, ge=1, le=MOST)
    # Units as a whole are pruned no more; recipes of before say that they were not.
    prune_unit: Younger[Literal["weight"]] = "weight"
    # Whether one threshold holds for all layers, or each is pruned to the same share.
    prune_scope: Younger[Scope] = "network"
    # Of lobster: λ, by which share it shrinks weights in a step, and by which share the validation
    # loss may rise when it prunes.
    prune_shrink: Younger[float] = Field(1e-4, gt=0, lt=1)
    prune_tolerance: Younger[float] = Field(0.0, ge=0)
    # On how many batches snip measures which weights the loss would miss.
    prune_batches: Younger[int] = Field(1, ge=1, le=MOST)
    # Stop at the first of the checks, every `stop_every` updates, at which this accuracy is there.
    stop_at: float | None = Field(None, gt=0, le=1)
    stop_on: Literal["validation", "test"] = "validation"
    stop_every: int = Field(100, ge=1, le=MOST)
    # Stop after so many epochs of which none was better than all before.
    patience: int | None = Field(None, ge=1, le=MOST)
    # Which weights are saved: of the last epoch, or of the best, which `select_by` tells.
    keep: Literal["last", "best"] = "last"
    select_by: Younger[SelectBy] = "loss"
    # Which loss that is: of the classes, or with the reconstruction's, which knows the label.
    validation_loss: Younger[Literal["classification", "total"]] = "classification"
    # Held out of the training images; of 0, what every epoch measures is of training images.
    validation_share: float = Field(0.1, ge=0, lt=1)
    seed: int = Field(0, ge=0, lt=2**32)
    # An update goes by the mean gradient of so many batches.
    accumulate: Younger[int] = Field(1, ge=1)
    # Parts of the network, by their names in it, that stay as they begin: none of their weights is
    # trained, and normalisation goes by the statistics that it has.
    freeze: Younger[tuple[str, ...]] = ()
    # What the learning rate is multiplied by for the weights of the part `backbone`.
    backbone_rate: Younger[float] = Field(1.0, gt=0, le=1)
    # What is measured of a fixed sample after every so many epochs, for metrics.jsonl.
    measure: Younger[Measured] = ()
    measure_every: Younger[int] = Field(1, ge=1, le=MOST)
    # The network whose weights it begins with, by twelve digits of the SHA-256 of its file.
    begins_with: Younger[str | None] = Field(None, pattern="^[0-9a-f]{12}$")
    # Which protocol filled in what was not given.
    protocol: str | None = None

    @field_validator("model")
    @classmethod
    def _known_model(cls, name: str) -> str:
        if name != OWN and name not in MODELS:
            raise ValueError(
                f"{short(name)} is unknown; {nearest(name, MODELS)}; one of your own is known "
                f"after register_model, on the command line by --import of its file"
            )
        return name

    @field_validator("data", "test_data")
    @classmethod
    def _known_data(cls, name: str | None) -> str | None:
        if name is not None and name not in SOURCES:
            raise ValueError(why_no_source(name))
        return name

    @field_validator("augment")
    @classmethod
    def _known_augmentation(cls, name: str | None) -> str | None:
        if name is not None and name not in AUGMENTATIONS:
            raise ValueError(f"{short(name)} is unknown; {nearest(name, AUGMENTATIONS)}")
        return name

    @field_validator("groups")
    @classmethod
    def _groups_named(cls, by: str | None) -> str | None:
        try:
            check_named("x" if by is None else by)
        except TorchcapsError as error:
            raise ValueError(str(error).removeprefix("groups=").removesuffix(".")) from None
        return by

    @field_validator("options")
    @classmethod
    def _plain_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name, value in options.items():
            finite = isinstance(value, bool | str) or (
                isinstance(value, int | float) and abs(value) < math.inf
            )
            if not finite or (type(value) is int and abs(value) > MOST):
                raise ValueError(
                    f"{name[:40]} must be true or false, a finite number or a word, '8,16' of two "
                    f"numbers, not {short(value)}"
                )
        return options

    @field_validator(
        *("milestones", "freeze", "image_size", "fold", "crop", "prune_to", "measure"),
        "class_weights",
        mode="before",
    )
    @classmethod
    def _list_is_fine(cls, values: Any) -> Any:
        return tuple(values) if isinstance(values, list) else values

    @field_validator("standardise", mode="before")
    @classmethod
    def _set_or_numbers(cls, value: Any) -> Any:
        if value is None or value == "set":
            return value
        lists = (list, tuple)
        if not isinstance(value, lists) or not all(isinstance(each, lists) for each in value):
            raise ValueError(
                f'it must be "set", or the means and the standard deviations of the channels, for '
                f"example [[0.5], [0.2]], not {short(value)}"
            )
        return tuple(map(tuple, value))

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        """Refuse a field that is set and that the others make no use of, or forbid."""
        rules = [
            ("groups", self.data == "folder", 'data = "folder"'),
            ("fold", self.data == "folder", 'data = "folder"'),
            ("test_data", self.data != "own", "data that has a name"),
            ("momentum", self.optimiser == "sgd", 'optimiser = "sgd"'),
            ("decay", self.schedule in ("steps", "exponential"), "steps or exponential schedule"),
            ("decay_every", self.schedule == "exponential", 'schedule = "exponential"'),
            ("milestones", self.schedule == "steps", 'schedule = "steps"'),
            ("spread_steps", self.loss == "spread", 'loss = "spread"'),
            *((name, self.loss == "margin", 'loss = "margin"') for name in MARGIN),
            # Classes would be evened out twice.
            ("class_weights", self.sampling != "balanced", 'sampling = "shuffled"'),
            ("focal_gamma", self.loss == "focal", 'loss = "focal"'),
            *uses(self),
            ("backbone_rate", "backbone" not in self.freeze, "a backbone that is trained"),
            ("measure_every", bool(self.measure), "measure"),
            ("stop_on", self.stop_at is not None, "stop_at"),
            ("stop_every", self.stop_at is not None, "stop_at"),
            ("select_by", bool(self.patience or self.keep == "best"), 'patience or keep = "best"'),
        ]
        for name, used, needs in rules:
            if not used and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is of use with {needs} only; leave it out")
        if self.m_plus <= self.m_minus:
            raise ValueError(
                f"m_plus, from which a class is there, must be above m_minus, but they are "
                f"{self.m_plus:g} and {self.m_minus:g}"
            )
        if self.schedule == "steps" and not self.milestones:
            raise ValueError('schedule = "steps" needs milestones, the epochs to decay after')
        if any(b <= a for a, b in pairwise((0, *self.milestones))):
            raise ValueError("milestones must be epochs from 1 up, each later than the last")
        if self.schedule in ("steps", "exponential") and self.decay == 1:
            raise ValueError(f'schedule = "{self.schedule}" needs decay below 1, for example 0.1')
        check_pruning(self)
        for name in () if self.validation_share else self.by_validation():
            raise ValueError(
                f"{name} chooses by validation images, and validation_share = 0 holds none out"
            )
        return self

    def by_validation(self) -> list[str]:
        """Give what it chooses by the images that are held out."""
        ways = {
            "patience": self.patience is not None,
            'keep = "best"': self.keep == "best",
            "stop_at": self.stop_at is not None and self.stop_on == "validation",
            'prune = "lobster"': self.prune == "lobster",
        }
        return [name for name, chosen in ways.items() if chosen]

    @model_validator(mode="after")
    def _layout_of_its_model(self) -> Self:
        if "channels_last" not in self.model_fields_set:
            # Do not mark the field as set by the user: a run that goes on keeps its own.
            faster = is_faster_with_channels_last(self.model, self.precision)
            self.__dict__["channels_last"] = faster
        return self

    def departures(self) -> tuple[str, ...]:
        """Say where the protocol leaves its paper, and the recipe its protocol."""
        protocol = PROTOCOLS.get(self.protocol or "")
        if protocol is None:
            return ()
        own = {name: getattr(self, name) for name in sorted(protocol.fields)}
        changed = (
            f"{name}: {short(value)}, where the protocol {self.protocol} has "
            f"{short(protocol.fields[name])}"
            for name, value in own.items()
            if value != protocol.fields[name]
        )
        return (*protocol.departures(own), *changed)

    def goes_on_from(self, old: Self) -> bool:
        """Say whether it is the old one but for more epochs, and its first epochs are the same."""
        return (
            self.epochs > old.epochs
            and self == old.model_copy(update={"epochs": self.epochs})
            # It falls to nothing at the last epoch, whichever that is.
            and self.schedule != "cosine"
        )

    def unlike(self, old: Self) -> str:
        """Name the fields in which the old one differs, with both values."""
        changed = [n for n in type(self).model_fields if getattr(old, n) != getattr(self, n)]
        return "; ".join(
            f"{n} {getattr(old, n)!r} there, {getattr(self, n)!r} here" for n in changed
        )

    def digest(self) -> str:
        """Make twelve characters that change when anything in the recipe does."""
        in_order = self.model_copy(update={"options": dict(sorted(self.options.items()))})
        as_before = {name for name, value in YOUNGER.items() if getattr(self, name) == value}
        seen = in_order.model_dump_json(exclude=as_before)
        return hashlib.sha256(seen.encode()).hexdigest()[:12]


# Those of them that are younger, with what was done before they were there.
YOUNGER: dict[str, Any] = {
    name: field.default
    for name, field in Recipe.model_fields.items()
    if "younger" in field.metadata
}
# The fields of a recipe as `make_recipe` takes them, for type checkers; a test compares them.
# fmt: off
RecipeFields = TypedDict("RecipeFields", {  # noqa: UP013
    "model": str, "options": Mapping[str, Any], "data": str, "test_data": str | None,
    "image_size": Sequence[int] | None, "crop": Sequence[int] | None, "groups": str | None,
    "standardise": Literal["set"] | Sequence[Sequence[float]] | None, "train_images": int | None,
    "validation_share": float, "augment": str | None, "sampling": Literal["shuffled", "balanced"],
    "epochs": int, "batch_size": int, "accumulate": int, "seed": int, "precision": Precision,
    "loss": Loss, "spread_steps": int, "m_plus": float, "m_minus": float, "lambda_": float,
    "class_weights": Literal["balanced"] | Sequence[float] | None, "focal_gamma": float,
    "reconstruction_weight": float, "optimiser": Optimiser, "learning_rate": float,
    "momentum": float, "weight_decay": float, "schedule": Schedule, "decay": float,
    "decay_every": int | None, "milestones": Sequence[int], "channels_last": bool,
    "prune": Prune | None, "prune_to": float | Sequence[float] | None, "prune_ramp": int,
    "prune_unit": Literal["weight"], "prune_scope": Scope, "prune_shrink": float,
    "prune_tolerance": float, "prune_batches": int, "stop_at": float | None, "stop_every": int,
    "stop_on": Literal["validation", "test"], "patience": int | None,
    "keep": Literal["last", "best"], "select_by": SelectBy, "freeze": Sequence[str],
    "validation_loss": Literal["classification", "total"], "measure": Sequence[str],
    "measure_every": int, "begins_with": str | None, "backbone_rate": float,
    "fold": Sequence[int] | None,
}, total=False)
# fmt: on


def make_recipe(*, protocol: str | None = None, **given: Unpack[RecipeFields]) -> Recipe:
    """Give a recipe of its fields; everything wrong with them in one sentence.

    Arguments:
        protocol: a name of PROTOCOLS; it fills in what is not given.
        given: the fields of `Recipe`, which docs/training.md lists.

    >>> make_recipe(model="mitterreiter_5x16", data="part-whole", epochs=5)
    """
    fields: dict[str, Any] = dict(given)
    protocol = None if protocol == "none" else protocol
    if protocol is not None:
        if not isinstance(protocol, str) or protocol not in PROTOCOLS:
            known = nearest(protocol if isinstance(protocol, str) else "", PROTOCOLS)
            raise TorchcapsError(f"protocol {short(protocol)} is unknown; {known}.")
        fields = {**PROTOCOLS[protocol].fields, **fields, "protocol": protocol}
    # TOML and a command line have no value for nothing, which a protocol may have to be told.
    none = {name for name, field in Recipe.model_fields.items() if field.default is None}
    fields = {name: None if (name in none and x == "none") else x for name, x in fields.items()}
    for field in fields:
        if field not in Recipe.model_fields:
            if any(field in preset.options for preset in MODELS.values()):
                raise TorchcapsError(
                    f"{field} is an option of a network and no field of a recipe; write it under "
                    f"[options] in a file, as options={{{field!r}: …}} in Python, or as "
                    f"--option {field}=… on the command line."
                )
            known = nearest(field, Recipe.model_fields, meant=MEANT)
            raise TorchcapsError(f"a recipe has no field {short(field)}; {known}.")
    try:
        recipe = Recipe(**fields)
    except ValidationError as error:
        raise TorchcapsError(f"the recipe does not hold: {in_words(error)}.") from None
    if recipe.model in MODELS:
        # Their values are looked at when the network is made: several of them are a sweep.
        for option in recipe.options:
            check_option_name(recipe.model, MODELS[recipe.model], option)
    return recipe
