"""Take out of a network what nothing reads or what is silent, and measure what that brings."""

import os
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchcaps._checks import check_count, check_number
from torchcaps._paths import path_of
from torchcaps.analysis import MeasureZeroVotes, Thresholds, lengths
from torchcaps.analysis.activity import is_dead
from torchcaps.analysis.moments import Moments
from torchcaps.data import Images, sample_of
from torchcaps.errors import TorchcapsError
from torchcaps.layers import CapsuleLayer
from torchcaps.models import save
from torchcaps.models.images import device_of
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.smaller import SMALLER, smaller
from torchcaps.models.structure import capsule_layers_of, runs
from torchcaps.prune import Silent, removable, silent
from torchcaps.tasks.footprint import Footprint
from torchcaps.tasks.progress import progress
from torchcaps.tasks.trained import check_fit, open_trained
from torchcaps.train import accuracy

# Images a batch, and how often each network is timed, in turns.
BATCH, ROUNDS = 64, 9
# Training images at which is looked for silent parts.
IMAGES = 1000


@dataclass(frozen=True)
class Size:
    """What a network is and takes; times are medians on this machine."""

    parts: dict[str, int]
    parameters: int
    file_bytes: int
    ms_an_image: float  # in a batch of 64, or of all test images where these are fewer
    ms_alone: float  # one image by itself
    peak_bytes: int  # weights, and tensors that are alive together for that batch
    accuracy: float


@dataclass(frozen=True)
class Shrunk:
    """A network before and after."""

    path: str
    looked_at: int
    below: float | None
    dead: bool
    images: int
    largest_change: float
    # By capsule layer: the share of pairs of a child and a parent whose weights were all zero.
    zero_blocks: dict[str, float]
    before: Size
    after: Size

    def numbers(self) -> dict[str, Any]:
        """Give everything, as JSON has it."""
        return asdict(self)

    def text(self) -> str:
        """Say it in lines for people."""
        old, new = self.before, self.after
        parts = [
            f"{name} {count} → {new.parts[name]}"
            for name, count in old.parts.items()
            if count != new.parts[name]
        ]
        how = "that nothing reads"
        if self.below is not None:
            how += f", or that were no longer than {self.below:g} on {self.looked_at} images"
        if self.dead:
            how += f", or that were dead on {self.looked_at} images"
        blocks = ", ".join(f"{name} {share:.2%}" for name, share in self.zero_blocks.items())
        if not parts:
            said = f"nothing is taken out: of the parts that can go there are none {how}; "
            said += f"{self.path} is the same network"
            return f"{said}\n{'zero blocks':<12}{blocks}" if blocks else said
        many = min(BATCH, self.images)
        rows = [
            ("taken out", f"{', '.join(parts)}: parts {how}"),
            ("parameters", _ratio(old.parameters, new.parameters, ",d")),
            ("file", _ratio(old.file_bytes / 1e6, new.file_bytes / 1e6, ".2f", " MB")),
            ("time", _ratio(old.ms_an_image, new.ms_an_image, ".3f", f" ms an image of {many}")),
            ("", _ratio(old.ms_alone, new.ms_alone, ".3f", " ms for one alone")),
            (
                "memory",
                _ratio(old.peak_bytes / 1e6, new.peak_bytes / 1e6, ".1f", f" MB for {many}"),
            ),
            ("accuracy", f"{old.accuracy:.2%} → {new.accuracy:.2%} of {self.images} test images"),
            ("scores", f"the largest change is {self.largest_change:.2g}"),
        ]
        rows[1:1] = [("zero blocks", blocks)] if blocks else []
        return "\n".join(f"{name:<12}{said}" for name, said in rows)


def shrink(
    network: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    below: float | None = None,
    dead: bool = False,
    data: str | None = None,
    root: Path | None = None,
    images: int | None = None,
) -> Shrunk:
    """Write a smaller network that scores as the given one does.

    Arguments:
        network: a run folder, or a saved network.
        out: the file of the smaller one, ending in .safetensors.
        below: also take out capsules whose length never exceeds it on training images, and
            channels that are zero on all of them; without it only what nothing reads.
        dead: also take out capsules whose lengths on training images have a mean and a spread of
            at most 0.05, as `MeasureActivity` counts them.
        data: data set, where the network is a file.
        root: where the data lies, for data sets that are files.
        images: at how many training images is looked for both, a sample with every class; 1,000
            if not given.

    >>> print(shrink(Path("my-run-50"), Path("small.safetensors")).text())
    """
    network, out = path_of("network", network), path_of("out", out)
    _check(out, below, dead=dead, images=images)
    trained = open_trained(network)
    test = trained.images("test", data=data, root=root)
    check_fit(trained.model, test)
    seen, looked_at = None, 0
    if below is not None or dead:
        training = trained.images("train", data=data, root=root)
        shown = training.batch(sample_of(training, images or IMAGES)).pixels
        looked_at = len(shown)
        seen = _seen(trained.model, shown.split(BATCH), dead=dead, channels=below is not None)
    small = _smallest(trained.model, seen, below or 0.0)
    before_file = network if network.is_file() else network / "model.safetensors"
    pixels = test.batch(slice(0, BATCH)).pixels.to(trained.device)
    times = _times(trained.model, small, pixels)
    change = _largest_change(trained.model, small, test)
    # Written once it has answered: whoever tries again is not told that the file is there.
    save(small, out)
    before, after = (
        Size(
            parts=_parts(model),
            parameters=_count(model),
            file_bytes=file.stat().st_size,
            ms_an_image=timed[0],
            ms_alone=timed[1],
            peak_bytes=_peak(model, test),
            accuracy=accuracy(model, test),
        )
        for model, file, timed in (
            (trained.model, before_file, times[0]),
            (small, out, times[1]),
        )
    )
    if small is trained.model:
        # Two timings of one network differ too, and would look like a gain.
        after = replace(before, file_bytes=after.file_bytes)
    blocks = _zero_blocks(trained.model, pixels[:1])
    return Shrunk(str(out), looked_at, below, dead, len(test), change, blocks, before, after)


def _smallest(model: nn.Module, seen: Silent | None, below: float) -> nn.Module:
    """Take parts out until none is left: what only such a part has read is read by nothing then."""
    small, again = model, smaller(model, removable(model, seen, below=below))
    while _count(again) < _count(small):
        small, again = again, smaller(again, removable(again))
    return small


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _check(out: Path, below: float | None, *, dead: bool, images: int | None) -> None:
    if out.suffix != ".safetensors":
        raise TorchcapsError(f"the smaller network needs a file ending in .safetensors, not {out}.")
    if out.exists():
        raise TorchcapsError(f"{out} is there already; name another file.")
    if not out.parent.is_dir():
        raise TorchcapsError(f"the folder {out.parent} does not exist; make it, or name another.")
    if below is not None:
        check_number("below", below, so="it is a length, such as --silent 0.01 on the command line")
    if images is not None:
        check_count("images", images, so="so many are looked at")
    if images is not None and below is None and not dead:
        raise TorchcapsError(
            f"images says at how many training images is looked for silent parts, but came as "
            f"{images} without a length up to which parts are silent; give that too (below=0, or "
            f"--silent 0 on the command line), ask for dead capsules (dead=True, or --dead), or "
            f"leave images out."
        )


def _seen(model: nn.Module, batches: Sequence[Tensor], *, dead: bool, channels: bool) -> Silent:
    """Find what is silent on images; with `dead` what is dead too, without `channels` capsules
    alone."""
    device = device_of(model)
    with progress("looking for silent parts", sum(map(len, batches))) as advance:
        seen = silent(model, (_told(batch.to(device), advance) for batch in batches))
    if not channels:
        seen.channels.clear()
    if dead:
        _take_as_silent(seen, model, (batch.to(device) for batch in batches))
    return seen


@torch.no_grad()
def _take_as_silent(seen: Silent, model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Count as silent the children of a layer that `MeasureActivity` would call dead."""
    moments: dict[str, Moments] = {}
    for images in batches:
        for layer in model(images, keep="last").trace:
            moments.setdefault(layer.name, Moments()).add(lengths(layer.children))
    for name, length in moments.items():
        longest = seen.capsules[name]
        longest[is_dead(length.mean, length.std, Thresholds()).to(longest.device)] = 0


def _told(batch: Tensor, advance: Any) -> Tensor:
    advance(len(batch))
    return batch


def _parts(model: nn.Module) -> dict[str, int]:
    """Count how many channels, types and capsules there are."""
    counts: dict[str, int] = {}
    with suppress(TorchcapsError):  # a trunk that is no chain keeps its channels
        for run in runs(model):
            if run.readers:
                maker = cast(nn.Conv2d, model.get_submodule(run.name))
                what = "channels" if run.size == 1 else "types"
                counts[f"{what} of {run.name}"] = maker.out_channels // run.size
    if isinstance(model, CapsuleNetwork):
        # One whose children were taken out one by one lies on no grid any more.
        said = model.config.get(SMALLER, {})
        counts["types of primary"] = said.get("types", model.primary_grid[2])
    for name, layer in capsule_layers_of(model).items():
        if isinstance(layer, CapsuleLayer):
            counts[f"children of {name}"] = layer.n_in
    return counts


@torch.no_grad()
def _zero_blocks(model: nn.Module, pixels: Tensor) -> dict[str, float]:
    """Measure what unstructured pruning left to take out; of layers whose children share no
    weights."""
    found = MeasureZeroVotes()
    with suppress(TorchcapsError):  # no layer has such weights
        found.add(model(pixels, keep="last").trace)
        return {layer.name: layer.zero_blocks for layer in found.result().layers}
    return {}


@torch.no_grad()
def _times(old: nn.Module, new: nn.Module, pixels: Tensor) -> tuple[list[float], list[float]]:
    """Take the median milliseconds an image in a batch and alone, of both networks in turns."""
    found: dict[tuple[int, int], list[float]] = {}
    for _ in range(ROUNDS + 1):
        for which, model in enumerate((old, new)):
            for k, batch in enumerate((pixels, pixels[:1])):
                started = time.perf_counter()
                model(batch)
                if pixels.is_cuda:
                    torch.cuda.synchronize()
                each = 1e3 * (time.perf_counter() - started) / len(batch)
                found.setdefault((which, k), []).append(each)
    # The first round warms up.
    medians = {key: statistics.median(values[1:]) for key, values in found.items()}
    return [medians[0, 0], medians[0, 1]], [medians[1, 0], medians[1, 1]]


@torch.no_grad()
def _peak(model: nn.Module, test: Images) -> int:
    weights: int = sum(t.numel() * t.itemsize for t in model.state_dict().values())
    pixels = test.batch(slice(0, BATCH)).pixels.to(device_of(model))
    with Footprint() as footprint:
        model(pixels)
    return weights + int(footprint.tensors)


@torch.no_grad()
def _largest_change(old: nn.Module, new: nn.Module, test: Images) -> float:
    device = device_of(old)
    largest = torch.zeros((), device=device)
    for index in torch.arange(len(test)).split(256):
        pixels = test.batch(index).pixels.to(device)
        # Where a change is no number, the largest is none either.
        largest = torch.maximum(largest, (old(pixels).scores - new(pixels).scores).abs().max())
    return float(largest)


def _ratio(old: float, new: float, form: str, unit: str = "") -> str:
    times = f" ({old / new:.2f} times less)" if new and old / new >= 1.005 else ""
    return f"{old:{form}} → {new:{form}}{unit}{times}"
