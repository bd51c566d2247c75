"""Dense capsule layers one on another, and the options they share."""

import inspect
from collections.abc import Mapping
from typing import Any, Literal

from torchcaps.errors import TorchcapsError
from torchcaps.layers import ROUTINGS, DenseCapsules, EMRouting, Routing, make_routing


def routing_options(routing: str) -> frozenset[str]:
    """Give what this routing can be told."""
    known = frozenset(inspect.signature(ROUTINGS[routing]).parameters)
    return known | {"bias"} if routing == "em" else known


def routed_by(
    routing: str | Routing, *, bias: bool | Literal["odd"], **options: Any
) -> dict[str, Any]:
    """Give a layer's `routing`, and the bias where this routing has it: EM in its votes, others in
    the sum that is squashed [peer2022] §4."""
    if bias == "odd" and routing != "dynamic":
        raise TorchcapsError(
            f'bias="odd" is a control of dynamic routing alone, but the routing is {routing!r}; '
            f'use routing="dynamic", or bias="added" or "none".'
        )
    vote_bias = bool(bias) and (routing == "em" or isinstance(routing, EMRouting))
    return {"routing": make_routing(routing, bias=bias, **options), "vote_bias": vote_bias}


def dense_stack(
    sizes: Mapping[str, tuple[int, int]],
    *,
    n_in: int,
    d_in: int,
    weight_std: float,
    routing: str | Routing,
    bias: bool | Literal["odd"],
    **options: Any,
) -> dict[str, DenseCapsules]:
    """Make a layer for every name, (capsules, components), each routed by a routing of its own."""
    layers = {}
    for name, (n_out, d_out) in sizes.items():
        layers[name] = DenseCapsules(
            n_in=n_in,
            d_in=d_in,
            n_out=n_out,
            d_out=d_out,
            weight_std=weight_std,
            **routed_by(routing, bias=bias, **options),
        )
        n_in, d_in = n_out, d_out
    return layers
