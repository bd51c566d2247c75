"""The weights of a frozen trunk, out of a safetensors file; nothing is unpickled."""

import hashlib
import os
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from torchcaps._paths import path_of
from torchcaps.errors import TorchcapsError
from torchcaps.layers.trunk import FrozenTrunk, TrunkKind

# What the file of a kind has to be, in words.
FILES: dict[TrunkKind, str] = {
    "resnet18": "a network resnet18 that torchcaps saved, as model.safetensors in a run folder",
    "resnet18_imagenet": "weights of ResNet-18 for ImageNet by the names that public code gives "
    "them, conv1.weight, layer1.0.conv1.weight and so on",
}
# Parts of a residual block: their names in public code, and here.
PARTS = {
    "conv1": "residual.0",
    "bn1": "residual.1",
    "conv2": "residual.3",
    "bn2": "residual.4",
    "downsample.0": "shortcut.0",
    "downsample.1": "shortcut.1",
}


def trunk_of(network: nn.Module) -> FrozenTrunk | None:
    """The frozen trunk of a network that has one."""
    return next((each for each in network.modules() if isinstance(each, FrozenTrunk)), None)


def take_trunk(network: nn.Module, path: str | os.PathLike[str]) -> str:
    """Give the frozen trunk of a network the weights of a file; twelve characters that tell them.

    Arguments:
        network: made with a `trunk`, as `create_model("rem_dr", trunk="resnet18")`.
        path: a safetensors file. For trunk "resnet18" it is a network resnet18 that torchcaps
            saved, for "resnet18_imagenet" ResNet-18 for ImageNet by the names of public code.

    >>> take_trunk(create_model("rem_dr", trunk="resnet18"), "mine.safetensors")  # doctest: +SKIP
    """
    trunk, path = trunk_of(network), path_of("path", path)
    if trunk is None:
        raise TorchcapsError(
            f"this network has no frozen trunk to give the weights of {path} to; make it with one, "
            f'as create_model("rem_dr", trunk="resnet18").'
        )
    if not path.is_file():
        raise TorchcapsError(f"there is no file {path}; it must be {FILES[trunk.kind]}.")
    try:
        state = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise TorchcapsError(
            f"{path} is not a readable safetensors file ({error}); it must be {FILES[trunk.kind]}."
        ) from None
    expected = trunk.maps.state_dict()
    seen = hashlib.sha256()
    for name, old in expected.items():
        if name.endswith("num_batches_tracked"):
            continue
        new = _checked(state, name, old, trunk.kind, path)
        seen.update(f"{name} {new.dtype}".encode())
        seen.update(new.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        expected[name] = new
    trunk.maps.load_state_dict(expected)
    return seen.hexdigest()[:12]


def _checked(
    state: dict[str, Tensor], name: str, old: Tensor, kind: TrunkKind, path: Path
) -> Tensor:
    """The tensor of a file that belongs where `old` is."""
    theirs = f"features.0.{name}" if kind == "resnet18" else _published(name)
    found = state.get(theirs)
    if found is None or found.shape != old.shape or not found.is_floating_point():
        came = "lacks it" if found is None else f"has {found.dtype} {list(found.shape)}"
        raise TorchcapsError(
            f"the trunk {kind} takes {theirs} as floats {list(old.shape)}, but {path} {came}; it "
            f"must be {FILES[kind]}, for images of as many channels."
        )
    if not bool(found.isfinite().all()):
        raise TorchcapsError(f"{theirs} in {path} holds NaN or infinite values; it is damaged.")
    return found


def _published(name: str) -> str:
    """A name of ours as public code of ResNet-18 has it.

    >>> _published("4.residual.0.weight"), _published("11.shortcut.1.bias")
    ('layer1.0.conv1.weight', 'layer4.1.downsample.1.bias')
    """
    number, _, rest = name.partition(".")
    if int(number) < 2:
        return f"{('conv1', 'bn1')[int(number)]}.{rest}"
    stage, block = divmod(int(number) - 4, 2)
    part, _, value = rest.rpartition(".")
    theirs = next(name for name, ours in PARTS.items() if ours == part)
    return f"layer{stage + 1}.{block}.{theirs}.{value}"
