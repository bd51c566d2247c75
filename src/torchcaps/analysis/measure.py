"""One pass over images, and every measurement of it.

A measurement is a small final class: `update` takes one batch, `result` gives the numbers. Neither
the order of images nor their batches change a result.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from torchcaps._checks import check_finite, check_shape, check_type
from torchcaps.analysis.result import Result
from torchcaps.analysis.trace import check_no_one_hot
from torchcaps.errors import TorchcapsError, short
from torchcaps.types import Trace


class Answer(Protocol):
    """What a network returns, as far as measurements look: `torchcaps.types.Output` is one."""

    @property
    def scores(self) -> Tensor: ...  # [b, n_classes]
    @property
    def trace(self) -> Trace: ...


class Labelled(Protocol):
    """What a batch holds, as far as measurements look."""

    @property
    def pixels(self) -> Tensor: ...  # [b, ...]
    @property
    def labels(self) -> Tensor | None: ...  # [b], or [b, m]


class Pixels(NamedTuple):
    """A batch, with labels where there are any."""

    pixels: Tensor
    labels: Tensor | None = None


class Measurement(Protocol):
    """What `measure` feeds."""

    def update(self, out: Any, batch: Labelled) -> None:
        """Look at one batch of images, and at what the network returned for them."""

    def result(self) -> Result:
        """Return the numbers so far."""


class OfTraces(ABC):
    """A measurement that looks at traces alone."""

    def update(self, out: Answer, batch: Labelled) -> None:
        self.add(out.trace)

    @abstractmethod
    def add(self, trace: Trace) -> None:
        """Measure the images of a trace."""


def measure(
    network: Callable[[Tensor], Answer],
    batches: Iterable[Any],
    measurements: Sequence[Measurement],
    *,
    progress: Callable[[int], None] | None = None,
) -> tuple[Any, ...]:
    """Give the result of each measurement, in their order, from one forward pass an image.

    Arguments:
        network: any callable from pixels to an object with `scores` and a `trace`; of a network of
            this library `functools.partial(network.eval(), keep="last")`. No gradient is recorded.
        batches: any iterable of pixels [b, ...], of pairs (pixels, labels), or of objects with
            `pixels` and `labels`, as the data sets of this library give.
        measurements: fresh objects such as `MeasureActivity()`; those that have seen images go on.
        progress: called after each batch with the number of images so far.

    >>> (found,) = measure(model, batches, [MeasureDynamics()])
    """
    _check_measurements(measurements)
    check_mode(network)
    check_type("batches", batches, Iterable, as_a="an iterable of images, such as a DataLoader")
    images = 0
    for each in batches:
        batch = _batch(each)
        if not len(batch.pixels):
            continue
        with torch.no_grad():
            out = network(batch.pixels)
        _check(out, len(batch.pixels))
        if batch.labels is not None:
            check_no_one_hot(batch.labels, out.scores.shape[-1])
        for measurement in measurements:
            measurement.update(out, batch)
        images += len(batch.pixels)
        if progress is not None:
            progress(images)
    if not images:
        raise TorchcapsError(
            "there are no images to measure; an iterator can be gone through once."
        )
    return tuple(measurement.result() for measurement in measurements)


def _check_measurements(measurements: Any) -> None:
    wrong = [measurements]
    if isinstance(measurements, list | tuple):
        wrong = [x for x in measurements if isinstance(x, type) or not hasattr(x, "update")]
    if wrong:
        raise TorchcapsError(
            f"measurements are a list of fresh objects, [MeasureActivity()], but came with "
            f"{short(wrong[0])}; make each one by its brackets, and write a list also for one."
        )


def check_changes(changes: Any) -> None:
    """Refuse what is not functions of images by their names."""
    if not (isinstance(changes, Mapping) and all(map(callable, changes.values()))):
        raise TorchcapsError(
            f'changes are functions of images by their names, {{"turned": function}}, but came as '
            f"{short(changes)}."
        )


def changed_pixels(name: str, change: Callable[[Tensor], Tensor], pixels: Tensor) -> Tensor:
    """Return the images as a change makes them, one for each."""
    changed: object = change(pixels)
    if not isinstance(changed, Tensor) or changed.shape[:1] != pixels.shape[:1]:
        came = list(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
        raise TorchcapsError(
            f"a change gives back an image for each that it gets, {len(pixels)} here, but "
            f"{short(name)} returned {came}; let it return pixels [{len(pixels)}, ...]."
        )
    return changed


def checked_parts(parts: Tensor, images: int) -> Tensor:
    """Return which parts images hold [b, parts], as a function of batches says."""
    so = "it says of each image which parts are there"
    check_shape("the result of parts(batch)", parts, (images, "parts"), so)
    return parts


def check_mode(network: Any) -> None:
    """Refuse a module whose running means would go on learning from what is measured."""
    module = getattr(network, "func", network)
    if not isinstance(module, torch.nn.Module):
        return
    for each in module.modules():
        names = [name for name, _ in each.named_buffers(recurse=False)]
        if each.training and any(name.startswith("running_") for name in names):
            raise TorchcapsError(
                f"{type(module).__name__} is in training mode, in which the running means of its "
                f"{type(each).__name__} change with every batch; call its eval() first."
            )


def _batch(batch: Any) -> Labelled:
    if isinstance(batch, Tensor):
        return Pixels(batch)
    labelled: Labelled | None = None
    if isinstance(getattr(batch, "pixels", None), Tensor):
        labelled = batch
    elif isinstance(batch, Sequence) and len(batch) == 2 and isinstance(batch[0], Tensor):
        labelled = Pixels(*batch)
    if labelled is not None:
        _check_labels(labelled.labels, len(labelled.pixels))
        return labelled
    raise TorchcapsError(
        f"a batch must be a tensor of pixels, a pair (pixels, labels), or have `pixels` and "
        f"`labels`, but is {type(batch).__name__}."
    )


def _check_labels(labels: Any, images: int) -> None:
    if labels is None:
        return
    came = type(labels).__name__
    if isinstance(labels, Tensor):
        came = f"{labels.dtype} of shape {list(labels.shape)}"
        whole = not labels.is_floating_point() and labels.dtype != torch.bool
        if whole and labels.ndim in (1, 2) and len(labels) == images:
            return
    raise TorchcapsError(
        f"labels must be None or a tensor of whole numbers with a row for each of the {images} "
        f"images, but came as {came}; give labels.long() of the same images."
    )


def _check(out: Any, images: int) -> None:
    missing = [name for name in ("scores", "trace") if not hasattr(out, name)]
    if missing:
        raise TorchcapsError(
            f"the network must return an object with `scores` and a `trace`, but returned "
            f"{type(out).__name__} without {' and '.join(missing)}; wrap it in a function that "
            f"returns torchcaps.types.Output."
        )
    so = "each image that the network was given has a row"
    check_shape("the scores of the network", out.scores, (images, "classes"), so)
    check_finite("the scores of the network", out.scores)
