"""Pure functions on tensors: squash, votes, routing, losses. No parameters, no state."""

from torchcaps._lazy import publish
from torchcaps.ops import costs  # noqa: F401, it registers what the operators cost
from torchcaps.ops.by_name import route as route
from torchcaps.ops.losses import binary_cross_entropy_loss as binary_cross_entropy_loss
from torchcaps.ops.losses import cross_entropy_loss as cross_entropy_loss
from torchcaps.ops.losses import focal_loss as focal_loss
from torchcaps.ops.losses import margin_loss as margin_loss
from torchcaps.ops.losses import reconstruction_loss as reconstruction_loss
from torchcaps.ops.losses import spread_loss as spread_loss
from torchcaps.ops.losses import spread_margin as spread_margin
from torchcaps.ops.routing import conv3d_routing as conv3d_routing
from torchcaps.ops.routing import distance_routing as distance_routing
from torchcaps.ops.routing import dynamic_routing as dynamic_routing
from torchcaps.ops.routing import em_routing as em_routing
from torchcaps.ops.routing import inverted_routing as inverted_routing
from torchcaps.ops.routing import inverted_step as inverted_step
from torchcaps.ops.routing import self_attention_routing as self_attention_routing
from torchcaps.ops.routing import self_routing as self_routing
from torchcaps.ops.routing import uniform_routing as uniform_routing
from torchcaps.ops.squashing import squash as squash
from torchcaps.ops.votes import materialise as materialise

publish(__name__)
