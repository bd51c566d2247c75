"""What is read off a trained network, and what each number is called.

A look is one pass over images, or over weights alone. It gives numbers by name: `accuracy` in
percent, or, of the look `layers`, `dyr.2` for the second routed layer and `cns.2` for the second
layer of capsules, both counted from below as the papers do. The look `keys` gives `entropy`, `keys`
of a class on average, and `keys.3` of class 3; the look `weights` gives `sparsity` in percent, and
`agreement.2` where the second routed layer learned how sharp its agreement is; the
look `compactness` gives that of each factor, `compactness.trans-x`, and their mean. The look
`invariance` gives `corr.rotation 20°.2` of the second layer of capsules, Pearson's beside it, and
`spearman.rotation.2`; the look `trees` `distance.different` and `share_as_far`, and the look
`tree-size` `tree_size`. Of `inequality`
(`small_couplings`, `even_couplings` and `gini`), `zero-votes`, `antipodal` and `polarisation` there
is a number a layer, counted from below; those of `antipodal-at-start` are of the network before
training, `antipodal_share_at_start.2`. The look `cancellation` gives `cancellation_cosine`,
`cancellation_chi` and the `input_cosine` of the pairs, and `cancellation-at-start` the same with
`_at_start`. The look `separation` gives `silhouette` and
`nearest_centroid`, in percent, and the look `perturbation` `change.0.2` and `change.8`, for
components that move by so much. The look `redrawn` trains a decoder on the frozen network and gives
`drawn_components`, a share, `drawn_change` and `drawn_known`. The look `fixed-point` gives
`fixed_point_distance.7` of the step from iteration 7 to 8, up to that of 50. Of the part-whole set
alone the look `focus` gives `focus` and `focus_known`, of pruned networks alone the look `saliency`
`saliency` and `saliency_known`, and the look `selectivity` `one_part.2` of
the second layer of capsules, `one_part_at_most.2` by the thresholds that find most, and
`one_part_by_chance.2` of random read-outs; older records have `dedicated.2`, which took second
areas over all images.
Numbers of other images than the run's own test images carry their name: `accuracy@sign/train`;
those of couplings on a grid carry its levels before: `accuracy+K11`, or `accuracy+K11,6` of two
routed layers.
"""

import re
from typing import Literal, NamedTuple

from torchcaps.data.by_name import SOURCES, why_no_source
from torchcaps.errors import TorchcapsError, nearest
from torchcaps.models.own import OWN
from torchcaps.study.job import Job
from torchcaps.study.pruned import way_in

__all__ = ["OF_KEYS", "OF_LAYERS", "OF_WEIGHTS", "Look", "kind_of", "looks_named", "looks_of"]

Kind = Literal[
    "accuracy",
    "antipodal",
    "antipodal-at-start",
    "calibration",
    "cancellation",
    "cancellation-at-start",
    "compactness",
    "fixed-point",
    "focus",
    "inequality",
    "invariance",
    "keys",
    "layers",
    "perturbation",
    "polarisation",
    "redrawn",
    "saliency",
    "selectivity",
    "separation",
    "tree-size",
    "trees",
    "weights",
    "zero-votes",
]
OF_KEYS = ("entropy", "keys")
# The same whatever images are shown.
OF_WEIGHTS = ("agreement", "nonzero_parameters", "sparsity")
# What every epoch measures of its own accord, so that a record has it with its accuracy.
OF_EPOCHS = ("area", "gradient_norms", "jitter", "onset", "revivals", "time_to")
# Statistics of the layers of capsules, and of the routings between them.
OF_CAPSULES = ("capsules_alive", "cnm", "cns", "car", "car_twice", "cas", "cdr", "cds")
OF_COUPLINGS = ("coupling_std", "dyr", "dys")
OF_LAYERS = (*OF_CAPSULES, *OF_COUPLINGS)
KIND_OF: dict[str, Kind] = {
    "accuracy": "accuracy",
    "activation_correlation": "invariance",
    "antipodal_share": "antipodal",
    "antipodal_share_at_start": "antipodal-at-start",
    "class_separation": "separation",
    "compactness": "compactness",
    "confidence": "calibration",
    "coupling_inequality": "inequality",
    "coupling_levels": "inequality",
    "drawn_components": "redrawn",
    "entity_selectivity": "selectivity",
    "fixed_point_distance": "fixed-point",
    "focus": "focus",
    "gradient_cancellation": "cancellation",
    "gradient_cancellation_at_start": "cancellation-at-start",
    "parse_tree_distance": "trees",
    "perturbation_range": "perturbation",
    "polarisation": "polarisation",
    "saliency": "saliency",
    "tree_size": "tree-size",
    "zero_blocks": "zero-votes",
    **dict.fromkeys(OF_KEYS, "keys"),
    **dict.fromkeys(OF_WEIGHTS, "weights"),
    **dict.fromkeys(OF_LAYERS, "layers"),
}
SPLITS = ("test", "validation", "train")


# They look at weights, at first weights, or at a training of their own.
WITHOUT_GRID: frozenset[Kind] = frozenset(
    {
        "weights",
        "antipodal-at-start",
        "cancellation",
        "cancellation-at-start",
        "fixed-point",
        "redrawn",
    }
)


class Look(NamedTuple):
    """A kind of pass over the images of one set."""

    kind: Kind
    data: str
    split: str = "test"
    # Couplings on a grid: one number for all routed layers, or one for each from below.
    levels: tuple[int, ...] = ()

    @property
    def images(self) -> str:
        """The images by name."""
        return f"{self.data}/{self.split}"

    @property
    def name(self) -> str:
        """What it is called in the ledger."""
        return f"{self.kind}{self.grid}@{self.images}"

    @property
    def grid(self) -> str:
        """The levels by name; nothing where couplings are as they are."""
        return f"+K{','.join(map(str, self.levels))}" if self.levels else ""

    def key(self, number: str, *, tested_on: str) -> str:
        """What one of its numbers is called in the record of runs that are tested on a set."""
        if self.kind == "weights":
            return number
        is_own = (self.data, self.split) == (tested_on, "test")
        named = f"{number}{self.grid}"
        return named if is_own else f"{named}@{self.images}"


def looks_of(job: Job) -> tuple[Look, ...]:
    """The looks that a job asks for, as far as they exist."""
    asked = ("accuracy" if name in OF_EPOCHS else name for name in job.metrics)
    kinds = dict.fromkeys(kind for name in asked if (kind := kind_of(name)) is not None)
    # That of a dense network is what those of pruned ones are held against.
    if way_in(job.after) is None:
        kinds.pop("saliency", None)
    return tuple(
        Look(kind, job.test, job.split, () if kind in WITHOUT_GRID else job.levels)
        for kind in kinds
    )


def kind_of(statistic: str) -> Kind | None:
    """The look that gives a statistic; None where there is none yet."""
    return KIND_OF.get(statistic)


def looks_named(names: list[str], data: str) -> tuple[Look, ...]:
    """The looks at statistics that somebody names, of the set that is trained on or of others:
    "accuracy", "dyr", "accuracy@affnist-style/test", "entropy+K11".

    >>> looks_named(["accuracy", "dyr"], "mnist")[1].name
    'layers@mnist/test'
    """
    found = []
    for name in names:
        named, _, images = name.partition("@")
        statistic, _, grid = named.partition("+K")
        kind = kind_of(statistic)
        if kind is None:
            known = nearest(statistic, tuple(KIND_OF))
            raise TorchcapsError(f"statistic {statistic!r} cannot be measured in a study; {known}.")
        where, _, split = images.partition("/")
        if images and split not in SPLITS:
            raise TorchcapsError(
                f"{name!r} must name images as SET/SPLIT, for example {statistic}@mnist/test; "
                f"splits are {', '.join(SPLITS)}."
            )
        if where == OWN:
            raise TorchcapsError(
                f"{name!r}: images that a Python program holds have no name; name a data set."
            )
        if where and where not in SOURCES:
            raise TorchcapsError(f"{name!r}: the set {why_no_source(where)}.")
        words = grid.split(",")
        if not all(re.fullmatch("[0-9]{1,9}", word) for word in words) and "+" in named:
            raise TorchcapsError(
                f"{name!r} must name the levels of couplings as +K and a number, for example "
                f"{statistic}+K11, or one for each routed layer from below, {statistic}+K11,6."
            )
        levels = tuple(int(word) for word in words if word)
        if levels and kind in WITHOUT_GRID:
            raise TorchcapsError(
                f"{name!r}: {statistic} is measured of couplings as they are; leave +K{grid} out."
            )
        if levels and min(levels) < 2:
            raise TorchcapsError(f"{name!r} must have the 2 levels 0 and 1, or more.")
        found.append(Look(kind, where or data, split or "test", levels))
    return tuple(dict.fromkeys(found))
