"""Show pictures to a trained network: the class of each, its scores, and what the scores are."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from torchcaps._paths import path_of
from torchcaps.data.read.folder import GREY, measure_picture, read_picture
from torchcaps.data.read.listed import FORMATS
from torchcaps.data.shown.crop import middle
from torchcaps.data.shown.resize import resize as stretched
from torchcaps.data.warp import place
from torchcaps.errors import TorchcapsError
from torchcaps.tasks.trained import MEANING, Own, Trained, open_trained
from torchcaps.train.folder.objects import damaged
from torchcaps.types import Output, ScoresAre

# What was done to a picture, in sentences.
Notes = tuple[str, ...]
# A picture so many standard deviations from the mean brightness is nothing that was trained on.
FAR = 5
# More rows than this are no picture any more.
MOST_DRAWN = 50


@dataclass(frozen=True)
class Prediction:
    """What a network says of one picture."""

    path: Path
    class_names: tuple[str, ...]
    pixels: Tensor  # [c, h, w], as the network saw it
    scores: Tensor  # [k]
    scores_are: ScoresAre
    probabilities: Tensor  # [k]
    reconstruction: Tensor | None  # [c, h, w]
    notes: Notes

    @property
    def winner(self) -> int:
        return int(self.scores.argmax())

    @property
    def meaning(self) -> str:
        """Say what the scores are."""
        return MEANING[self.scores_are]

    def numbers(self) -> dict[str, Any]:
        """Give everything known, as JSON can hold it; lists stand in the order of `classes`."""
        return {
            "path": str(self.path),
            "class": self.class_names[self.winner],
            "classes": self.class_names,
            "scores": self.scores.tolist(),
            "scores_are": self.scores_are,
            "probabilities": self.probabilities.tolist(),
            "notes": self.notes,
        }

    def text(self) -> str:
        """Write one line for people."""
        # By scores: of two that are far out both probabilities round to one.
        first, *rest = self.scores.topk(min(2, len(self.scores))).indices.tolist()
        then = "".join(
            f"; then {self.class_names[k]}, {float(self.probabilities[k]):.2f}" for k in rest
        )
        unsure = self.scores_are != "logits" and float(self.probabilities[first]) < 0.5
        doubt = "; no class reaches one half" if unsure else ""
        top = float(self.probabilities[first])
        return f"{self.path}: {self.class_names[first]}, {top:.2f}{then}{doubt}"


@torch.no_grad()
def predict(
    path: str | os.PathLike[str],
    images: Sequence[str | os.PathLike[str]],
    *,
    resize: bool = False,
    crop: bool = False,
    invert: bool = False,
    centre: bool = False,
    picture: Path | None = None,
    model: Own = None,
) -> tuple[Prediction, ...]:
    """Predict the class of picture files by a run's network, or a saved one. A picture is brought
    to the colours of the network.

    Arguments:
        path: a run folder or a saved network.
        images: the picture files.
        resize: stretch it to the size of the network, whatever its proportions.
        crop: take the largest middle part with the proportions that the network takes, then
            stretch.
        invert: swap light and dark, as for a digit in black on white.
        centre: move it by whole pixels until its centre of brightness is in the middle, as in
            MNIST.
        picture: a file to draw all of it into; None: nothing is drawn.
        model: the class of a network of one's own, or a module of it.

    >>> predict(Path("my-run"), [Path("seven.png")])[0].text()
    """
    files = [path_of("images", each) for each in images]
    if picture is not None:
        _check_drawing(picture, len(images))
    trained = open_trained(path, model=model)
    shape = trained.image
    if shape[0] not in (1, 3):
        raise TorchcapsError(
            f"{path} takes images of {shape[0]} channels, and pictures have one or three; show it "
            f"arrays from Python: torchcaps.load(path)(pixels)."
        )
    # A network trained on windows of larger images sees the one in the middle.
    size, window = trained.run.shown if trained.run else (None, None)
    frame = shape[1:] if size is None or window is None else size
    read = [_read(each, shape, frame, resize=resize, crop=crop) for each in files]
    if invert:
        read = [
            (1 - pixels, (*notes, f"{file}: light and dark swapped."))
            for file, (pixels, notes) in zip(files, read, strict=True)
        ]
    if centre:
        read = [_centred(file, *each) for file, each in zip(files, read, strict=True)]
    names = trained.class_names
    found = []
    config: Any = trained.model.config
    n_classes = config["n_classes"]
    if trained.run and names and n_classes and len(names) != n_classes:
        raise damaged(
            trained.run.result_file, f"it names {len(names)} classes of {n_classes} of the network"
        )
    for file, (pixels, notes) in zip(files, read, strict=True):
        # One by one: neither a large picture nor its neighbours can change what is said of it.
        out: Output = trained.model(pixels.unsqueeze(0).to(trained.device))
        if not bool(out.scores.isfinite().all()):
            raise TorchcapsError(
                f"the scores of {file} are not finite, so nothing can be said of it; torchcaps "
                f"doctor tells in which layer it begins."
            )
        found.append(_prediction(file, names, pixels, out, (*notes, *_odd(file, pixels, trained))))
    if picture is not None:
        _draw(found, picture)
    return tuple(found)


def _prediction(
    file: Path, names: tuple[str, ...] | None, pixels: Tensor, out: Output, notes: Notes
) -> Prediction:
    scores = out.scores[0].float().cpu()
    drawn = out.reconstruction
    return Prediction(
        path=file,
        class_names=names or tuple(map(str, range(len(scores)))),
        pixels=pixels,
        scores=scores,
        scores_are=out.scores_are,
        probabilities=out.probabilities()[0].float().cpu(),
        reconstruction=None if drawn is None else drawn[0].float().cpu(),
        notes=notes,
    )


def _centred(file: Path, pixels: Tensor, notes: Notes) -> tuple[Tensor, Notes]:
    """Move a picture to its centre of brightness; what comes in at the rim is black."""
    light = pixels.double().sum(0)  # [h, w]
    if not light.any():
        return pixels, notes
    height, width = light.shape
    middle_x, middle_y = (
        float((sums * torch.arange(len(sums))).sum() / sums.sum())
        for sums in (light.sum(0), light.sum(1))
    )
    x, y = round((width - 1) / 2 - middle_x), round((height - 1) / 2 - middle_y)
    moved = place(pixels[None], torch.tensor([[x, y]]))[0]
    across, down = _way(x, "to the right", "to the left"), _way(y, "down", "up")
    return moved, (*notes, f"{file}: moved by {across} and {down}.")


def _way(pixels: int, forward: str, back: str) -> str:
    many = "pixel" if abs(pixels) == 1 else "pixels"
    return f"{abs(pixels)} {many} {forward if pixels >= 0 else back}"


def _window(size: tuple[int, int], frame: tuple[int, int]) -> tuple[int, int]:
    """Find the largest part of a picture, (height, width), that has the proportions of a frame."""
    scale = min(size[0] / frame[0], size[1] / frame[1])
    return max(1, round(frame[0] * scale)), max(1, round(frame[1] * scale))


def _read(
    picture: Path,
    image: tuple[int, int, int],
    frame: tuple[int, int],
    *,
    resize: bool,
    crop: bool,
) -> tuple[Tensor, Notes]:
    """Read the pixels [c, h, w] in [0, 1] that a network takes, and what was done to have them."""
    if not picture.exists():
        raise TorchcapsError(f"there is no picture {picture}; is the path right?")
    if picture.is_dir():
        raise TorchcapsError(f"{picture} is a folder; name the pictures in it: {picture}/*.png.")
    if picture.suffix.lower() not in FORMATS:
        raise TorchcapsError(
            f"{picture} is none of the kinds that are read ({' '.join(FORMATS)}); save it as .png."
        )
    channels: Literal[1, 3] = 1 if image[0] == 1 else 3
    whole, mode = measure_picture(picture)
    notes = []
    height, width = _window(whole, frame) if crop else whole
    if (height, width) != whole:
        notes.append(f"the middle {height} × {width} of {whole[0]} × {whole[1]} pixels taken")
    if (height, width) != frame:
        # Height first, as everywhere in torchcaps.
        size, taken_size = f"{height} × {width}", f"{frame[0]} × {frame[1]}"
        if not resize and not crop:
            raise TorchcapsError(
                f"{picture} has {size} pixels and the network takes {taken_size}; crop it to what "
                f"it should look at, let --crop take its middle, or let --resize stretch it."
            )
        shape = "" if height * frame[1] == width * frame[0] else ", which changes its proportions"
        notes.append(f"stretched from {size} to {taken_size} pixels{shape}")
    if frame != image[1:]:
        notes.append(f"the middle {image[1]} × {image[2]} of its pixels shown")
    if mode.startswith("I;16"):
        notes.append("16 bits a pixel cut to 8")
    if mode in ("LA", "La", "PA", "RGBA", "RGBa"):
        notes.append("transparent places made white")
    if mode not in GREY and channels == 1:
        notes.append("colours made grey")
    if mode in GREY and channels == 3:
        notes.append("grey repeated in three channels")
    read_as = whole if crop else frame
    pixels = torch.from_numpy(read_picture(picture, channels, read_as).copy())
    if crop:
        pixels = stretched(middle(pixels, (height, width))[None].float(), frame)[0]
    sentences = (f"{picture}: {', '.join(notes)}.",) if notes else ()
    return middle(pixels, image[1:]).float() / 255, sentences


def _odd(picture: Path, pixels: Tensor, trained: Trained) -> tuple[str, ...]:
    """Say of a picture that it is far brighter or darker than any the network was shown."""
    known = trained.run.result().get("brightness") if trained.run else None
    if not known or not known["std"]:
        return ()
    here = float(pixels.mean())
    if abs(here - known["mean"]) <= FAR * known["std"]:
        return ()
    more = "bright" if here > known["mean"] else "dark"
    return (
        f"{picture}: mean brightness {here:.2f}, while the training images have "
        f"{known['mean']:.2f} ± {known['std']:.2f}; the network was shown nothing as {more}, so "
        f"its answer means little. Are light and dark swapped?",
    )


def _check_drawing(path: Path, count: int) -> None:
    """Refuse a drawing that could not be made, before any work is done."""
    from torchcaps.viz import check_figure_file

    check_figure_file(path)
    if count > MOST_DRAWN:
        raise TorchcapsError(
            f"a picture shows up to {MOST_DRAWN} images, but there are {count}; draw fewer at a "
            f"time."
        )


def _draw(found: Sequence[Prediction], path: Path) -> None:
    from torchcaps.viz import Shown, draw_predictions, write_figure

    rows = [
        Shown(each.path.name, each.pixels, each.probabilities, each.reconstruction, each.winner)
        for each in found
    ]
    words = "length" if found[0].scores_are == "lengths" else "probability"
    figure = draw_predictions(rows, found[0].class_names, measure=words)
    write_figure(figure, path)
