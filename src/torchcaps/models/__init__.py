"""Whole networks: a registry of names, a file per family, saving and loading."""

from torchcaps.models.capsnet import capsnet
from torchcaps.models.mitterreiter import mitterreiter_5x16
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.registry import MODELS, Preset, create_model, list_models
from torchcaps.models.saving import load, save

__all__ = [
    "MODELS",
    "CapsuleNetwork",
    "Preset",
    "capsnet",
    "create_model",
    "list_models",
    "load",
    "mitterreiter_5x16",
    "save",
]
