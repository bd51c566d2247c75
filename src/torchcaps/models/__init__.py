"""Whole networks: a registry of names, a file per family, saving and loading."""

from torchcaps._lazy import load_modules, publish
from torchcaps.models.create import create_model as create_model
from torchcaps.models.create import list_models as list_models
from torchcaps.models.files.convert import convert as convert
from torchcaps.models.files.saving import load as load
from torchcaps.models.files.saving import push as push
from torchcaps.models.files.saving import save as save
from torchcaps.models.files.trunk import take_trunk as take_trunk
from torchcaps.models.inference import optimise_for_inference as optimise_for_inference
from torchcaps.models.mitterreiter import grid_of_121 as grid_of_121
from torchcaps.models.network import CapsuleNetwork as CapsuleNetwork
from torchcaps.models.own import register_model as register_model
from torchcaps.models.preset import MODELS as MODELS
from torchcaps.models.preset import Preset as Preset
from torchcaps.models.scores import scores_only as scores_only

publish(__name__)

load_modules(__name__)
