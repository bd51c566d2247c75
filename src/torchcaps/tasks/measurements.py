"""Measurements by name, and couplings on a grid, for a network that somebody names."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps.analysis import (
    MeasureCausalUse,
    MeasureCompactness,
    MeasureFidelity,
    MeasureFixedPoint,
    MeasureInequality,
    MeasureInvariance,
    MeasureKeys,
    Measurement,
    MeasurePerturbation,
    MeasureRobustness,
    MeasureSelectivity,
    MeasureSeparation,
    quantise,
)
from torchcaps.analysis.by_name import TRACE_MEASUREMENTS, keep_for
from torchcaps.data import Batch, Cropped, Images, shown_parts
from torchcaps.data.some import Some
from torchcaps.errors import TorchcapsError
from torchcaps.layers import Decoder
from torchcaps.layers.routing.base import has_argument
from torchcaps.models.images import device_of, evaluating
from torchcaps.models.own import as_given, as_network
from torchcaps.tasks.changes import compactness_factors, invariance_changes, robustness_changes
from torchcaps.tasks.decoding import decoder_of
from torchcaps.types import Couple, Output

# Of the grid from 0 to 1: one number for all routed layers, or one for each from below.
Levels = int | Sequence[int]


Network = Callable[[Tensor], Output]
Make = Callable[[Network, Network, nn.Module], Measurement]


def _alone(kind: Callable[[], Measurement]) -> Make:
    return lambda plain, traced, model: kind()


def _perturbation(decoder: Decoder) -> Measurement:
    return MeasurePerturbation(decoder.seen, decoder.layers)


# Each from the network as a function of pixels, from the same function with a trace, and from the
# network itself.
MEASUREMENTS: dict[str, Make] = {
    **{name: _alone(kind) for name, kind in TRACE_MEASUREMENTS.items()},
    "causal-use": lambda plain, traced, model: MeasureCausalUse(model),
    "compactness": lambda plain, traced, model: MeasureCompactness(plain, compactness_factors()),
    "fidelity": lambda plain, traced, model: MeasureFidelity(of_parts),
    "fixed-point": _alone(MeasureFixedPoint),
    "invariance": lambda plain, traced, model: MeasureInvariance(traced, invariance_changes()),
    "perturbation": lambda plain, traced, model: _perturbation(decoder_of(model)),
    "robustness": lambda plain, traced, model: MeasureRobustness(plain, robustness_changes()),
    "selectivity": lambda plain, traced, model: MeasureSelectivity(of_parts),
    "separation": lambda plain, traced, model: MeasureSeparation(decoder_of(model).seen),
}
OF_PARTS = ("fidelity", "selectivity")


class Shown(NamedTuple):
    """A batch, and how its images show each part: 0 not, 1 as a stray, 2 as one of the whole."""

    pixels: Tensor
    labels: Tensor
    shown: Tensor  # int [b, parts]


def of_parts(batch: Any) -> Tensor:
    shown: Tensor = batch.shown
    return shown


def check_names(names: Sequence[str]) -> None:
    """Refuse a name that is none, before anything is opened."""
    for name in names:
        check_choice("measurement", name, MEASUREMENTS)


def measured_by(
    names: Sequence[str], model: nn.Module, *, levels: Levels | None = None
) -> dict[str, Measurement]:
    """Make a fresh measurement of a network for each name; where its couplings are on a grid, keys
    are counted on that of the last layer."""
    check_names(names)
    if levels is not None and "causal-use" in names:
        raise TorchcapsError(
            "causal-use replaces couplings, and so does a grid of levels; measure the one without "
            "the other."
        )
    plain, traced = (
        _there(model, seen_through(model, levels=levels, names=each)) for each in ((), names)
    )
    made = {name: MEASUREMENTS[name](plain, traced, model) for name in names}
    if levels is not None:
        # On a second grid they would be rounded twice, and no network has such couplings.
        last = levels if isinstance(levels, int) else levels[-1]
        once: dict[str, Measurement] = {
            "inequality": MeasureInequality(levels=(), grid=levels),
            "keys": MeasureKeys(levels=last, sweep=()),
        }
        made |= {name: once[name] for name in names if name in once}
    return made


def _there(model: nn.Module, network: Network) -> Network:
    device = device_of(model)
    return lambda pixels: network(pixels.to(device))


def parts_shown(images: Images, names: Sequence[str]) -> Tensor | None:
    """Say how each image shows each part, int [n, parts]; None where no measurement asks for it."""
    asking = [name for name in names if name in OF_PARTS]
    if not asking:
        return None
    truth = getattr(images, "truth", None)
    whole = images.images if isinstance(images, Some) else images
    if truth is None and isinstance(whole, Cropped):
        raise TorchcapsError(
            f"{asking[0]} compares capsules with the parts that images show, but these are "
            f"windows of {whole.size[0]} × {whole.size[1]}, which may leave parts out; train and "
            f"measure on whole images, stretched to that size with image_size instead of crop."
        )
    if truth is None:
        raise TorchcapsError(
            f"{asking[0]} compares capsules with the parts that images show, which {images.name} "
            f"does not tell; take the images of part-whole."
        )
    return shown_parts(truth)


def with_parts(batch: Batch, parts: Tensor | None, index: Tensor | slice) -> Batch | Shown:
    """Give the batch of the images `index`, with what `parts_shown` says of them."""
    return batch if parts is None else Shown(batch.pixels, batch.labels, parts[index])


def seen_through(
    model: nn.Module, *, levels: Levels | None = None, names: Sequence[str] = ()
) -> Callable[[Tensor], Output]:
    """Make the network a function of pixels that keeps what is measured, on a grid of `levels`."""
    asked: dict[str, Any] = {}
    if names:
        asked["keep"] = keep_for(names)
    if levels is None:
        return partial(model, **asked)
    return partial(model, couple=on_grid(model, levels), **asked)


def on_grid(model: nn.Module, levels: Levels) -> Couple | dict[str, Couple]:
    """Make a function on couplings that moves them to the grid, or one for each routed layer."""
    network = as_given(model)
    if not has_argument(network.forward, "couple"):
        raise TorchcapsError(
            f"{type(network).__name__} takes no `couple`, so it has no couplings to quantise; take "
            f"a capsule network, or let the forward of your own take couple=None and hand it to "
            f"its layers."
        )
    if isinstance(levels, int):
        return partial(quantise, levels=levels)
    layers = routed_layers(model)
    if not layers:
        raise TorchcapsError(
            f"nobody says what images {type(network).__name__} takes, so which routed layers it "
            f"has is not known, and couplings are quantised to one number of levels for all of "
            f"them, but {len(levels)} came; give one, or give the module an attribute "
            f"image=(channels, height, width)."
        )
    if len(levels) != len(layers):
        raise TorchcapsError(
            f"couplings are quantised to one number of levels, or to one for each of the "
            f"{len(layers)} routed layers {', '.join(layers)}, but {len(levels)} came."
        )
    return {name: partial(quantise, levels=each) for name, each in zip(layers, levels, strict=True)}


def routed_layers(model: nn.Module, image: Sequence[int] | None = None) -> list[str]:
    """Name the routed layers from below; none where nobody says what images it takes."""
    network = as_network(model)
    layers = getattr(as_given(network), "layers", None)
    if isinstance(layers, nn.ModuleDict):
        # Of one's own it may hold others too: what routes takes a function on its couplings.
        return [name for name, part in layers.items() if has_argument(part.forward, "couple")]
    said = getattr(model, "config", None)
    known = said.get("image") if isinstance(said, dict) else None
    image = image or known or getattr(network, "image", None)
    if image is None:
        return []
    # Of one's own they may lie anywhere, but a trace has them.
    with torch.no_grad(), evaluating(network):
        out = network(torch.full((1, *image), 0.5, device=device_of(network)), keep="last")
    return [layer.name for layer in out.trace]


def in_words(levels: Levels) -> str:
    """Say levels as 11, or 11 and 6."""
    return str(levels) if isinstance(levels, int) else " and ".join(map(str, levels))
