"""The part of a dissection that counts parse trees: keys and couplings."""

from torchcaps.analysis import Couplings, Keys, MeasureCouplings, MeasureKeys
from torchcaps.analysis.measure import Answer, Labelled
from torchcaps.analysis.trace import parents_are_classes


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

    def result(self) -> tuple[Keys, Couplings] | None:
        return (self._keys.result(), self._couplings.result()) if self._seen else None
