"""Write a trained network as others read it, and look whether the file scores as the network."""

import copy
import logging
import os
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps._extras import check_installed
from torchcaps._paths import beside, path_of, put_in_place
from torchcaps.errors import TorchcapsError
from torchcaps.layers import use_backend
from torchcaps.models.files.saving import load_network, save
from torchcaps.models.own import as_network
from torchcaps.models.scores import scores_only
from torchcaps.tasks.trained import Own, open_trained

ENDS = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}
# Random images that both are shown, how many of them are timed together, and how often.
SHOWN, MANY, ROUNDS = 7, 64, 5
# By how much a score may differ, and by which share of it: other kernels round otherwise.
MOST = 1e-4

Scores = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Exported:
    """What was written; times are medians on this machine, on one of its processors or more."""

    path: str
    to: str
    file_bytes: int
    parameters: int
    largest_difference: float  # of a score, over seven random images
    # Milliseconds for one image, and an image of 64: of the network in torchcaps, and of the file.
    ms_one: tuple[float, float]
    ms_of_many: tuple[float, float]

    def numbers(self) -> dict[str, Any]:
        """Give everything, as JSON has it."""
        return asdict(self)

    def text(self) -> str:
        """Say it in lines for people."""
        (one, there), (many, many_there) = self.ms_one, self.ms_of_many
        size, difference = self.file_bytes / 1e6, self.largest_difference
        return (
            f"written   {self.path}: {size:.2f} MB, {self.parameters:,} parameters\n"
            f"scores    the same but for {difference:.1g} on {SHOWN} random images\n"
            f"time      one image {there:.2f} ms, in torchcaps {one:.2f} ms; of {MANY} together "
            f"{many_there:.3f} ms an image, in torchcaps {many:.3f} ms"
        )


@torch.no_grad()
def export(
    network: str | os.PathLike[str],
    *,
    to: str,
    out: str | os.PathLike[str] | None = None,
    model: Own = None,
) -> Exported:
    """Write a network for another program. The file takes any number of images at once and returns
    scores; one that scores otherwise than the network is not kept.

    Arguments:
        network: a run folder, a saved network, or "zoo:NAME".
        to: "onnx" for onnxruntime and others, "torch" for torch.export.load, which then needs no
            torchcaps, or "safetensors", which `load` reads.
        out: the file; in the current folder, with the name of the network, if not given.
        model: the class of a network of one's own, or a module of it.

    >>> print(export("my-run", to="onnx").text())  # doctest: +SKIP
    """
    check_choice("to", to, tuple(ENDS))
    for package in ("onnx", "onnxscript", "onnxruntime") if to == "onnx" else ():
        check_installed(package, room="tasks.export", extra="export")
    trained = open_trained(network, model=model)
    name = trained.path.resolve()
    out = path_of(
        "out", (name.stem if name.is_file() else name.name) + ENDS[to] if out is None else out
    )
    if out.suffix != ENDS[to]:
        raise TorchcapsError(f"a network for {to} needs a file ending in {ENDS[to]}, not {out}.")
    if out.exists() or not out.parent.is_dir():
        wrong = "is there already" if out.exists() else "would be in a folder that is not there"
        raise TorchcapsError(f"{out} {wrong}; name another file with --out.")
    ours = scores_only(as_network(trained.model.cpu()).eval())
    images = torch.rand(MANY, *trained.image, generator=torch.Generator().manual_seed(0))
    with beside(out) as partial:
        theirs = _written(to, trained.model, images[:2], partial, model)
        expected, found = ours(images[:SHOWN]), theirs(images[:SHOWN])
        if not torch.allclose(found, expected, rtol=MOST, atol=MOST):
            raise TorchcapsError(
                f"what was exported for {to} scores otherwise, by up to "
                f"{float((found - expected).abs().max()):.2g}, so {out} was not written; a layer "
                f"of your own may do something that depends on the images' number or values."
            )
        put_in_place(partial, out)
    return Exported(
        path=str(out),
        to=to,
        file_bytes=out.stat().st_size,
        parameters=sum(each.numel() for each in trained.model.parameters()),
        largest_difference=float((found - expected).abs().max()),
        ms_one=_times(ours, theirs, images[:1]),
        ms_of_many=_times(ours, theirs, images),
    )


def _written(to: str, network: nn.Module, two: Tensor, path: Path, own: Own) -> Scores:
    """Write the file; what it computes."""
    if to == "safetensors":
        save(network, path)
        return scores_only(as_network(load_network(path, model=own)))
    # Operators of torch alone: who reads the file has none of ours.
    plain = copy.deepcopy(network)
    use_backend(plain, "plain")
    plain = scores_only(as_network(plain).eval())
    batch = {"images": {0: torch.export.Dim("batch")}}
    # Of torch about itself, and of packages that it looks for.
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            # A copy: a view would bring all that it is a view of into the file.
            program = torch.export.export(plain, (two.clone(),), dynamic_shapes=batch)
            if to == "torch":
                file = BytesIO()
                torch.export.save(program, file)
                path.write_bytes(file.getvalue())
                return torch.export.load(BytesIO(path.read_bytes())).module()
            made = torch.onnx.export(program, output_names=["scores"], dynamo=True, verbose=False)
    finally:
        logging.disable(before)
    assert made is not None
    made.save(path)
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def _times(ours: Scores, theirs: Scores, images: Tensor) -> tuple[float, float]:
    """Take the median milliseconds an image, of both in turns; the first round warms up."""
    found: tuple[list[float], list[float]] = [], []
    for _ in range(ROUNDS + 1):
        for network, times in zip((ours, theirs), found, strict=True):
            started = time.perf_counter()
            network(images)
            times.append(1e3 * (time.perf_counter() - started) / len(images))
    one, other = (statistics.median(times[1:]) for times in found)
    return one, other
