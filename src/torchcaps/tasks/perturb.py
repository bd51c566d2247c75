"""What each component of a class capsule draws: components moved one by one, and decoded.

For component d of the pose v of the predicted class and every step s, the decoder draws
v + s e_d [sabour2017], [renzulli2025] Fig. 11. How far a component reaches:
    range_d = mean over pixels of |drawn(v + s_last e_d) − drawn(v + s_first e_d)|
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps._paths import path_of
from torchcaps.errors import TorchcapsError
from torchcaps.tasks.decoding import takes_decoder
from torchcaps.tasks.trained import check_fit, check_image, open_trained
from torchcaps.types import Capsules

# -0.2 to 0.2 [gu2021] Fig. 4; [renzulli2025] does not say.
STEPS = tuple(k / 20 for k in range(-4, 5))


@dataclass(frozen=True)
class Perturbed:
    """One image, and how far each component of its class capsule changes the drawing."""

    data: str
    image: int
    label: str
    predicted: str
    length: float
    error: float  # mean squared error of the unmoved drawing, a pixel
    steps: tuple[float, ...]
    ranges: tuple[float, ...]  # by component, mean absolute change a pixel

    def numbers(self) -> dict[str, Any]:
        """Give everything, as JSON has it."""
        return asdict(self)

    def text(self) -> str:
        """Say it in lines for people."""
        order = sorted(range(len(self.ranges)), key=lambda d: -self.ranges[d])
        ranges = ", ".join(f"{d} {self.ranges[d]:.3f}" for d in order)
        return (
            f"image       {self.image} of {self.data}, {self.label}; drawn as {self.predicted}, "
            f"whose capsule is {self.length:.3f} long\n"
            f"error       {self.error:.4f}, mean square a pixel of the drawing as it is\n"
            f"components  by how much a pixel changes from {self.steps[0]:g} to "
            f"{self.steps[-1]:g}: {ranges}"
        )


def perturb(
    network: str | os.PathLike[str],
    *,
    image: int = 0,
    data: str | None = None,
    root: Path | None = None,
    picture: Path | None = None,
) -> Perturbed:
    """Move the components of the predicted class capsule one by one, and decode.

    Arguments:
        network: a run folder, or a saved network, with a decoder.
        image: the number of the test image; the first unless another is named, so that nobody picks
            a pretty one.
        data: data set, where the network is a file.
        root: where the data lies, for data sets that are files.
        picture: file for the drawings, a row a component and a column a step, .svg, .pdf or .png.

    >>> print(perturb(Path("my-run")).text())
    """
    network = path_of("network", network)
    if picture is not None:
        from torchcaps.viz import check_figure_file

        check_figure_file(picture)
    trained = open_trained(network)
    test = trained.images("test", data=data, root=root)
    check_fit(trained.model, test)
    check_image("--image", image, test)
    batch = test.batch(torch.tensor([image]))
    pixels, labels = batch.pixels.float(), batch.labels[0].view(-1)
    classes, predicted = _classes(trained.model, pixels.to(trained.device), network)
    drawn = drawn_by_component(trained.model, classes, predicted)
    found = Perturbed(
        data=test.name,
        image=image,
        label=" and ".join(test.class_names[each] for each in labels.tolist()),
        predicted=test.class_names[predicted],
        length=float(classes.pose[0, predicted].norm()),
        error=float((drawn[0, STEPS.index(0.0)].cpu() - pixels[0]).square().mean()),
        steps=STEPS,
        ranges=tuple((drawn[:, -1] - drawn[:, 0]).abs().flatten(1).mean(1).tolist()),
    )
    if picture is not None:
        from torchcaps.viz import draw_perturbations, write_figure

        write_figure(draw_perturbations(pixels[0], drawn, steps=STEPS), picture)
    return found


@torch.no_grad()
def drawn_by_component(model: nn.Module, classes: Capsules, of: int) -> Tensor:
    """Decode poses [1, k, d] of one image as components of class `of` move: [d, step, c, h, w]."""
    pose = classes.pose[0]  # [k, d]
    size = pose.shape[1]
    moved = torch.tensor(STEPS).to(pose).view(1, -1, 1) * torch.eye(size).to(pose).unsqueeze(1)
    poses = pose.repeat(size, len(STEPS), 1, 1)  # [d, step, k, d]
    poses[:, :, of] += moved
    target = torch.full((size * len(STEPS),), of, device=pose.device)
    decoder: Any = model.decoder
    drawn: Tensor = decoder(Capsules(poses.flatten(0, 1)), target)
    return torch.unflatten(drawn, 0, (size, len(STEPS)))


@torch.no_grad()
def _classes(model: nn.Module, pixels: Tensor, network: Path) -> tuple[Capsules, int]:
    """Find the class capsules of one image, and the class of the highest score."""
    if getattr(model, "decoder", None) is None:
        raise TorchcapsError(
            f"the network of {network} has no decoder, so it draws nothing; train one on it, with "
            f"--init-from, --option decoder=true and the other parts frozen (docs/pruning.md)."
            if takes_decoder(model)
            else f"the network of {network} has no decoder, nor an option for one, so it draws "
            f"nothing; take a network with the option decoder, as `torchcaps models` lists them."
        )
    output = model.eval()(pixels)
    if not isinstance(output.classes, Capsules):
        raise TorchcapsError(
            f"the network of {network} has no class capsules, so there is no component to move; "
            f"take a network whose last layer has capsules."
        )
    return output.classes, int(output.scores[0].argmax())
