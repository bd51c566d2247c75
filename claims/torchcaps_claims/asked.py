"""The questions that the papers fight over, as questions.toml has them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps_claims.texts import read_texts
from torchcaps_claims.variants import Column, Side, Variants


class Plain(NamedTuple):
    """An answer in a sentence, and what networks of ours must show for it to be given."""

    of: str
    needs: frozenset[Side]
    says: str


class Question(NamedTuple):
    """A question, and the statements whose verdicts answer it; studies of ours by their names."""

    title: str
    says: str
    # What it would mean if the statement held: "yes" or "no", by the id of the statement.
    answers: Mapping[str, str]
    # Those that say nothing of it where they fail.
    only_held: Sequence[str] = ()
    # What no statement compares as it is.
    own: Sequence[str] = ()
    # Whose dead capsules are counted.
    dying: Sequence[str] = ()
    plain: Sequence[Plain] = ()


class Family(NamedTuple):
    """A network that routes beside its twin that does not."""

    network: str
    routing: str
    images: str
    # Of these two alone; the one that is compared with does not route, and of the columns the first
    # is compared.
    variants: Variants


def _variants(
    columns: Sequence[Mapping[str, Any]], where: Mapping[str, Any] = {}, like: str = "", **own: Any
) -> Variants:
    return Variants(columns=[Column(**each) for each in columns], where=_fields(where), **own)


def _fields(where: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has neither sets nor none."""
    return {k: (frozenset(x) or None) if isinstance(x, list) else x for k, x in where.items()}


def _studies(texts: Mapping[str, Mapping[str, Any]]) -> dict[str, Variants]:
    whole: dict[str, dict[str, Any]] = {}
    for name, own in texts.items():
        whole[name] = {**(whole[own["like"]] if "like" in own else {}), **own}
    return {name: _variants(**fields) for name, fields in whole.items()}


def _family(
    network: str,
    routing: str,
    images: str,
    study: str,
    even: Mapping[str, Any],
    where: Mapping[str, Any] = {},
) -> Family:
    gain = Column("gain in points", "accuracy", is_compared=True)
    variants = Variants(network, study, "", [*even], [gain], even, _fields(where))
    return Family(network, routing, images, variants)


def _question(plain: Sequence[Mapping[str, Any]], **fields: Any) -> Question:
    answers = [Plain(x["of"], frozenset(map(tuple, x["needs"])), x["says"]) for x in plain]
    return Question(**fields, plain=answers)


TEXTS = read_texts("questions")
QUESTIONS = {name: _question(**fields) for name, fields in TEXTS["questions"].items()}
FAMILIES = [_family(**row) for row in TEXTS["families"]["of"]]
STUDIES = _studies(TEXTS["studies"]) | {each.network: each.variants for each in FAMILIES}
