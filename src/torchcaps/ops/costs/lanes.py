"""What the native operators cost, which compute many samples at once in the lanes of vectors.

The workspaces of dynamic and distance routing have a tile of children for each thread, the parents
of every iteration, and a sum of parents for each thread. That of EM routing has what each thread
holds of the few lanes that it computes at once, and a sum of gradients for each thread.
"""

import math
from typing import Any

import torch

from torchcaps.ops.costs import distance as distance_flops
from torchcaps.ops.costs import em as em_flops
from torchcaps.ops.costs.base import register, sizes_of
from torchcaps.ops.fused.distance_tiles import Given
from torchcaps.ops.native import distance, dynamic, em
from torchcaps.ops.native.em import PLACES
from torchcaps.ops.operators import Asked

__all__: list[str] = []

# Of routing.hpp: bytes of a tile of children.
TILE_BYTES = 192 << 10


def _mixed(given: dynamic.Given) -> int:
    """Count votes that every iteration makes. Each is weighed, and compared with parents, but for
    the first: without a prior its couplings are known."""
    size, later = sizes_of(given.votes), given.how.iterations - 1
    met = 2 * later + (given.prior is not None)
    return (later + 1) * size.products + met * size.agreement


def _mixed_backward(asked: Asked[dynamic.Given]) -> int:
    """Count less than the loop does: votes are met once for the gradients of all iterations."""
    size, needs, (sums, kept) = sizes_of(asked.given.votes), asked.needs, asked.saved
    iterations, detach = len(sums), asked.given.how.detach
    deep = detach == "none" or (detach == "votes" and any(needs[4:]))
    # Back through the iterations, each with its couplings and the gradient of its logits.
    back = iterations - 1 if deep else 0
    flops = back * (size.products + 3 * size.agreement)
    if any(needs[:4]):
        terms = iterations if deep or detach in ("states", "coupling") else 1
        again = not (kept.numel() and not any(needs[4:]))
        flops += (again + needs[0] + needs[1]) * size.products
        flops += (1 + 2 * again) * terms * size.agreement
    return flops


def _of_dynamic(given: dynamic.Given, backward: bool) -> int:
    size, threads = sizes_of(given.votes), torch.get_num_threads()
    parents = threads + 1 + (2 * given.how.iterations if backward else 0)
    return min(size.children, threads * TILE_BYTES) + parents * size.parents


def _of_distance(given: Given, backward: bool) -> int:
    size, threads = sizes_of(given.votes), torch.get_num_threads()
    parents = threads + 2 * given.how.iterations if backward else 1 + 2 * threads
    held = min(size.children, threads * TILE_BYTES) + 4 * given.length.numel()
    return held + parents * size.parents


def _of_em(given: Any, backward: bool) -> int:
    votes = em_flops.votes_of(given)
    samples, windows, slots, n_out, d_out = votes.counts()
    pose, lanes = votes.pose, samples * windows
    threads = max(1, min(torch.get_num_threads(), math.ceil(lanes / PLACES)))
    # The kernel of the mean holds the most: its children and couplings, too.
    seen = pose.shape[-1] + n_out if isinstance(given, em.Weighed) and not backward else 0
    held = threads * PLACES * (slots * (2 + seen) + 3 * n_out * d_out)
    if backward:
        held += threads * pose[0].numel() if votes.window and len(pose) else 0
        held += (threads - 1) * votes.weight.numel()
    return 4 * held


register(dynamic.mixed, _of_dynamic, _mixed, _mixed_backward)
register(
    distance.measured,
    _of_distance,
    # Votes are measured, then mixed; where the mean distance is given, mixed alone.
    lambda given: distance_flops.forward(given, 2 if given.scale is None else 1),
    lambda asked: distance_flops.backward(asked, at_once=True),
)
register(em.fit, _of_em, em_flops.moments, em_flops.backward)
register(em.assign, _of_em, em_flops.distances, em_flops.backward)
