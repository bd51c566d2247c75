"""Backbones by name, and the weights that others have trained for them."""

import hashlib
import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import safetensors.torch
import torch
from torch import Tensor, nn

from torchcaps._paths import path_of
from torchcaps._printable import printable
from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.layers.backbone import ImagenetMaps
from torchcaps.layers.pretrained import PretrainedBackbone

TIMM = "timm:"
# By which all that was trained on ImageNet normalises colours.
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
# Ours by (blocks, bottleneck).
RESNETS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
}


def make_backbone(name: str, channels: int) -> PretrainedBackbone:
    """Make a backbone by its name, with random weights, for images of so many channels."""
    if name.startswith(TIMM):
        return PretrainedBackbone(_of_timm(name, pretrained=False))
    if name not in RESNETS:
        raise TorchcapsError(
            f"backbone={short(name)} is unknown; {nearest(name, RESNETS)}, or timm:NAME where timm "
            f"is installed."
        )
    # Colours, or grey in each of them; of others nobody has trained any.
    is_shown = channels in (1, 3)
    blocks, bottleneck = RESNETS[name]
    maps = ImagenetMaps(3 if is_shown else channels, blocks, bottleneck=bottleneck)
    maps.pretrained_cfg = IMAGENET if is_shown else {}
    return PretrainedBackbone(maps)


def take_weights(network: Any) -> None:
    """Give the backbone of a network the weights that its configuration names; from then on that
    tells them by twelve characters."""
    name, weights = network.config["backbone"], network.config["weights"]
    if weights == "random" or next(network.parameters()).is_meta:
        return
    maps = network.get_submodule("backbone.module")
    is_of_timm = weights == "pretrained" and name.startswith(TIMM)
    path = Path(name) if is_of_timm else _file(name, weights)
    state = _of_timm(name, pretrained=True).state_dict() if is_of_timm else read_weights(path)
    blocks = maps.blocks if isinstance(maps, ImagenetMaps) else None
    theirs = {key: published(key, blocks) if blocks else key for key in maps.state_dict()}
    must = f"weights of {name} for colour pictures, by the names of torchvision or timm"
    told = take(maps, state, theirs, f"the backbone {name}", path, must)
    network.config["weights"] = told


def _file(name: str, weights: str) -> Path:
    """Give the file that is named; or the only one in the caches of torch.hub and of the Hugging
    Face hub, where torchvision and timm lay theirs."""
    if weights != "pretrained":
        return path_of("weights", weights)
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    caches = {
        Path(torch.hub.get_dir(), "checkpoints"): f"{name}-*.pth",
        hub: f"models--timm--{name}.*/snapshots/*/model.safetensors",
    }
    found = [path for cache, pattern in caches.items() for path in sorted(cache.glob(pattern))]
    if len(found) == 1:
        return found[0]
    looked = map(str, found or [cache / pattern for cache, pattern in caches.items()])
    raise TorchcapsError(
        f"there {'are several' if found else 'is no'} {name} in the caches, {', '.join(looked)}; "
        f"say which file it is, weights=FILE, on the command line --option weights=FILE, or train "
        f"it from nothing, weights=random."
    )


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """Read the tensors of a file by name: of safetensors, or of torch.save, of which nothing else
    is unpickled."""
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        with catch_warnings():
            simplefilter("ignore")  # What torch thinks of a file that is none.
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # Whatever a damaged file makes an unpickler do.
        raise TorchcapsError(
            f"{path} holds no weights that can be read ({_why(error)}); it must be safetensors, or "
            f"what torch.save made of a state_dict."
        ) from None
    state = state.get("state_dict", state) if isinstance(state, dict) else {}
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def _of_timm(name: str, *, pretrained: bool) -> nn.Module:
    """Give the maps of a network of timm; imported here, since nobody else needs it."""
    name = name.removeprefix(TIMM)
    try:
        timm: Any = importlib.import_module("timm")
        made: nn.Module = timm.create_model(name, pretrained=pretrained, features_only=True)
    # It imports torchvision, which fails in ways of its own where it does not fit torch.
    except Exception as error:
        raise TorchcapsError(
            f"timm did not make {name} ({_why(error)}); it must be installed, with the torchvision "
            f"that it imports and that fits this torch, and know this name, or take "
            f"{', '.join(RESNETS)}."
        ) from None
    return made


def _why(error: Exception) -> str:
    said = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {printable(said[0], keep='')[:150]}"


def published(name: str, blocks: Sequence[int] = (2, 2, 2, 2)) -> str:
    """Give a name of ours as public code of a ResNet with so many blocks a stage has it.

    >>> published("4.residual.0.weight"), published("11.shortcut.1.bias")
    ('layer1.0.conv1.weight', 'layer4.1.downsample.1.bias')
    """
    number, *part, value = name.split(".")
    if not part:
        return f"{('conv1', 'bn1')[int(number)]}.{value}"
    stage, block, at = 0, int(number) - 4, int(part[1])
    while block >= blocks[stage]:
        stage, block = stage + 1, block - blocks[stage]
    # A convolution, its normalisation, a ReLU, and so on.
    kind = f"{('conv', 'bn')[at % 3]}{at // 3 + 1}"
    theirs = f"downsample.{at}" if part[0] == "shortcut" else kind
    return f"layer{stage + 1}.{block}.{theirs}.{value}"


def take(
    maps: nn.Module,
    state: Mapping[str, Tensor],
    theirs: Mapping[str, str],
    who: str,
    path: Path,
    must: str,
) -> str:
    """Give maps every tensor of a file, by its names there; twelve characters that tell them."""
    expected, seen = maps.state_dict(), hashlib.sha256()
    for name, old in expected.items():
        if name.endswith("num_batches_tracked"):
            continue
        new = state.get(theirs[name])
        if new is None or new.shape != old.shape or not new.is_floating_point():
            came = "lacks it" if new is None else f"has {new.dtype} {list(new.shape)}"
            raise TorchcapsError(
                f"{who} takes {theirs[name]} as floats {list(old.shape)}, but {path} {came}; it "
                f"must be {must}."
            )
        if not bool(new.isfinite().all()):
            raise TorchcapsError(
                f"{theirs[name]} in {path} holds NaN or infinite values; it is damaged."
            )
        seen.update(f"{name} {new.dtype}".encode())
        seen.update(new.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        expected[name] = new
    maps.load_state_dict(expected)
    return seen.hexdigest()[:12]
