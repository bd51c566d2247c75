"""The fused routings as Triton kernels, for GPUs: the same parents and gradients.

Triton is an extra, `pip install "torchcaps[triton]"`. What a kernel lacks, the fused form in
PyTorch does; distance routing has no kernels of its own here.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torchcaps.ops import fused
from torchcaps.ops.fused import dynamic, inverted, self_attention
from torchcaps.ops.fused.results import speak_for_all_samples
from torchcaps.ops.triton.em import em_routing
from torchcaps.ops.triton.mixing import mix
from torchcaps.ops.triton.runtime import available
from torchcaps.ops.triton.votes import fits
from torchcaps.types import Routed, VoteMap

__all__ = [
    "ROUTINGS",
    "available",
    "dynamic_routing",
    "em_routing",
    "inverted_routing",
    "self_attention_routing",
    "takes",
]

dynamic_routing = partial(dynamic.route_by, mix)
inverted_routing = partial(inverted.route_by, mix)
self_attention_routing = partial(self_attention.route_by, mix)

ROUTINGS: dict[str, Callable[..., Routed]] = {
    "dynamic": dynamic_routing,
    "em": em_routing,
    "inverted": inverted_routing,
    "self_attention": self_attention_routing,
}


def takes(algorithm: str, vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Whether a kernel routes such votes, on a GPU; the fused form routes all others."""
    if algorithm not in ROUTINGS or not fused.takes(algorithm, vote_map, options):
        return False
    prior = options.get("bias" if algorithm == "self_attention" else "prior")
    return fits(vote_map) and speak_for_all_samples(prior)
