"""The questions that the papers fight over, as questions.toml has them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps_claims.texts import alike, read_texts
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
    study: str
    # What makes the network one that does not route, and what else both have.
    even: Mapping[str, Any]
    where: Mapping[str, Any] = {}

    @property
    def variants(self) -> Variants:
        """The two as variants: the base does not route, and the first column is compared."""
        gain = [Column("gain in points", "accuracy", is_compared=True)]
        where = _fields(self.where)
        return Variants(self.network, self.study, "", [*self.even], gain, self.even, where)


def _fields(where: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has neither sets nor none: an empty list is none, within a list too."""

    def read(value: Any) -> Any:
        return (frozenset(map(read, value)) or None) if isinstance(value, list) else value

    return {name: read(value) for name, value in where.items()}


TEXTS = read_texts("questions")
QUESTIONS = {name: Question(**fields) for name, fields in TEXTS["questions"].items()}
FAMILIES = [Family(**row) for row in TEXTS["families"]["of"]]
STUDIES = {
    name: Variants(
        columns=[Column(**each) for each in told.pop("columns")],
        where=_fields(told.pop("where", {})),
        **told,
    )
    for name, told in alike(TEXTS["studies"]).items()
}
