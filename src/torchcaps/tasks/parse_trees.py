"""The part of a dissection that counts parse trees: keys, couplings, and their pictures."""

from collections.abc import Sequence

from torch import nn

from torchcaps.analysis import MeasureCouplings, MeasureKeys
from torchcaps.analysis.measure import Answer, Labelled
from torchcaps.analysis.trace import parents_are_classes
from torchcaps.errors import TorchcapsError
from torchcaps.prune import sparsity
from torchcaps.report import Picture, Trees
from torchcaps.viz import draw_couplings_histogram, draw_keys


class MeasureTrees:
    """Keys and couplings of images that show one object, where the last layer is dense and has a
    parent for each class; nothing of others."""

    def __init__(self) -> None:
        self._keys, self._couplings = MeasureKeys(), MeasureCouplings()
        self._seen = False

    def update(self, out: Answer, batch: Labelled) -> None:
        shows_one = batch.labels is not None and batch.labels.ndim == 1
        if shows_one and parents_are_classes(out.trace, out.scores.shape[1]):
            self._keys.update(out, batch)
            self._couplings.update(out, batch)
            self._seen = True

    def result(self, model: nn.Module, class_names: Sequence[str], label: str) -> Trees | None:
        """Give what was counted, with two pictures."""
        if not self._seen:
            return None
        keys, couplings = self._keys.result(), self._couplings.result()
        pictures = [
            Picture(
                "Trees of each predicted class",
                "A long blue bar: many trees, and hardly two images share one. No bar: one tree.",
                f"Entropy and number of the parse trees of {label}, class by class.",
                draw_keys(keys, class_names=class_names),
            ),
            Picture(
                "How couplings are distributed",
                "Couplings that all lie at one value choose nothing; a tree has many near 0 and "
                "few near 1.",
                f"Histograms of the couplings of {label}, layer by layer.",
                draw_couplings_histogram((label, couplings)),
            ),
        ]
        return Trees(keys, _zeros(model), pictures)


def _zeros(model: nn.Module) -> float | None:
    try:
        share = sparsity(model).share
    except TorchcapsError:
        return None
    return share or None
