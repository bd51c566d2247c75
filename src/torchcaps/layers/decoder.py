"""Decoders: an image from the class capsules."""

import math
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError
from torchcaps.layers.after import check_image
from torchcaps.layers.capsule_layer import check_capsules, check_sizes, first_weight
from torchcaps.ops.checks import check_classes, check_tensor, may_look, one_hot
from torchcaps.types import Capsules

Mask = Literal["class", "none"]


class Decoder(nn.Module):
    """FC 512 – FC 1024 – FC pixels, ReLU between, sigmoid at the end [gu2021] §3, [renzulli2025]
    C.2.

    It sees the poses of one class, all others zeroed: the true class where it is given, else the
    longest. [sabour2017] A target [b, m] names m classes of each image, as two overlaid digits
    have: each is drawn alone, [b, m, c, h, w]. [gu2021] §3.2

    With mask "none" it sees the poses of all classes and no target: "normal" in [gu2021] Table 2.

    Arguments:
        n_classes: how many classes there are.
        d_in: components of a class capsule.
        image: (channels, height, width) of what is drawn.
        mask: which capsules the decoder sees: "class", those of one class, or "none", all.

    >>> decoder = Decoder(n_classes=10, d_in=16, image=(1, 28, 28))
    >>> decoder(Capsules(torch.rand(2, 10, 16))).shape
    torch.Size([2, 1, 28, 28])
    """

    def __init__(
        self, *, n_classes: int, d_in: int, image: tuple[int, int, int], mask: Mask = "class"
    ):
        super().__init__()
        check_sizes("Decoder", n_classes=n_classes, d_in=d_in)
        check_image(image)
        check_choice("mask", mask, get_args(Mask))
        self.n_classes, self.d_in, self.image, self.mask = n_classes, d_in, image, mask
        self.layers = nn.Sequential(
            nn.Linear(n_classes * d_in, 512),
            nn.ReLU(inplace=True),
            nn.Linear(512, 1024),
            nn.ReLU(inplace=True),
            nn.Linear(1024, math.prod(image)),
            nn.Sigmoid(),
        )

    def forward(self, classes: Capsules, target: Tensor | None = None) -> Tensor:
        return torch.unflatten(self.layers(self.seen(classes, target)), -1, self.image)

    def seen(self, classes: Capsules, target: Tensor | None = None) -> Tensor:
        """Give what it draws from: the poses of all classes in a row, [b, k · d], those zeroed that
        it does not see; [b, m, k · d] where m classes of each image are drawn."""
        _check_dtype(classes, self.layers)
        # Where all are seen, it does not matter which components make a class.
        is_whole = self.mask == "none" and classes.pose.ndim == 3
        if not is_whole or math.prod(classes.pose.shape[1:]) != self.n_classes * self.d_in:
            _check_poses(classes, n_classes=self.n_classes, d_in=self.d_in)
        pose = classes.pose  # [b, k, d]
        if self.mask == "class":
            target = _drawn(pose, target)
            if target.ndim == 2:
                pose = pose.unsqueeze(1)  # [b, 1, k, d]
            shown = one_hot(target, self.n_classes, pose.dtype)  # [b, k] or [b, m, k]
            pose = pose * shown.unsqueeze(-1)
        return pose.flatten(-2)


class DeconvDecoder(nn.Module):
    """FC ReLU to 16 small maps, batch norm, 3 × 3 transposed convolutions to 64, 32, 16, … channels
    and to the image's, ReLU at the end alone: the decoder in the code of [rajasegaran2019].

    It sees the pose of one class and not which class it is; `target` as in Decoder. While training
    the batch norm counts every drawn image.

    The maps start at the image's sides over 2ⁿ, rounded up, and are doubled n times; what then lies
    beyond the image is cropped. n is 3 where both sides have 64 pixels or more, else 2, as the code
    has it for 64 and 28.

    Arguments:
        d_in: components of a class capsule.
        image: (channels, height, width) of what is drawn.

    >>> DeconvDecoder(d_in=16, image=(1, 28, 28))(Capsules(torch.rand(2, 10, 16))).shape
    torch.Size([2, 1, 28, 28])
    """

    def __init__(self, *, d_in: int, image: tuple[int, int, int]):
        super().__init__()
        check_sizes("DeconvDecoder", d_in=d_in)
        check_image(image)
        self.d_in, self.image = d_in, image
        channels, height, width = image
        doubled = (32, 16, 8) if min(height, width) >= 64 else (32, 16)
        factor = 2 ** len(doubled)
        start = (16, math.ceil(height / factor), math.ceil(width / factor))
        self.start = nn.Sequential(
            nn.Linear(d_in, math.prod(start)),
            nn.ReLU(),
            nn.Unflatten(-1, start),
            # Keras' ε. Its momentum, 0.8, is the share that stays; torch's is the share that comes.
            nn.BatchNorm2d(start[0], eps=1e-3, momentum=0.2),
        )
        self.deconvolutions = nn.Sequential(
            _deconvolution(start[0], 64, stride=1),
            *(_deconvolution(n_in, n_out, stride=2) for n_in, n_out in pairwise((64, *doubled))),
            _deconvolution(doubled[-1], channels, stride=1),
            nn.ReLU(),
        )

    def forward(self, classes: Capsules, target: Tensor | None = None) -> Tensor:
        _check_dtype(classes, self.start)
        _check_poses(classes, n_classes=None, d_in=self.d_in)
        target = _drawn(classes.pose, target)
        index = target if target.ndim == 2 else target.unsqueeze(1)
        pose = classes.pose.take_along_dim(index.unsqueeze(-1), dim=1)  # [b, m, d]
        drawn = self.deconvolutions(self.start(pose.flatten(0, 1)))
        _, height, width = self.image
        return torch.unflatten(drawn[..., :height, :width], 0, target.shape)


def _deconvolution(n_in: int, n_out: int, *, stride: int) -> nn.ConvTranspose2d:
    """Make a deconvolution padded so that the sides grow by the stride exactly."""
    return nn.ConvTranspose2d(n_in, n_out, 3, stride, padding=1, output_padding=stride - 1)


def _check_dtype(classes: Capsules, layers: nn.Module) -> None:
    check_capsules(classes)
    came = classes.pose.dtype
    weight = first_weight(layers)
    dtype = came if weight is None else weight.dtype
    if came == dtype:
        return
    kind = classes.pose.device.type
    # The meta device has none.
    autocast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    if not (came.is_floating_point and autocast):
        raise TorchcapsError(
            f"this decoder draws from poses in {dtype}, the precision of its weights, but they "
            f"came in {came}; convert one of them, e.g. pose.to({dtype})."
        )


def _check_poses(classes: Capsules, *, n_classes: int | None, d_in: int) -> None:
    shape = list(classes.pose.shape)
    if len(shape) != 3 or shape[2] != d_in or not shape[1] or n_classes not in (None, shape[1]):
        k = "classes" if n_classes is None else n_classes
        raise TorchcapsError(
            f"this decoder draws from poses [batch, {k}, {d_in}], but they came with shape "
            f"{shape}; was it made for another network?"
        )


def _drawn(pose: Tensor, target: Tensor | None) -> Tensor:
    """Give the classes to draw, [b] or [b, m]: the given ones, else the longest."""
    if target is None:
        lengths: Tensor = torch.linalg.vector_norm(pose, dim=-1)
        return lengths.argmax(-1)
    check_tensor("target", target)
    batch, n_classes = pose.shape[:2]
    one, several = target.shape == (batch,), target.ndim == 2 and len(target) == batch
    if target.dtype != torch.int64 or not (one or several):
        raise TorchcapsError(
            f"target must be class indices, int64 [{batch}], one an image, or [{batch}, m], m an "
            f"image, but came as {target.dtype} with shape {list(target.shape)}."
        )
    is_full = several and target.shape[1] == n_classes > 2
    if is_full and may_look(target) and bool((target <= 1).all()):
        raise TorchcapsError(
            f"target {list(target.shape)} looks like a zero-one matrix, but a decoder draws "
            f"classes by their indices, [{batch}] or [{batch}, m]; name those that are present."
        )
    check_classes(target, n_classes)
    return target
