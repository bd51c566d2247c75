"""Whether a network still is what was made by its name and options.

A file holds these and the tensors: who opens it makes the network anew. What was changed by hand in
between would be lost, or the tensors would fit nowhere.
"""

import inspect
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers import Routing
from torchcaps.layers.routing.table import import_path
from torchcaps.models.settings import BY_HAND, is_kept, is_ours, settings_of

__all__ = [
    "changed_settings",
    "check_parts",
    "check_tensors",
    "is_as_made",
    "kept_by_hand",
    "remember",
]

# What takes away what torch.nn.utils put into a layer, by the end of the names of its tensors.
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


class Made(NamedTuple):
    """What a network is, as far as a file of it must bring it back."""

    shapes: dict[str, list[int] | None]
    # What no tensor tells: of which class a part is, and what a routing was told.
    parts: dict[str, Any]
    # By what numbers and words its parts compute.
    settings: dict[str, Any]


def remember(network: nn.Module, *, like: nn.Module | None = None) -> None:
    """Write down what a network is as it leaves its maker. What was set by hand in one that it was
    made `like` was set so in it too."""
    made = _looked_at(network)
    if like is not None:
        before = {name: was for name, (was, _) in changed_settings(like).items()}
        made = made._replace(settings=made.settings | before)
    # nn.Module types every attribute as a tensor or a module.
    network._as_made = made  # type: ignore[assignment]


def is_as_made(network: nn.Module) -> bool:
    """Whether no tensor and no part was changed by hand; of a network that was built so nobody
    knows."""
    before, now = _before(network), _looked_at(network)
    return (before.shapes, before.parts) == (now.shapes, now.parts)


def changed_settings(network: nn.Module) -> dict[str, tuple[Any, Any]]:
    """What was set by hand since, by the names of `settings_of`: before, and now."""
    before, now = _before(network).settings, _looked_at(network).settings
    both = {name: (was, now[name]) for name, was in before.items() if name in now}
    return {name: (was, value) for name, (was, value) in both.items() if was != value}


def kept_by_hand(network: nn.Module) -> dict[str, Any]:
    """The entry that the configuration of a file has of these; none if there are none."""
    changed = changed_settings(network).items()
    kept = {name: value for name, (_, value) in changed if is_kept(network, name, value)}
    return {BY_HAND: kept} if kept else {}


def check_tensors(network: nn.Module) -> None:
    """Refuse tensors of other names and sizes than its maker gave a network."""
    now = _looked_at(network).shapes
    before = _before(network).shapes
    gone = [f"{name} is gone" for name in before if name not in now]
    new = [name for name in now if name not in before]
    resized = [
        f"{name} is {now[name]} and was {shape}"
        for name, shape in before.items()
        # Of one that is as large as the first images are nobody knew the size.
        if name in now and shape is not None and now[name] != shape
    ]
    found = [*gone, *resized, *(f"{name} is new" for name in new)]
    if not found:
        return
    more = f" ({len(found) - 1} more differ)" if len(found) > 1 else ""
    undo = next((way for end, way in UNDONE_BY.items() if any(n.endswith(end) for n in new)), "")
    raise TorchcapsError(
        f"this {_name(network)} has other tensors than its name and options make, so its file "
        f"could not be opened: {found[0]}{more}; "
        + (f"call {undo} of each such layer before saving." if undo else f"{OTHERWISE}.")
    )


def check_parts(network: nn.Module) -> None:
    """Refuse routings, and parts without tensors, of other classes than its maker gave a network,
    and settings of parts that no file keeps."""
    now, before = _looked_at(network).parts, dict(_before(network).parts)
    for name, (was, value) in changed_settings(network).items():
        if not is_kept(network, name, value):
            before[name], now[name] = was, value
    for name in [*before, *now]:
        if before.get(name) != now.get(name):
            raise TorchcapsError(
                f"this {_name(network)} computes otherwise than its name and options say, so "
                f"its file would be opened as another network: {name} is {short(now.get(name))} "
                f"and was {short(before.get(name))}; {OTHERWISE}."
            )


def _before(network: nn.Module) -> Made:
    made = getattr(network, "_as_made", None)
    return made if isinstance(made, Made) else _looked_at(network)


def _name(network: nn.Module) -> str:
    config: Any = network.config
    return str(config["name"])


def _looked_at(network: nn.Module) -> Made:
    shapes = {
        name: list(value.shape) if isinstance(value, Tensor) and not is_lazy(value) else None
        for name, value in network.state_dict().items()
    }
    config: Any = getattr(network, "config", None)
    # What a routing object was told, whoever opens the file tells one again.
    is_told = isinstance(config, dict) and isinstance(config.get("routing"), dict)
    # What a network of one's own swaps while it learns is its own.
    parts = _bare_parts(network) if is_ours(network) else {}
    for path, part in network.named_modules():
        if isinstance(part, Routing):
            parts[path] = import_path(type(part))
        # What one's own code counts or anneals is its own.
        routes = isinstance(part, Routing) or type(getattr(part, "iterations", None)) is int
        if is_told or not (is_ours(part) and routes):
            continue
        for option in ("iterations", *inspect.signature(type(part)).parameters):
            value = vars(part).get(option)
            if isinstance(value, bool | int | float | str):
                parts[f"{path}.{option}".removeprefix(".")] = value
    return Made(shapes, parts, settings_of(network, is_told=is_told))


def _bare_parts(network: nn.Module) -> dict[str, Any]:
    """The class of every activation, pooling and the like, which has no tensors.

    Those of a sequence and those that were here before: a loss that somebody hangs on a network
    computes nothing in it.
    """
    made = getattr(network, "_as_made", None)
    found = {}
    for path, part in network.named_modules():
        is_bare = not any((part._parameters, part._buffers, part._modules))
        parent = network.get_submodule(path.rpartition(".")[0])
        was_here = made is None or path in made.parts
        if is_bare and (was_here or isinstance(parent, nn.Sequential)):
            found[path] = import_path(type(part))
    return found
