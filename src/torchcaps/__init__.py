"""torchcaps: the PyTorch library and laboratory for capsule networks.

Importing it is instant: every name below is fetched when it is first used (PEP 562), and most load
torch alone.
"""

from typing import TYPE_CHECKING

from torchcaps._lazy import lazily
from torchcaps.errors import TorchcapsError as TorchcapsError

if TYPE_CHECKING:
    from torchcaps import analysis as analysis
    from torchcaps import data as data
    from torchcaps import layers as layers
    from torchcaps import models as models
    from torchcaps import ops as ops
    from torchcaps import prune as prune
    from torchcaps import report as report
    from torchcaps import study as study
    from torchcaps import tasks as tasks
    from torchcaps import testing as testing
    from torchcaps import train as train
    from torchcaps import viz as viz
    from torchcaps.layers import register_routing as register_routing
    from torchcaps.models import create_model as create_model
    from torchcaps.models import list_models as list_models
    from torchcaps.models import load as load
    from torchcaps.models import optimise_for_inference as optimise_for_inference
    from torchcaps.models import push as push
    from torchcaps.models import register_model as register_model
    from torchcaps.models import save as save
    from torchcaps.types import Capsules as Capsules
    from torchcaps.types import LayerTrace as LayerTrace
    from torchcaps.types import Output as Output
    from torchcaps.types import Routed as Routed
    from torchcaps.types import Step as Step
    from torchcaps.types import VoteMap as VoteMap
    from torchcaps.types import Window as Window

__version__ = "0.1.0"

lazily(__name__)
vars()["__all__"].append("__version__")
