"""What a network can do without: parts that nothing reads, and parts that are silent on images.

A part that nothing reads has only zeros above it, so taking it out changes no score. A part that
is silent, whose values are zero on every image that was looked at, may speak on another one.

channel  zero for every position and image, or read by zero kernels alone; in the cells of DeepCaps
         all components of a type of capsules together
type     all capsules of a primary type silent, or their matrices zero
child    of the first layer: silent, or all of its matrices zero
parent   of a hidden layer: silent, or its matrices zero and all those that vote for it
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    CapsuleLayer,
    DenseCapsules,
    DistanceRouting,
    DynamicRouting,
    InvertedRouting,
    SelfAttentionRouting,
    UniformRouting,
)
from torchcaps.models import CapsuleNetwork
from torchcaps.models.deepcaps import DeepCaps
from torchcaps.models.smaller import Kept, no_chain
from torchcaps.models.structure import (
    Run,
    capsule_layers_of,
    first_layer,
    rows_of_types,
    runs,
)


class Silent:
    """The largest values seen on images: of channels where they are read, and lengths of capsules,
    those in the cells of DeepCaps among the channels."""

    def __init__(self) -> None:
        self.channels: dict[str, Tensor] = {}
        self.capsules: dict[str, Tensor] = {}

    def see(self, found: dict[str, Tensor], values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            found[name] = torch.maximum(found[name], value) if name in found else value


@torch.no_grad()
def silent(network: nn.Module, batches: Iterable[Tensor]) -> Silent:
    """Look at images [b, c, h, w], and remember how large channels and capsules ever were.

    Arguments:
        network: a network of `create_model`.
        batches: images [b, c, h, w].

    >>> found = silent(network, [images])
    """
    if not isinstance(network, (CapsuleNetwork, DeepCaps)):
        raise TorchcapsError(no_chain(network))
    seen = Silent()

    def see(run: Run) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(_: nn.Module, read: tuple[Tensor, ...]) -> None:
            lengths = read[0].unflatten(1, (-1, run.size)).norm(dim=2)
            seen.see(seen.channels, {run.name: lengths.amax((0, 2, 3))})

        return hook

    was_training = network.training
    network.eval()
    hooks = [
        network.get_submodule(run.readers[0]).register_forward_pre_hook(see(run))
        for run in _runs(network)
        if run.readers
    ]
    try:
        for images in batches:
            trace = network(images, keep="last").trace
            lengths = {layer.name: layer.children.pose.norm(dim=-1).amax(0) for layer in trace}
            seen.see(seen.capsules, lengths)
    finally:
        for hook in hooks:
            hook.remove()
        network.train(was_training)
    return seen


def removable(network: nn.Module, seen: Silent | None = None, *, below: float = 0.0) -> Kept:
    """What stays when everything is taken out that nothing reads or that is silent.

    Arguments:
        network: in evaluation mode.
        seen: what `silent` found; without it weights alone decide.
        below: lengths up to this are silent; channels are so at exactly zero.

    >>> shrunk = removable(network)
    """
    if not isinstance(network, (CapsuleNetwork, DeepCaps)):
        raise TorchcapsError(no_chain(network))
    seen = Silent() if seen is None else seen
    channels: dict[str, tuple[int, ...]] = {}
    for run in _runs(network):
        if run.readers:
            _note(channels, run.name, _unneeded(network, run, seen, below))
    name = next(iter(capsule_layers_of(network)))
    layer = first_layer(network)
    if not isinstance(network, CapsuleNetwork) or not _ignores_zero_votes(layer):
        return Kept(channels, None, None, {})
    gone = _is_zero(layer.weight, axis=0)
    if name in seen.capsules and len(seen.capsules[name]) == len(gone):
        gone |= (seen.capsules[name] <= below).to(gone.device)
    types = _kept_types(network, gone)
    if types is not None:
        rows = rows_of_types(network)
        gone = gone[sorted(row for t in types for row in rows[t])]
    children = None
    if isinstance(layer, DenseCapsules) and layer.sharing == "none" and bool(gone.any()):
        children = _left(gone)
    return Kept(channels, types, children, _kept_parents(network, seen, below))


def _unneeded(network: nn.Module, run: Run, seen: Silent, below: float) -> Tensor:
    """Which units of a run nothing reads, nothing makes, or are silent."""
    readers = [cast(Tensor, network.get_submodule(name).weight) for name in run.readers]
    unread = torch.stack([_is_zero(weight, axis=1) for weight in readers]).all(0)
    unread = unread.unflatten(0, (-1, run.size)).all(1)
    if run.rows:
        layer = capsule_layers_of(network)[run.layer]
        if not _ignores_zero_votes(layer):
            return torch.zeros_like(unread)
        matrices = _is_zero(cast(Tensor, layer.weight), axis=0)
        unread &= matrices[torch.tensor(run.rows, device=matrices.device)].all(1)
    unread |= _unmade(network, run)
    if run.name in seen.channels:
        # What is squashed has a length; a channel that is nearly zero may be read by large kernels.
        limit = below if run.size > 1 else 0.0
        unread |= (seen.channels[run.name] <= limit).to(unread.device)
    return cast(Tensor, unread)


def _unmade(network: nn.Module, run: Run) -> Tensor:
    """Which units of a run are zero on every image: made by zero kernels, without a bias, and
    passed through nothing that could add to them."""
    zero = []
    for maker in map(network.get_submodule, run.makers):
        made = _is_zero(cast(Tensor, maker.weight), axis=0)
        bias = cast(Tensor | None, maker.bias)
        zero.append(made if bias is None else made & (bias == 0))
    both = torch.stack(zero).all(0).unflatten(0, (-1, run.size)).all(1)
    return torch.zeros_like(both) if run.passed else cast(Tensor, both)


def _kept_types(network: CapsuleNetwork, gone: Tensor) -> tuple[int, ...] | None:
    if network.kept_children is not None or not _runs(network):
        return None
    try:
        rows = rows_of_types(network)
    except TorchcapsError:
        return None
    if sum(map(len, rows)) != len(gone):
        return None
    types = torch.stack([gone[list(row)].all() for row in rows])
    return _left(types) if bool(types.any()) else None


def _kept_parents(
    network: CapsuleNetwork, seen: Silent, below: float
) -> dict[str, tuple[int, ...]]:
    layers = list(capsule_layers_of(network).items())
    kept: dict[str, tuple[int, ...]] = {}
    # From above: what a parent saves there depends on how many of its own parents stay.
    for (name, layer), (above_name, above) in reversed(list(pairwise(layers))):
        both = (layer, above)
        if not all(isinstance(each, DenseCapsules) and each.sharing == "none" for each in both):
            continue
        assert isinstance(layer, DenseCapsules)
        assert isinstance(above, DenseCapsules)
        if not isinstance(layer.routing, DynamicRouting) or _adds_to_votes(layer):
            continue
        if not _ignores_zero_votes(above):
            continue
        gone = _is_zero(above.weight, axis=0) & _is_zero(layer.weight, axis=1)
        if above_name in seen.capsules:
            gone |= (seen.capsules[above_name] <= below).to(gone.device)
        # One of them stays in the place of all.
        fewer = int(gone.sum()) - 1
        stay = len(kept[above_name]) + 1 if above_name in kept else above.n_out
        if fewer > 0 and _pays(layer, above, fewer, stay):
            _note(kept, name, gone)
    return kept


def _pays(layer: DenseCapsules, above: DenseCapsules, fewer: int, stay: int) -> bool:
    """Whether so many parents less save more numbers than a prior needs where there was none."""
    assert isinstance(layer.routing, DynamicRouting)
    prior = 0 if layer.routing.prior is not None else layer.n_in * (layer.n_out - fewer)
    matrices = layer.weight[:, 0].numel() + stay * above.weight[0, 0].numel()
    return fewer * matrices > prior


def _ignores_zero_votes(layer: nn.Module) -> bool:
    """Whether a child whose votes are zero counts for nothing in a layer."""
    if not isinstance(layer, CapsuleLayer) or _adds_to_votes(layer):
        return False
    routing = layer.routing
    if isinstance(routing, UniformRouting):
        # A mean over children counts them.
        return routing.normalise == "softmax"
    if isinstance(routing, DistanceRouting):
        # Distances are measured over all children, unless a running mean of training is there.
        return routing.scale == "batch"
    if isinstance(routing, InvertedRouting):
        return not routing.activations
    return isinstance(routing, (DynamicRouting, SelfAttentionRouting))


def _adds_to_votes(layer: CapsuleLayer) -> bool:
    """Whether a vote is more than a matrix times a child, so that without both it is not zero."""
    own = getattr(layer, "own_coordinates", None)
    return layer.vote_bias is not None or own is not None or getattr(layer, "coordinates", False)


def _runs(network: nn.Module) -> list[Run]:
    """The runs of the trunk; none where it is no chain."""
    try:
        return runs(network)
    except TorchcapsError:
        return []


def _is_zero(weight: Tensor, *, axis: int) -> Tensor:
    return (weight == 0).movedim(axis, 0).flatten(1).all(1)


def _left(gone: Tensor) -> tuple[int, ...]:
    """What stays; the first where nothing would, so that a network remains."""
    left = (~gone).nonzero().flatten().tolist()
    return tuple(left) or (0,)


def _note(kept: dict[str, tuple[int, ...]], name: str, gone: Tensor) -> None:
    if bool(gone.any()):
        kept[name] = _left(gone)
