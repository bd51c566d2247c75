"""Whole networks: a registry of names, a file per family, saving and loading."""

from torchcaps._lazy import load_modules
from torchcaps.models.create import create_model, list_models
from torchcaps.models.files.convert import convert
from torchcaps.models.files.saving import load, push, save
from torchcaps.models.files.trunk import take_trunk
from torchcaps.models.inference import optimise_for_inference
from torchcaps.models.mitterreiter import grid_of_121
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.own import register_model
from torchcaps.models.preset import MODELS, Preset
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
    "optimise_for_inference",
    "push",
    "register_model",
    "save",
    "scores_only",
    "take_trunk",
]

load_modules(__name__)
