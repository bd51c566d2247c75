"""Whether a network still is what its name and options make.

A file holds these and the tensors: who opens it makes the network anew. So a network is made once
more before it is written, and what differs is kept, where a file has a place for it, or refused.
Kept are the settings of norms and dropouts, since weights of other code come with settings that no
option has: an ε of Keras, a share that is silenced.
"""

import math
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers import InvertedRouting, Routing
from torchcaps.layers.routing.table import import_path
from torchcaps.models.limits import without_memory
from torchcaps.models.preset import MODELS
from torchcaps.models.registry import make_model

# The entry of a configuration with what a file keeps; no option has a name with spaces.
BY_HAND = "set by hand"
# Attributes that may change while the result stays: `use_backend` and `train` set them.
CHOICES = {"backend", "is_direct", "training"}
KEEPING = (_NormBase, nn.GroupNorm, nn.LayerNorm, _DropoutNd)
# What is kept of these, and the most that it may be.
MOST = {"eps": math.inf, "momentum": 1, "p": 1}
# The call that undoes a change of torch.nn.utils, by how the tensors that it added end.
UNDONE_BY = {
    "weight_mask": "torch.nn.utils.prune.remove(layer, 'weight')",
    "weight_u": "torch.nn.utils.remove_spectral_norm(layer)",
    "weight_v": "torch.nn.utils.remove_weight_norm(layer)",
    ".original": "torch.nn.utils.parametrize.remove_parametrizations(layer, 'weight')",
    ".original0": "torch.nn.utils.parametrize.remove_parametrizations(layer, 'weight')",
}
OTHERWISE = (
    "put back what was changed, or make a network that has it with create_model and give that the "
    "weights; what no option says is a network of your own, for register_model"
)


def made_again(network: nn.Module) -> nn.Module | None:
    """Give what the name and options of a network make; None where nobody here can make it."""
    config: dict[str, Any] = dict(network.config)  # type: ignore[arg-type]
    name = config.pop("name")
    if name not in MODELS:
        return None
    if isinstance(config.get("routing"), dict):
        if not hasattr(network, "given_routing"):  # pickled by an earlier version
            return None
        (config["routing"],) = network.given_routing  # type: ignore[misc]
    try:
        with torch.random.fork_rng(devices=[]), without_memory(), catch_warnings():
            # Torch warns that weights are copied to device meta, where they have no memory.
            simplefilter("ignore")
            return make_model(name, **config)
    except Exception:
        # A network of one's own may look at numbers as it is made, and here are none.
        if MODELS[name].is_own:
            return None
        raise


def check_as_made(network: nn.Module, made: nn.Module) -> None:
    """Refuse a network whose file would not open, or would open as another network."""
    _check_tensors(network, made)
    now, before = _parts(network, made), _parts(made, made)
    for name, (was, value) in changed_settings(network, made).items():
        if not _is_kept(network, name, value):
            before[name], now[name] = was, value
    for name in [*before, *now]:
        if before.get(name) != now.get(name):
            raise TorchcapsError(
                f"this {_name(network)} computes otherwise than its name and options say, so "
                f"its file would be opened as another network: {name} is {short(now.get(name))} "
                f"and was {short(before.get(name))}; {OTHERWISE}."
            )


def _check_tensors(network: nn.Module, made: nn.Module) -> None:
    before, now = shapes(made), shapes(network)
    gone = [f"{name} is gone" for name in before if name not in now]
    new = [name for name in now if name not in before]
    resized = [
        f"{name} is {now[name]} and was {shape}"
        for name, shape in before.items()
        # A lazy tensor takes its size from the first images, so it had none when it was made.
        if name in now and shape is not None and now[name] != shape
    ]
    found = [*gone, *resized, *(f"{name} is new" for name in new)]
    if not found or (MODELS[_name(network)].is_own and _takes(made, network)):
        return
    more = f" ({len(found) - 1} more differ)" if len(found) > 1 else ""
    undo = next((way for end, way in UNDONE_BY.items() if any(n.endswith(end) for n in new)), "")
    raise TorchcapsError(
        f"this {_name(network)} has other tensors than its name and options make, so its file "
        f"could not be opened: {found[0]}{more}; "
        + (f"call {undo} of each such layer before saving." if undo else f"{OTHERWISE}.")
    )


def _takes(made: nn.Module, network: nn.Module) -> bool:
    """Say whether a network of one's own knows how to take tensors of other names and sizes."""
    try:
        made.load_state_dict(network.state_dict(), assign=True)
    except RuntimeError:
        return False
    return True


def changed_settings(network: nn.Module, made: nn.Module) -> dict[str, tuple[Any, Any]]:
    """Give the numbers and words of parts that were set by hand, by the names of the part and of
    its attribute: before, and now."""
    before, now = dict(_settings(made)), dict(_settings(network))
    return {n: (was, now[n]) for n, was in before.items() if n in now and was != now[n]}


def kept_by_hand(network: nn.Module, made: nn.Module) -> dict[str, Any]:
    """Give the entry that the configuration of a file has of these; none if there are none."""
    changed = changed_settings(network, made).items()
    kept = {name: value for name, (_, value) in changed if _is_kept(network, name, value)}
    return {BY_HAND: kept} if kept else {}


def set_again(network: nn.Module, settings: object, path: Path) -> None:
    """Set again what was set by hand before the file at a path was written."""
    said = settings if isinstance(settings, dict) else {"": settings}
    for name, value in said.items():
        if not _is_settable(network, name, value):
            raise TorchcapsError(
                f"{path} says that {short(name)} was set to {short(value)} by hand, but a file "
                f"keeps eps, momentum and p of norms and dropouts alone; was it written by a later "
                f"torchcaps? load it with that."
            )
        # Files of earlier versions hold settings that nothing reads, too.
        if _is_read(network, name):
            part, _, option = name.rpartition(".")
            setattr(network.get_submodule(part), option, value)


def _is_kept(network: nn.Module, name: str, value: Any) -> bool:
    return _is_settable(network, name, value) and _is_read(network, name)


def _is_read(network: nn.Module, name: str) -> bool:
    """Say whether anybody reads a setting: inverted routing takes only the weights of its
    LayerNorm, and has an ε of its own."""
    owner = name.rpartition(".")[0].rpartition(".")[0]
    return not isinstance(network.get_submodule(owner), InvertedRouting)


def _is_settable(network: nn.Module, name: str, value: Any) -> bool:
    path, _, option = name.rpartition(".")
    part = dict(network.named_modules()).get(path)
    if part is None or not _keeps(part, option) or option not in vars(part):
        return False
    if value is None:
        return option == "momentum"
    return type(value) in (int, float) and 0 <= value <= MOST[option] and value < math.inf


def _keeps(part: nn.Module, option: str) -> bool:
    return option in MOST and isinstance(part, KEEPING)


def _is_ours(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torchcaps.")


def _name(network: nn.Module) -> str:
    config: Any = network.config
    return str(config["name"])


def shapes(network: nn.Module) -> dict[str, list[int] | None]:
    return {
        name: None if is_lazy(value) else list(value.shape)
        for name, value in network.state_dict().items()
        if isinstance(value, Tensor)
    }


def _parts(network: nn.Module, made: nn.Module) -> dict[str, Any]:
    """Give the class of every routing and, in a network of ours, of every part without tensors,
    such as an activation or a pooling. A new part counts only in a sequence: elsewhere, as a loss
    that somebody hung on the network, it computes nothing in it."""
    known, found = dict(made.named_modules()), {}
    for path, part in network.named_modules():
        is_bare = not any((part._parameters, part._buffers, part._modules))
        parent = network.get_submodule(path.rpartition(".")[0])
        is_here = path in known or isinstance(parent, nn.Sequential)
        if isinstance(part, Routing) or (_is_ours(network) and is_bare and is_here):
            found[path] = import_path(type(part))
    return found


def _settings(network: nn.Module) -> Iterator[tuple[str, Any]]:
    """List all numbers and words of our own parts; of others only what a file keeps, since they may
    count or anneal the rest. Those of a routing object are left out: whoever loads gives it
    again."""
    config: Any = network.config
    is_told = isinstance(config.get("routing"), dict)
    for path, part in network.named_modules():
        routes = isinstance(part, Routing)
        is_seen = _is_ours(part) and (_is_ours(network) or routes) and not (is_told and routes)
        for name, value in vars(part).items():
            if name.startswith("_") or name in CHOICES or not (is_seen or _keeps(part, name)):
                continue
            if isinstance(value, Real) and not isinstance(value, int):
                value = float(value)  # of NumPy
            if value is None or isinstance(value, bool | int | float | str):
                yield f"{path}.{name}".removeprefix("."), value
