"""torchcaps: the PyTorch library and laboratory for capsule networks.

Importing it is instant: every name below is fetched when it is first used (PEP 562), and most load
torch alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

from torchcaps.errors import TorchcapsError

if TYPE_CHECKING:
    from torchcaps import (
        analysis,
        data,
        layers,
        models,
        ops,
        prune,
        report,
        study,
        tasks,
        testing,
        train,
        viz,
    )
    from torchcaps.layers import register_routing
    from torchcaps.models import (
        create_model,
        list_models,
        load,
        optimise_for_inference,
        push,
        register_model,
        save,
    )
    from torchcaps.types import Capsules, LayerTrace, Output, Routed, Step, VoteMap, Window

__version__ = "0.1.0"

_ROOMS = (
    "analysis",
    "data",
    "layers",
    "models",
    "ops",
    "prune",
    "report",
    "study",
    "tasks",
    "testing",
    "train",
    "viz",
)
_NAMES = {
    **dict.fromkeys(
        (
            *("create_model", "list_models", "load", "optimise_for_inference"),
            *("push", "register_model", "save"),
        ),
        "models",
    ),
    "register_routing": "layers",
    **dict.fromkeys(
        ("Capsules", "LayerTrace", "Output", "Routed", "Step", "VoteMap", "Window"), "types"
    ),
}

__all__ = [
    "Capsules",
    "LayerTrace",
    "Output",
    "Routed",
    "Step",
    "TorchcapsError",
    "VoteMap",
    "Window",
    "__version__",
    "analysis",
    "create_model",
    "data",
    "layers",
    "list_models",
    "load",
    "models",
    "ops",
    "optimise_for_inference",
    "prune",
    "push",
    "register_model",
    "register_routing",
    "report",
    "save",
    "study",
    "tasks",
    "testing",
    "train",
    "viz",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"torchcaps.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"torchcaps.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'torchcaps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
