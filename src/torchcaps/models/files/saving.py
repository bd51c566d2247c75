"""Networks on disk: one safetensors file, the configuration in its header; nothing is unpickled."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from torchcaps._digests import check_digest
from torchcaps._names import explains_names
from torchcaps._paths import beside, path_of, put_in_place
from torchcaps._printable import printable
from torchcaps.errors import TorchcapsError, short
from torchcaps.layers import ROUTINGS, Routing
from torchcaps.layers.routing.table import import_path
from torchcaps.models.files import hub
from torchcaps.models.files.as_made import (
    BY_HAND,
    check_as_made,
    kept_by_hand,
    made_again,
    set_again,
)
from torchcaps.models.files.refit import say_what_is_new, take_dtypes, take_fitting
from torchcaps.models.limits import without_memory
from torchcaps.models.own import OWN, OwnNetwork, as_given, check_has_weights, own_module
from torchcaps.models.preset import MODELS, NamedNetwork, Net
from torchcaps.models.registry import make_model

# Where a run folder has its network.
OF_A_RUN = "model.safetensors"

HEADER = "torchcaps"
# The digest of the tensors and of the configuration: safetensors itself has no checksum. It stands
# among the configuration: two keys of metadata have no fixed order, so files would differ.
DIGEST = "sha256"
# The entry of the configuration where single numbers are kept as half ones; no option is so called.
HALF = "kept in half"
# Letters of what another library says of a file.
MOST_REASON = 200


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a network; a crash leaves the old file or the new one.

    Arguments:
        model: one of `create_model`, which knows its own name and options; eps, momentum and p of
            its norms and dropouts are kept as they are set. Or any other module: the file has the
            import path of its class, and `load` wants the class again.
        path: the file to write, ending in .safetensors.

    >>> save(create_model("capsnet"), "capsnet.safetensors")
    """
    if not isinstance(model, nn.Module):
        # As other libraries save networks.
        is_state = isinstance(model, Mapping) and any(isinstance(t, Tensor) for t in model.values())
        what = "its state_dict; give the network itself" if is_state else short(model)
        raise TorchcapsError(f"save takes a network, an nn.Module, but got {what}.")
    path = path_of("path", path)
    if path.is_dir():
        raise TorchcapsError(f"{path} is a folder; name a file in it, ending in .safetensors.")
    if not path.parent.is_dir():
        raise TorchcapsError(
            f"the folder {path.parent} does not exist; make it, or save elsewhere."
        )
    content = content_of(model)
    with beside(path) as partial:
        partial.write_bytes(content)
        put_in_place(partial, path)


def content_of(model: nn.Module, *, half: bool = False) -> bytes:
    """Give what `save` writes. With `half`, numbers are written in half precision, which `load`
    makes single again."""
    module = as_given(model)
    # What torch.compile returns holds the network by another name, under which no file opens.
    module = getattr(module, "_orig_mod", module)
    config = getattr(module, "config", None)
    if not isinstance(config, dict) or not {"name", "image", "n_classes"} <= set(config):
        config = (model if isinstance(model, OwnNetwork) else OwnNetwork(module)).config
    check_has_weights(module)
    _check_numbers(module)
    # Copies, because modules may share a tensor, which safetensors refuses to write.
    state = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in module.state_dict().items()
    }
    made = None if config["name"] == OWN else made_again(module)
    if made is not None:
        check_as_made(module, made)
        config = {**config, **kept_by_hand(module, made)}
    if half:
        state = {name: t.half() if t.is_floating_point() else t for name, t in state.items()}
        config = {**config, HALF: True}
    header = {**config, DIGEST: _digest(state, config)}
    # Bytes, because save_file makes files that only their owner may read.
    return safetensors.torch.save(state, metadata={HEADER: json.dumps(header)})


def _check_numbers(module: nn.Module) -> None:
    """Refuse what is no tensor, and tensors that hold no numbers."""
    for name, value in module.state_dict().items():
        if not isinstance(value, Tensor):
            raise TorchcapsError(
                f"a file of a network holds tensors alone, but {name} of "
                f"{type(module).__name__}.state_dict() is a {type(value).__name__}; let "
                f"get_extra_state give a tensor, or keep it in a buffer, with register_buffer."
            )
        if is_lazy(value):
            raise TorchcapsError(
                f"{name} of {type(module).__name__} has no size before it has seen images; give "
                f"the network a batch of them before it is saved."
            )
        if value.is_meta:
            raise TorchcapsError(
                f"{name} of {type(module).__name__} is on device meta, where tensors hold no "
                f"numbers; give it weights, with load_state_dict(…, assign=True), before it is "
                f"saved."
            )


def push(
    model: nn.Module | str | os.PathLike[str],
    repo: str,
    *,
    card: str | None = None,
    private: bool = False,
) -> str:
    """Put a network on a hub, as model.safetensors and README.md of a repository, and give what
    `load` takes to have this very network again. Needs the extra hub, and to be logged in there.

    Arguments:
        model: a network, or a run folder or a saved network, of which recipe and result are told.
        repo: OWNER/NAME; it is made if it is not there.
        card: the text of README.md, if not the one that is made of what is known.
        private: whether a repository that is made is for you alone.

    >>> push("my-run", "me/digits")  # doctest: +SKIP
    'hf-hub:me/digits@1f2e3d…'
    """
    known = {} if isinstance(model, nn.Module) else hub.known_of(file_of(model))
    network = model if isinstance(model, nn.Module) else load_network(model)
    content = content_of(network)
    config = json.loads(_metadata(content)[HEADER])
    del config[DIGEST]
    text = hub.described(repo, config, known) if card is None else card
    return hub.send(content, text, repo, private=private)


@overload
def load(
    path: str | os.PathLike[str],
    *,
    model: None = None,
    routing: Routing | None = None,
    n_classes: int | None = None,
) -> NamedNetwork: ...
@overload
def load(path: str | os.PathLike[str], *, model: Net | type[Net]) -> Net: ...
@explains_names
def load(
    path: str | os.PathLike[str],
    *,
    model: nn.Module | type[nn.Module] | None = None,
    routing: Routing | None = None,
    n_classes: int | None = None,
) -> nn.Module:
    """Read a network that `save` wrote, ready to look at images (in evaluation mode).

    No code comes out of the file: a network or a routing of one's own is named in it, and is to be
    registered or given before.

    Arguments:
        path: the file, or the folder of a finished run; "zoo:NAME" is one that comes with the
            package, as `list_models(pretrained=True)` lists them, and "hf-hub:OWNER/NAME@REVISION"
            one on a hub (extra hub); if REVISION is a commit, it is always the same network.
        model: for a network of one's own, its class, or a module of it that takes the weights.
        routing: for a network that was made with a routing object, another one like it.
        n_classes: another number of classes. Weights that fit are kept; what was made new is named
            on standard error, drawn from torch's random numbers and to be trained.

    >>> model = load("my-run")
    >>> seven = load("my-run", n_classes=7)  # doctest: +SKIP
    """
    return as_given(load_network(path, model=model, routing=routing, n_classes=n_classes))


def load_network(
    path: str | os.PathLike[str],
    *,
    model: nn.Module | type[nn.Module] | None = None,
    routing: Routing | None = None,
    n_classes: int | None = None,
) -> nn.Module:
    """Load a network, wrapped so that one of the user's own is called as ours are."""
    path = file_of(path)
    state, name, config = _read(path)
    by_hand = config.pop(BY_HAND, {})
    if config.pop(HALF, False):
        state = {name: t.float() if t.dtype == torch.half else t for name, t in state.items()}
    if name == OWN:
        if n_classes is not None:
            raise TorchcapsError(
                f"{path} holds a network of your own, of which torchcaps does not know where its "
                f"classes are; make one with {n_classes} classes and load the weights that fit."
            )
        return _load_own(path, state, config, model)
    if model is not None:
        raise TorchcapsError(
            f"{path} holds {name}, which has a name, so no model can be given; leave model out."
        )
    _check_known(path, name, config, routing)
    if routing is not None:
        config["routing"] = routing
    if n_classes is not None and n_classes != config.get("n_classes"):
        network = make_model(name, **{**config, "n_classes": n_classes})
        take_dtypes(network, state)
        say_what_is_new(str(path), take_fitting(network, state), network, state)
    else:
        network = _as_saved(path, state, name, config)
    set_again(network, by_hand, path)
    return network.eval()


def _as_saved(path: Path, state: dict[str, Tensor], name: str, config: dict[str, Any]) -> nn.Module:
    """Make the network of a file. One of ours is made without memory or random numbers, and takes
    the tensors of the file as they are. One of somebody's own is made as always, and its tensors
    are copied into it: it may hold more than these, or one weight in two places."""
    is_own = MODELS[name].is_own
    with torch.random.fork_rng(devices=[]) if is_own else without_memory():
        network = make_model(name, **config)
    if is_own:
        take_dtypes(network, state)
    try:
        network.load_state_dict(state, assign=not is_own)
    except RuntimeError as error:
        raise TorchcapsError(
            f"the tensors in {path} do not fit the network {name} that its header describes "
            f"({str(error).splitlines()[-1].strip()})."
        ) from None
    return network


def check_whole(path: Path) -> None:
    """Refuse a file whose tensors or configuration are not those that were saved. The code of a
    network of one's own need not be here."""
    _read(file_of(path))


def file_of(path: str | os.PathLike[str]) -> Path:
    """Give the file of a network, of a run folder the one in it."""
    path = path_of("path", hub.located(path))
    if path.is_dir():
        path = path / OF_A_RUN
        if not path.is_file():
            raise TorchcapsError(
                f"{path.parent} is no folder of a finished run ({OF_A_RUN} is missing); finish it "
                f"with the command that began it, or name a file."
            )
        if (path.parent / "recipe.json").is_file() and not (path.parent / "result.json").is_file():
            raise TorchcapsError(
                f"{path.parent} trains on, and its {OF_A_RUN} is that of an earlier epoch; finish "
                f"it with the command that began it, or name the file to have that network."
            )
    if not path.is_file():
        raise TorchcapsError(
            f"there is no run folder and no saved network at {path}; the name of a saved one ends "
            f"in .safetensors."
        )
    return path


def _load_own(
    path: Path, state: dict[str, Tensor], config: dict[str, Any], given: Any
) -> OwnNetwork:
    try:
        module = own_module(config, given)
    except TorchcapsError as error:
        raise TorchcapsError(f"{path}: {error}") from None
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise TorchcapsError(
            f"the tensors in {path} do not fit the {type(module).__name__} that was given "
            f"({str(error).splitlines()[-1].strip()}); was it made with other sizes?"
        ) from None
    network = OwnNetwork(module, image=config.get("image"), n_classes=config.get("n_classes"))
    return network.eval()


def _read(path: Path) -> tuple[dict[str, Tensor], str, dict[str, Any]]:
    """Read the tensors of a file, the name of its network and the rest of its configuration."""
    try:
        _check_size(path)
        # Read once: what is checked is what is used, and a network that is in use does not change
        # when somebody writes over its file.
        content = path.read_bytes()
        # A whole file of another run is not that of this one.
        check_digest(path, content)
        state = safetensors.torch.load(content)
        metadata = _metadata(content)
    except (safetensors.SafetensorError, OSError) as error:
        if _is_of_torch_save(path):
            if path.name == "state.ckpt":
                raise TorchcapsError(
                    f"{path} is what training goes on from, and no network; load the folder of "
                    f"the run, {path.parent}."
                ) from None
            raise TorchcapsError(
                f"{path} was written by torch.save, and load reads what torchcaps.save wrote, "
                f"since unpickling runs code; make the network with create_model, then "
                f"model.load_state_dict(torch.load(path, weights_only=True)), with weights of "
                f"other code through torchcaps.models.convert."
            ) from None
        # Its words may quote the file.
        reason = printable(str(error), keep="")
        if len(reason) > MOST_REASON:
            reason = f"{reason[:MOST_REASON]}…"
        raise TorchcapsError(
            f"{path} is not a readable safetensors file ({reason}); was the copy cut short, or is "
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
    return state, name, config


def _check_size(path: Path) -> None:
    """Refuse a file of another size than its header tells, before memory is taken for it."""
    try:
        with safetensors.safe_open(path, framework="pt"):
            return
    except safetensors.SafetensorError:
        # If the file is of a run, its digest says more exactly what is wrong.
        check_digest(path)
        raise


def _metadata(content: bytes) -> dict[str, Any]:
    """Read the metadata of a safetensors file that was parsed: its header is JSON behind its
    length."""
    length = int.from_bytes(content[:8], "little")
    found = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    return dict(found)


def _is_of_torch_save(path: Path) -> bool:
    """Tell by its first bytes: a zip archive, or a bare pickle as torch before 1.6 wrote."""
    try:
        with path.open("rb") as file:
            return file.read(4).startswith((b"PK\x03\x04", b"\x80\x02"))
    except OSError:
        return False


def _check_known(path: Path, name: str, config: dict[str, Any], given: Routing | None) -> None:
    """Say whether all that the file names is here."""
    again = (
        "a file never runs code, so import what registers it first (on the command line: --import)"
    )
    if name not in MODELS:
        raise TorchcapsError(f"{path} holds the network {short(name)}, which is unknown; {again}.")
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
            f"{path} names its routing, {short(routing)}, so none can be given; leave routing out."
        )
    elif isinstance(routing, str) and routing not in ROUTINGS:
        raise TorchcapsError(
            f"{path} holds a network with {short(routing)} routing, which is unknown; {again}."
        )


def _digest(state: dict[str, Tensor], config: dict[str, Any]) -> str:
    """Give the SHA-256 of every tensor with its name, and of the configuration."""
    seen = hashlib.sha256(json.dumps(config).encode())
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        seen.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        seen.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return seen.hexdigest()
