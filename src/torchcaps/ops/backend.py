"""Which backend computes a routing, and when votes are better not stored.

What switches a kernel off is `layers.use_backend(model, "plain")`, or TORCHCAPS_NATIVE=0 for a
whole process.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import torch

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError, short
from torchcaps.ops import fused, native
from torchcaps.ops.fused.tiles import counts_of
from torchcaps.ops.tracing import is_looked_through
from torchcaps.types import Routed, VoteMap

# How a layer routes. "plain": the votes are made, then routed. "fused": they are made a tile at a
# time and never stored, by PyTorch. "native": the same by a compiled kernel for processors, and by
# PyTorch where a routing has none. "auto": native where not storing pays, else plain, which on a
# GPU is the fastest as long as the votes fit.
Backend = Literal["auto", "plain", "fused", "native"]
# So many numbers of votes fit into a cache, where tiles are a detour; and what runs along them are
# the lanes, samples times windows: a few leave it idle. Both measured on CPUs.
FUSED_FROM, LANES_FROM = 1 << 21, 16
# A GPU makes large tensors sooner than it starts kernels for small ones. Stored votes may take this
# share of its memory, for a training step holds several tensors as large as they are.
SHARE_OF_GPU = 1 / 32
# So many numbers of votes a native kernel of these routings predicts sooner. It is left to
# predictions, for it gives no gradients of gradients.
KERNEL_FROM = dict.fromkeys(("distance", "dynamic", "em"), 1 << 17)


def check_backend(backend: str) -> None:
    """Refuse what is none of our backends, and a device is none."""
    if str(backend).partition(":")[0] in ("cpu", "cuda", "gpu"):
        raise TorchcapsError(
            f"backend={short(backend)} is a device, and routing runs on the device of its tensors; "
            f'leave backend out, or use backend="auto".'
        )
    if backend == "triton":
        raise TorchcapsError(
            'backend="triton" was removed; use backend="auto", which on a GPU stores the votes as '
            "long as they fit."
        )
    check_choice("backend", backend, get_args(Backend))


def has_form(
    backend: Backend, algorithm: str, vote_map: VoteMap, options: Mapping[str, Any]
) -> bool:
    """Say whether what `fused_form` gives for a backend knows these options. A kernel leaves what
    it lacks to the form in PyTorch, so that form answers for every backend but "plain"."""
    return backend != "plain" and fused.takes(algorithm, vote_map, options)


def is_fused(
    backend: Backend,
    algorithm: str,
    vote_map: VoteMap,
    options: Callable[[], Mapping[str, Any]],
    *,
    takes: Callable[[], bool],
    called: str,
) -> bool:
    """Say whether these votes are routed unstored; whether they can be, `takes` is asked but for
    "plain"."""
    if backend == "plain":
        return False
    if backend == "auto":
        return takes() and is_worth_fusing(algorithm, vote_map, options)
    if not takes():
        raise no_fused_form(called)
    return True


def no_fused_form(called: str) -> TorchcapsError:
    return TorchcapsError(
        f"{called} has no fused form with these options; use "
        f'backend="auto", which falls back to the plain one.'
    )


def is_worth_fusing(
    algorithm: str, vote_map: VoteMap, options: Callable[[], Mapping[str, Any]]
) -> bool:
    """Say whether "auto" leaves these votes unstored, which can be."""
    # Before counting: to ask for the batch size binds an exported graph to the answer.
    if torch.compiler.is_exporting() or is_looked_through():
        return False
    samples, windows, *per_lane = counts_of(vote_map)
    numbers = samples * windows * math.prod(per_lane)
    pose = vote_map.children.pose
    if pose.is_cuda:
        memory = torch.cuda.get_device_properties(pose.device).total_memory
        return numbers * pose.element_size() > SHARE_OF_GPU * memory
    if samples * windows < LANES_FROM:
        return False
    if numbers >= FUSED_FROM or numbers < KERNEL_FROM.get(algorithm, FUSED_FROM):
        return numbers >= FUSED_FROM
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return native.takes(algorithm, vote_map, options())


def fused_form(backend: Backend, algorithm: str) -> Callable[..., Routed]:
    """Give what routes without stored votes; the form in PyTorch where a backend has none of its
    own."""
    forms = (fused if backend == "fused" else native).ROUTINGS
    form: Callable[..., Routed] = forms.get(algorithm, fused.ROUTINGS[algorithm])
    return form
