"""Whole networks: a registry of names, a file per family, saving and loading."""

# Each family lists its networks in MODELS.
from torchcaps.models import (  # noqa: F401
    capsnet,
    convnets,
    deepcaps,
    efficient,
    gamma,
    inverted_capsnet,
    matrix_capsnet,
    mitterreiter,
    peer,
    resnet,
)
from torchcaps.models.files.convert import convert
from torchcaps.models.files.saving import load, save
from torchcaps.models.files.trunk import take_trunk
from torchcaps.models.mitterreiter import grid_of_121
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.own import register_model
from torchcaps.models.preset import MODELS, Preset
from torchcaps.models.registry import create_model, list_models
from torchcaps.models.scores import scores_only

__all__ = [
    "MODELS",
    "CapsuleNetwork",
    "Preset",
    "convert",
    "create_model",
    "grid_of_121",
    "list_models",
    "load",
    "register_model",
    "save",
    "scores_only",
    "take_trunk",
]
