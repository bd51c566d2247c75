"""Routing algorithms, one a file: pure functions from votes [*b, i, j, d] to `Routed`."""

from torchcaps._lazy import publish
from torchcaps.ops.routing.conv3d import SquashOver as SquashOver
from torchcaps.ops.routing.conv3d import conv3d_routing as conv3d_routing
from torchcaps.ops.routing.distance import DetachVotes as DetachVotes
from torchcaps.ops.routing.distance import Scale as Scale
from torchcaps.ops.routing.distance import distance_routing as distance_routing
from torchcaps.ops.routing.dynamic import Detach as Detach
from torchcaps.ops.routing.dynamic import dynamic_routing as dynamic_routing
from torchcaps.ops.routing.em import EMVariant as EMVariant
from torchcaps.ops.routing.em import LambdaSchedule as LambdaSchedule
from torchcaps.ops.routing.em import em_routing as em_routing
from torchcaps.ops.routing.inverted import inverted_routing as inverted_routing
from torchcaps.ops.routing.inverted import inverted_step as inverted_step
from torchcaps.ops.routing.self_attention import self_attention_routing as self_attention_routing
from torchcaps.ops.routing.self_routing import self_routing as self_routing
from torchcaps.ops.routing.shared_children import Compete as Compete
from torchcaps.ops.routing.uniform import Normalise as Normalise
from torchcaps.ops.routing.uniform import uniform_routing as uniform_routing

publish(__name__)
