"""Which epoch is the best: what patience and keep = "best" go by."""

from collections.abc import Mapping
from typing import Literal

from torchcaps.data import Images
from torchcaps.errors import TorchcapsError
from torchcaps.train.class_measures import MEASURES, why_undefined

# "loss", "accuracy", or a measure of MEASURES, of the held-out images.
SelectBy = Literal[
    "loss", "accuracy", "balanced_accuracy", "macro_f1", "auroc", "average_precision"
]


def in_words(select_by: SelectBy) -> str:
    """Give what the best epoch is told by: "the lowest validation loss"."""
    if select_by == "loss":
        return "the lowest validation loss"
    words = MEASURES[select_by].words if select_by in MEASURES else select_by
    return f"the highest validation {words}"


def cost(metrics: Mapping[str, float], select_by: SelectBy) -> float:
    """Give what is the lowest of the best epoch: the loss, or the measure with its sign turned."""
    if f"validation_{select_by}" not in metrics:
        raise TorchcapsError(
            f'select_by = "{select_by}" needs held-out images of every class, but none is of some '
            f'class; hold out more by validation_share, or take select_by = "loss".'
        )
    value = metrics[f"validation_{select_by}"]
    return value if select_by == "loss" else -value


def check_selectable(select_by: SelectBy, held: Images) -> None:
    """Refuse a measure that held-out images do not have, as far as their labels are known."""
    if select_by not in MEASURES:
        return
    if held.judged_by != "class":
        raise TorchcapsError(
            f'select_by = "{select_by}" needs images of one class each, but images of {held.name} '
            f'may show several objects; take select_by = "loss" or "accuracy".'
        )
    labels = getattr(held, "labels", None)
    why = None if labels is None else why_undefined(labels, held.class_names)
    if why is not None:
        raise TorchcapsError(
            f'select_by = "{select_by}" needs held-out images of every class, but of the '
            f"{len(held)} of {held.name} {why}; hold out more by validation_share, or take "
            f'select_by = "loss".'
        )
