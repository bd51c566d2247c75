"""What an evaluation found of classes, for people."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torchcaps.tasks.tables import aligned

if TYPE_CHECKING:
    from torchcaps.tasks.evaluate import Evaluation

__all__ = ["class_rows", "class_table", "lines_of_classes", "mean_of"]


def lines_of_classes(found: "Evaluation") -> Iterator[str]:
    """The measures in which every class counts the same."""
    for k, line in enumerate(found.measures.lines()):
        yield f"{'' if k else 'classes':10}{line}"


def class_rows(found: "Evaluation") -> list[dict[str, Any]]:
    """What was counted of each class, as JSON has it."""
    rows = []
    for k, name in enumerate(found.class_names):
        there, said, scores = found.there[:, k], found.said[:, k], found.scores[:, k]
        rows.append(
            {
                "class": name,
                "images": int(there.sum()),
                "found": int((there & said).sum()),
                "said": int(said.sum()),
                "mean_score_there": mean_of(scores[there]),
                "mean_score_not_there": mean_of(scores[~there]),
            }
        )
    return rows


def class_table(found: "Evaluation") -> Iterator[str]:
    """A row for each class: how much of it is found, which is its sensitivity, and what it is taken
    for."""
    rows = class_rows(found)
    images = [f"{row['images']:,}" for row in rows]
    if measures := found.measures.classes.values():
        columns = {
            "found [95 %]": [row["sensitivity"].cell() for row in measures],
            "of": images,
            "specificity": [row["specificity"].cell() for row in measures],
            "AUROC": [row["auroc"].cell() for row in measures],
        }
    else:
        shares = [f"{row['found'] / row['images']:.1%}" if row["images"] else "–" for row in rows]
        columns = {"found": shares, "of": images}
    names = list(found.class_names)
    mistaken = [_mistaken(found, k) for k in range(len(names))]
    return aligned({"class": names, **columns, "mistaken most for": mistaken})


def mean_of(values: Tensor) -> float | None:
    """Their mean; None where there are none."""
    return float(values.double().mean()) if len(values) else None


def _mistaken(found: "Evaluation", k: int) -> str:
    if found.confusion is None:
        return ""
    row = found.confusion[k].clone()
    row[k] = 0
    most = int(row.argmax())
    return f"{found.class_names[most]} ({int(row[most])})" if row[most] else ""
