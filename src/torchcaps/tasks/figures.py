"""Pictures of a trained network for a paper: what it gets right, how sure it is, where it looks."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from torchcaps._paths import write_whole
from torchcaps.analysis.saliency import carrying, saliency_grid
from torchcaps.analysis.trace import class_coupling, lengths
from torchcaps.data import Images, sample_of
from torchcaps.errors import TorchcapsError
from torchcaps.models.images import prepared
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.own import as_network
from torchcaps.tasks.evaluation import Evaluation
from torchcaps.tasks.trained import Trained
from torchcaps.train.class_curves import (
    GRID,
    at_temperature,
    calibrated,
    class_curves,
    temperature,
)
from torchcaps.types import Capsules, Output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of more classes those with the lowest AUROC have curves, and the first have pictures.
MOST_CURVES, MOST_CLASSES = 12, 10
# Images among which those along a dimension are chosen, how many are shown, of how many dimensions.
SAMPLE, ALONG, MOST_DIMENSIONS = 1000, 9, 16
BATCH = 50


def write_figures(
    trained: Trained, images: Images, found: Evaluation, held: Evaluation | None, folder: Path
) -> None:
    """Draw what a network says of images, and what is inside: each picture as .svg and .pdf, their
    numbers and why some are missing as numbers.json. The temperature is of images held out."""
    from torchcaps.viz import write_figure

    if found.confusion is None:
        raise TorchcapsError(
            f"the pictures are of images that show one object each, but those of {found.data} show "
            f"several; leave --figures out."
        )
    numbers: dict[str, Any] = {"left_out": {}}
    figures = _answers(found, held, numbers)
    for name, draw in (("curves", _curves), ("parts", _parts), ("dimensions", _dimensions)):
        try:
            figures |= draw(trained, images, found)
        except TorchcapsError as error:
            numbers["left_out"][name] = str(error)
            logging.getLogger("torchcaps").warning("no picture of the %s: %s", name, error)
    for name, figure in figures.items():
        for ending in (".svg", ".pdf"):
            write_figure(figure, folder / f"{name}{ending}")
    write_whole(folder / "numbers.json", json.dumps(numbers, indent=1) + "\n")


def _answers(
    found: Evaluation, held: Evaluation | None, numbers: dict[str, Any]
) -> dict[str, "Figure"]:
    from torchcaps.viz.judged import draw_confusion, draw_reliability

    assert found.confusion is not None
    numbers["confusion"] = found.confusion.tolist()
    figures = {"confusion": draw_confusion(found.confusion, found.class_names)}
    out = Output(found.scores, found.scores_are)
    if float(out.probabilities().max()) > 1 + 1e-6:
        numbers["left_out"]["reliability"] = "lengths above 1 are no probabilities."
        return figures
    ways = {"as it is": out}
    if held is not None:
        best = temperature(Output(held.scores, held.scores_are), held.labels)
        numbers["temperature"] = best
        ways[f"temperature {best:.3g} of images held out"] = at_temperature(out, best)
    lines = {}
    for name, each in ways.items():
        sums, error = calibrated(each, found.labels, found.groups)
        lines[f"{name}: ECE {error.cell()}"] = sums
        numbers.setdefault("calibration_error", []).append(error.numbers())
    return {**figures, "reliability": draw_reliability(lines)}


def _curves(_: Trained, __: Images, found: Evaluation) -> dict[str, "Figure"]:
    from torchcaps.viz.judged import draw_curves

    found_curves = class_curves(Output(found.scores, found.scores_are), found.labels, found.groups)
    curves = {k: each for k, each in enumerate(found_curves) if each is not None}
    measures, roc, precision = list(found.measures.classes.values()), [], []
    worst = sorted(curves, key=lambda k: measures[k]["auroc"].value or 0)[:MOST_CURVES]
    for k in sorted(worst):
        images, false, recall, share, bands = curves[k]
        title, nothing = f"{found.class_names[k]} ({images:,})", images / len(found.labels)
        upper, lower = (None, None) if bands is None else ((GRID, *x) for x in bands.unbind(1))
        note = f"AUROC {measures[k]['auroc'].cell()}"
        roc.append((title, note, (false, recall), upper, (0, 1)))
        # Steps: a precision holds back to the recall before. The last is where all is found.
        last = int((recall < 1).sum()) + 1
        steps = (recall[:last].repeat_interleave(2)[1:-1], share[1:last].repeat_interleave(2))
        note = f"AP {measures[k]['average_precision'].cell()}"
        precision.append((title, note, steps, lower, (nothing, nothing)))
    if not roc:
        raise TorchcapsError("all images are of one class, so no class has a curve.")
    return {
        "roc": draw_curves(roc, x="false positive rate", y="true positive rate"),
        "precision-recall": draw_curves(precision, x="recall", y="precision"),
    }


@torch.no_grad()
def _seen(trained: Trained, images: Images, index: Tensor) -> Output:
    pixels = images.batch(index).pixels.to(trained.device)
    out: Output = as_network(trained.model).eval()(pixels, keep="last")
    return out


def _parts(trained: Trained, images: Images, found: Evaluation) -> dict[str, "Figure"]:
    """Draw the first image of each class, so that nobody picks a pretty one."""
    from torchcaps.viz.parts import draw_parts

    names = found.class_names
    firsts = [(found.labels == k).nonzero()[:1, 0] for k in range(len(names))]
    index = torch.cat(firsts)[:MOST_CLASSES]
    out = _seen(trained, images, index)
    said = out.scores.argmax(-1).cpu()
    grid = _places(trained, images.batch(index).pixels, out, said)
    inside, size = carrying(grid), images.image_shape[1:]
    maps = interpolate(grid[:, None], size=size, mode="bilinear", align_corners=False)[:, 0]
    titles = [
        f"{names[found.labels[at]]}, image {at}\nanswer {names[answer]}\n"
        f"half from {int(marked.sum())} of {marked.numel()} places"
        for at, answer, marked in zip(index.tolist(), said.tolist(), inside, strict=True)
    ]
    return {"parts": draw_parts(images.batch(index).pixels, maps, inside, titles)}


def _places(trained: Trained, pixels: Tensor, out: Output, said: Tensor) -> Tensor:
    """Say how much of an answer comes from where, [k, rows, columns], as `saliency_grid` does. If
    the children of the classes lie at one position, their part in the answer is spread over the
    maps that they are read off: each map times the gradient by it, where that is positive."""
    network, n_classes = trained.model, out.scores.shape[1]
    grids = [(layer.child_grid or ())[:2] for layer in out.trace]
    if isinstance(network, CapsuleNetwork) and grids == [(1, 1)]:
        maps = network.backbone(prepared(pixels.to(trained.device), network.image, network))
        if maps[0, 0].numel() > 1:
            coupling = class_coupling(out.trace, said).to(maps)
            with torch.enable_grad():
                maps = maps.detach().requires_grad_()
                strength = (lengths(network.primary(maps)) * coupling).sum()
            (slope,) = torch.autograd.grad(strength, maps)
            places: Tensor = (maps * slope).sum(1).clamp(min=0)
            return places.detach().cpu()
    return saliency_grid(out.trace, said, n_classes=n_classes)


def _dimensions(trained: Trained, images: Images, found: Evaluation) -> dict[str, "Figure"]:
    """Draw images of each class along the dimensions of its capsule, those that vary most first."""
    from torchcaps.viz.parts import draw_along

    figures, few = {}, sample_of(images, SAMPLE).sort().values
    for k, name in enumerate(found.class_names[:MOST_CLASSES]):
        index = few[found.labels[few] == k]
        seen = [_seen(trained, images, some).classes for some in index.split(BATCH)]
        if not all(isinstance(each, Capsules) for each in seen):
            raise TorchcapsError("the network has no class capsules, so no dimensions of theirs.")
        if len(index) < 2:
            continue
        pose = torch.cat([each.pose[:, k].float().cpu() for each in seen if each is not None])
        varied = pose.double().std(0).sort(descending=True, stable=True).indices[:MOST_DIMENSIONS]
        places = torch.linspace(0, len(index) - 1, min(ALONG, len(index))).round().long()
        values, order = pose[:, varied].sort(dim=0, stable=True)
        rows = torch.stack([images.batch(index[each]).pixels for each in order[places].T])
        ends = zip(varied.tolist(), *values[[0, -1]].tolist(), strict=True)
        title = f"dimensions of the capsule of {name!r}, over {len(index)} of its images"
        labels = [f"{d}: {low:.2f} to {high:.2f}" for d, low, high in ends]
        figures[f"dimensions-{k}"] = draw_along(rows, labels, title=title)
    return figures
