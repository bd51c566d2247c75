"""The records about one statement, asked for by what their recipes say."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from torchcaps.models import MODELS
from torchcaps.study.record import Record
from torchcaps.study.same import trained_in
from torchcaps.train import Recipe
from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.values import Values

# By seed, one value for each epoch.
Curves = Mapping[int, tuple[float, ...]]
Found = TypeVar("Found")
# Fields of a recipe that make another system; at these values where a judge does not name them.
USUAL = {"loss": "auto", "prune": None, "prune_to": None}
# The option by which a reduced form makes a network narrower.
NARROWED = "width"


class Evidence:
    """The records about a statement: values by statistic and system."""

    def __init__(self, claim: Claim, records: Iterable[Record]):
        self.claim = claim
        # The fullest comes last, and counts.
        self.records = sorted(records, key=lambda r: (r.reduced is None, r.measured, r.made))
        # Records whose values a judge read, and those of which it asked for seeds that diverged.
        # By identity, since records of the same runs may have one recipe.
        self._read: dict[int, Record] = {}
        self._counted: set[int] = set()

    @property
    def read(self) -> tuple[Record, ...]:
        """The records whose values were asked for and taken."""
        return tuple(self._read.values())

    @property
    def left_out(self) -> int:
        """Seeds that diverged, of systems whose values were read and whose `failed` was not."""
        return sum(each.failed for key, each in self._read.items() if key not in self._counted)

    @property
    def is_reduced(self) -> bool:
        """Whether any of them is of a smaller protocol than the paper's."""
        return any(record.reduced is not None for record in self.records)

    def values(self, statistic: str, model: str, **chosen: Any) -> Values:
        """One value a seed of the system that has these fields and options, and every other option
        as the network has it by itself; a reduced form may be narrower. Of several records that of
        the full protocol, then the one of most seeds. The statistic "a|b" is b where a record has
        no a.
        """

        def read(record: Record) -> Values:
            every = (_values(record, name) for name in statistic.split("|"))
            return next(filter(None, every), Values())

        return self._last(read, model, chosen) or Values()

    def curves(self, statistic: str, model: str, **chosen: Any) -> Curves:
        """What every epoch measured of its own accord, of the system that `values` would take;
        seeds without it are left out.
        """

        def read(record: Record) -> Curves:
            curves = {
                seed.seed: tuple(row[statistic] for row in seed.per_epoch if statistic in row)
                for seed in record.seeds
            }
            return {seed: curve for seed, curve in curves.items() if curve}

        return self._last(read, model, chosen) or {}

    def of_curves(
        self,
        function: Callable[[tuple[float, ...]], float | None],
        statistic: str,
        model: str,
        **chosen: Any,
    ) -> Values:
        """Take a function of the curve of each seed; seeds of which it is None are left out."""
        curves = self.curves(statistic, model, **chosen)
        found = {seed: function(curve) for seed, curve in curves.items()}
        return Values({seed: value for seed, value in found.items() if value is not None})

    def failed(self, model: str, **chosen: Any) -> frozenset[int]:
        """Seeds that diverged, of the system that `values` would take."""
        records = [*self._of(model, chosen)]
        self._counted |= set(map(id, records))
        # The fullest comes last.
        fullest = records[-1:]
        lost = {seed.seed for each in fullest for seed in each.seeds if seed.failed is not None}
        self._read |= {id(each): each for each in fullest if lost}
        return frozenset(lost)

    def recipe(self, model: str, **chosen: Any) -> Mapping[str, Any]:
        """The recipe of the system that `values` would take; empty where there is none."""
        recipes = [record.recipe for record in self._of(model, chosen)]
        return recipes[-1] if recipes else {}

    def systems(self, statistic: str, model: str, **chosen: Any) -> dict[str, Values]:
        """The values of every system of a network that has these fields and options, whatever its
        others are, by the digest of what was trained."""
        found: dict[str, Values] = {}
        for record in self.records:
            is_asked_for = is_about(record, {"model": model, **chosen})
            if is_asked_for and (values := _values(record, statistic)):
                self._read[id(record)] = record
                found[trained_in(record) or record.recipe_hash] = values
        return found

    def _last(
        self, read: Callable[[Record], Found], model: str, chosen: Mapping[str, Any]
    ) -> Found | None:
        """Take what the last of the records has that has anything, and note the record."""
        found = [(record, value) for record in self._of(model, chosen) if (value := read(record))]
        if not found:
            return None
        record, value = found[-1]
        self._read[id(record)] = record
        return value

    def _of(self, model: str, chosen: Mapping[str, Any]) -> Iterator[Record]:
        asked_for = {"model": model, **USUAL, **MODELS[model].options, **chosen}
        of_any_width = {k: v for k, v in asked_for.items() if k != NARROWED or k in chosen}
        for record in self.records:
            if is_about(record, asked_for if record.reduced is None else of_any_width):
                yield record


def _values(record: Record, name: str) -> Values:
    return Values({seed.seed: seed.values[name] for seed in record.seeds if name in seed.values})


def known_fields(record: Record) -> dict[str, Any]:
    """Fields and options, those too that nobody wrote out. An option goes before a field of its
    name."""
    recipe = record.recipe
    usual = {name: field.default for name, field in Recipe.model_fields.items()}
    options = MODELS[recipe["model"]].options if recipe.get("model") in MODELS else {}
    return {**usual, **recipe, **options, **recipe.get("options", {})}


def is_about(record: Record, where: Mapping[str, Any]) -> bool:
    """Whether its fields and options are these; a frozenset is for any of several values."""
    known = known_fields(record)
    return all(
        known.get(name) in value if isinstance(value, frozenset) else known.get(name) == value
        for name, value in where.items()
    )
