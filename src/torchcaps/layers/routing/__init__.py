"""Routings as modules: they own the parameters that an op takes as arguments.

An abstract `Routing` and one final class for each algorithm, a file each; `table.py` has them by
name, and `torchcaps.layers` exports them. A layer binds its routing once, when it knows its sizes;
the same line therefore reads the same for any layer:

>>> DenseCapsules(n_in=1152, d_in=8, n_out=10, d_out=16, routing=DynamicRouting(iterations=5))
"""

from torchcaps.layers.routing.base import ROUTINGS, Routing
from torchcaps.layers.routing.table import as_routing, make_routing, register_routing
from torchcaps.ops.backend import Backend

__all__ = ["ROUTINGS", "Backend", "Routing", "as_routing", "make_routing", "register_routing"]
