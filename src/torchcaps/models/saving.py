"""Networks on disk: one safetensors file, the configuration in its header; nothing is unpickled."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from torchcaps._paths import path_of
from torchcaps.errors import TorchcapsError
from torchcaps.layers import ROUTINGS, Routing
from torchcaps.layers.routing.table import import_path
from torchcaps.models.registry import MODELS, make_model

__all__ = ["load", "save"]

HEADER = "torchcaps"
# The digest of the tensors and of the configuration: safetensors itself has no checksum. It stands
# among the configuration, since two keys of metadata have no order of their own.
DIGEST = "sha256"


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a network made by `create_model`; a crash leaves the old file or the new one."""
    config = getattr(model, "config", None)
    if not isinstance(config, dict):
        raise TorchcapsError(
            f"save needs a network made by create_model, which knows its own name and options, but "
            f"got a {type(model).__name__}; for other modules use safetensors.torch.save_model."
        )
    path = path_of("path", path)
    if path.is_dir():
        raise TorchcapsError(f"{path} is a folder; name a file in it, ending in .safetensors.")
    if not path.parent.is_dir():
        raise TorchcapsError(
            f"the folder {path.parent} does not exist; make it, or save elsewhere."
        )
    state = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        header = {**config, DIGEST: _digest(state, config)}
        metadata = {HEADER: json.dumps(header)}
        # Through bytes, because save_file makes files that only their owner may read.
        partial.write_bytes(safetensors.torch.save(state, metadata=metadata))
        # Not even a power cut leaves an empty file.
        with partial.open("r+b") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], *, routing: Routing | None = None) -> nn.Module:
    """Read a network that `save` wrote, ready to look at images (in evaluation mode).

    No code comes out of the file: a network or a routing of one's own is named in it, and is to be
    registered or given before.

    Arguments:
        path: the file.
        routing: for a network that was made with a routing object, another one like it.
    """
    path = path_of("path", path)
    if not path.is_file():
        raise TorchcapsError(f"there is no file {path}; a saved network ends in .safetensors.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        state = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise TorchcapsError(
            f"{path} is not a readable safetensors file ({error}); was the copy cut short, or is "
            f"it another format?"
        ) from None
    try:
        config = json.loads(metadata[HEADER])
        # Files of earlier versions have none.
        is_whole = DIGEST not in config or config.pop(DIGEST) == _digest(state, config)
        name = str(config.pop("name"))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise TorchcapsError(
            f"{path} holds tensors but no torchcaps configuration; it was not written by "
            f"torchcaps.save."
        ) from None
    if not is_whole:
        raise TorchcapsError(
            f"{path} is damaged: its tensors or its configuration are not those that were saved; "
            f"copy it once more from where it is whole."
        )
    _check_known(path, name, config, routing)
    if routing is not None:
        config["routing"] = routing
    model = _without_weights(name, config)
    try:
        model.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise TorchcapsError(
            f"the tensors in {path} do not fit the network {name} that its header describes "
            f"({str(error).splitlines()[-1].strip()})."
        ) from None
    return model.eval()


def _without_weights(name: str, config: dict[str, Any]) -> nn.Module:
    """Without memory or random numbers, to be given the tensors of a file as they are. What a
    network of one's own holds beside these would be lost, so that is made as always."""
    if MODELS[name].is_own:
        with torch.random.fork_rng(devices=[]):
            return make_model(name, **config)
    with torch.device("meta"):
        return make_model(name, **config)


def _check_known(path: Path, name: str, config: dict[str, Any], given: Routing | None) -> None:
    """Whether all that the file names is here."""
    again = (
        "a file never runs code, so import what registers it first (on the command line: --import)"
    )
    if name not in MODELS:
        raise TorchcapsError(f"{path} holds the network {name!r}, which is unknown; {again}.")
    routing = config.get("routing")
    if isinstance(routing, dict):
        needed = str(routing.get("class"))
        kind = needed.rpartition(".")[2]
        if given is None or import_path(type(given)) != needed:
            came = "none came" if given is None else f"{import_path(type(given))} came"
            raise TorchcapsError(
                f"{path} was made with a routing object of {needed}, and {came}; give one again: "
                f"load(path, routing={kind}())."
            )
    elif given is not None:
        raise TorchcapsError(
            f"{path} names its routing, {routing!r}, so none can be given; leave routing out."
        )
    elif isinstance(routing, str) and routing not in ROUTINGS:
        raise TorchcapsError(
            f"{path} holds a network with {routing!r} routing, which is unknown; {again}."
        )


def _digest(state: dict[str, Tensor], config: dict[str, Any]) -> str:
    """The SHA-256 of every tensor with its name, and of the configuration."""
    seen = hashlib.sha256(json.dumps(config).encode())
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        seen.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        seen.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return seen.hexdigest()
