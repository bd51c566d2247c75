"""The questions that the papers fight over, as questions.toml has them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps_claims.texts import read_texts
from torchcaps_claims.variants import Column, Variants


class Question(NamedTuple):
    """A question with its answer, its picture, and the statements of the papers about it."""

    title: str
    # Paragraphs whose numbers `torchcaps_claims.said` fills in; the first stands on the front page.
    answer: Sequence[str]
    # How strong the answer is.
    limits: str
    picture: Mapping[str, Any]
    # What a statement says where it holds, "yes" or "no", by its id.
    statements: Mapping[str, str]
    # The studies of ours whose tables stand in the appendix, by their names.
    own: Sequence[str]


class Family(NamedTuple):
    """A network that routes beside its twin that does not."""

    network: str
    routing: str
    images: str
    # Of these two alone; the base does not route, and the first column is compared.
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


TEXTS = read_texts("questions")
QUESTIONS = {name: Question(**fields) for name, fields in TEXTS["questions"].items()}
FAMILIES = [_family(**row) for row in TEXTS["families"]["of"]]
STUDIES = _studies(TEXTS["studies"])
