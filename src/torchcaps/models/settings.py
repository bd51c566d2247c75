"""The numbers and words by which the parts of a network compute, as anybody may set them by hand.

Of norms and dropouts a file keeps what was set, since weights of other code come with other numbers
than a name and options have: an ε of Keras, a share that is silenced. Others are refused.
"""

import math
from numbers import Real
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers import InvertedRouting, Routing

__all__ = ["BY_HAND", "CHOICES", "is_kept", "is_ours", "set_again", "settings_of"]

# The entry of a configuration with what a file keeps; no option can be called so.
BY_HAND = "set by hand"
# What is set on a part of a network without another result: `use_backend`, `train`.
CHOICES = {"backend", "is_direct", "training"}
KEEPING = (_NormBase, nn.GroupNorm, nn.LayerNorm, _DropoutNd)
# What is kept of these, and the most that it may be.
MOST = {"eps": math.inf, "momentum": 1, "p": 1}


def settings_of(network: nn.Module, *, is_told: bool) -> dict[str, Any]:
    """By the name of a part and of its attribute.

    Arguments:
        network: any; of one's own only norms and dropouts are looked at, other parts are its own.
        is_told: whether it has a routing object, which whoever opens its file tells again.
    """
    found = {}
    for path, part in network.named_modules():
        is_own = not (is_ours(network) and is_ours(part)) or (is_told and isinstance(part, Routing))
        for name, value in vars(part).items():
            if name.startswith("_") or name in CHOICES or (is_own and not _keeps(part, name)):
                continue
            if isinstance(value, Real) and not isinstance(value, int):
                value = float(value)  # of NumPy
            if value is None or isinstance(value, bool | int | float | str):
                found[f"{path}.{name}".removeprefix(".")] = value
    return found


def is_kept(network: nn.Module, name: str, value: Any) -> bool:
    """Whether a file keeps this setting."""
    return _is_settable(network, name, value) and _is_read(network, name)


def _is_read(network: nn.Module, name: str) -> bool:
    """Inverted routing takes the weights of its LayerNorm, and has a guard of its own."""
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


def set_again(network: nn.Module, settings: object, path: Path) -> None:
    """Set what the file at a path kept."""
    said = settings if isinstance(settings, dict) else {"": settings}
    for name, value in said.items():
        if not _is_settable(network, name, value):
            raise TorchcapsError(
                f"{path} says that {short(name)} was set to {short(value)} by hand, but a file "
                f"keeps eps, momentum and p of norms and dropouts alone; was it written by a later "
                f"torchcaps? load it with that."
            )
        # Files of before hold what nothing reads too.
        if _is_read(network, name):
            part, _, option = name.rpartition(".")
            setattr(network.get_submodule(part), option, value)


def is_ours(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torchcaps.")


def _keeps(part: nn.Module, option: str) -> bool:
    return option in MOST and isinstance(part, KEEPING)
