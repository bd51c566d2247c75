"""A network with parts taken out: fewer channels, types, children and hidden parents.

A parent that is taken out leaves something behind. Its children's couplings come from a softmax
over all parents, so without it those to its siblings would grow. Where its votes are zero its logit
never moves (Eq. 12 of [renzulli2025]); all such parents of a layer are replaced by one whose votes
are zero and whose prior is the logarithm of the sum of their exponentials:
    c_ij = exp(b_ij) / (Σ_kept exp(b_ik) + Σ_gone exp(prior_ik))
Classes are never taken out.

The file of a smaller network is read as any other: its header says that tensors are smaller than
its name has them, and sizes follow from the tensors.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers import (
    CapsuleLayer,
    Conv3dCapsules,
    ConvCapsules,
    DenseCapsules,
    DynamicRouting,
)
from torchcaps.models.deepcaps import DeepCaps
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.own import as_given
from torchcaps.models.structure import Run, capsule_layers_of, first_layer, runs, type_runs

# The entry of a configuration that says so.
SMALLER = "smaller"
CHILDREN = "kept_children"


class Kept(NamedTuple):
    """What stays; what is not named stays whole.

    channels: of convolutions that another one reads, by the name of the one that makes them; of
        DeepCaps types of capsules, but in the stem.
    types: of primary capsules.
    children: of the first layer, counted among those of the types that stay.
    parents: of hidden layers, by name.
    """

    channels: Mapping[str, tuple[int, ...]]
    types: tuple[int, ...] | None
    children: tuple[int, ...] | None
    parents: Mapping[str, tuple[int, ...]]


def no_chain(network: nn.Module) -> str:
    """Why a network of another kind cannot be made smaller."""
    kind = type(as_given(network))
    return (
        f"a {kind.__name__} is no chain of convolutions with capsules on top, so nothing "
        f"can be taken out of it; networks of that kind, and DeepCaps, can be made smaller."
    )


def smaller(network: nn.Module, kept: Kept) -> nn.Module:
    """A copy of a network without what is not kept, in evaluation mode."""
    if not isinstance(network, (CapsuleNetwork, DeepCaps)):
        raise TorchcapsError(no_chain(network))
    if isinstance(network, DeepCaps) and kept != Kept(kept.channels, None, None, {}):
        raise TorchcapsError(
            "of a DeepCaps only channels, and types of its cells, can be taken out: name both in "
            "Kept.channels, and leave the types, children and parents of Kept empty."
        )
    model = copy.deepcopy(network).eval()
    state = _State(model)
    for run in runs(model) if kept.channels else ():
        if run.name in kept.channels:
            state.take_run(run, kept.channels[run.name])
    if kept.types is not None:
        (run,) = type_runs(model)
        state.take_run(run, kept.types)
    types = _types_left(model, state, kept)
    for hidden, index in kept.parents.items():
        state.take_parents(hidden, index)
    # One that was built by hand has no configuration.
    config: dict[str, Any] = getattr(network, "config", {})
    said = {**config.get(SMALLER, {}), "types": types}
    if config:
        model.config = {**config, SMALLER: said}
    adopt_sizes(model, state.tensors, said)
    model.load_state_dict(state.tensors, assign=True)
    return model.eval()


def _types_left(model: CapsuleNetwork | DeepCaps, state: "_State", kept: Kept) -> int:
    """Take single children out; how many types of primary capsules there are then."""
    if isinstance(model, DeepCaps):
        # Those of cell 4, of which none can go.
        return cast(Conv3dCapsules, model.layers["cell_4_skip"]).parent_grid[2]
    types = int(model.primary_grid[2]) if kept.types is None else len(kept.types)
    if kept.children is not None:
        name = next(iter(capsule_layers_of(model)))
        state.take_children(name, kept.children)
        before = state.tensors.get(CHILDREN)
        device = state.tensors[f"layers.{name}.weight"].device if before is None else before.device
        some = torch.tensor(kept.children, device=device)
        state.tensors[CHILDREN] = some if before is None else before[some]
    return types


def adopt_sizes(network: nn.Module, state: Mapping[str, Tensor], said: Mapping[str, Any]) -> None:
    """Give a network the sizes of these tensors, which are to be its own."""
    types = said.get("types") if isinstance(said, Mapping) else None
    if type(types) is not int or types < 1:
        raise TorchcapsError(
            f"the file of a smaller network says how many types of primary capsules it has, but "
            f"this one says {short(types)}; it is damaged: copy it once more."
        )
    resized = set[nn.Module]()
    for key, tensor in state.items():
        path, _, name = key.rpartition(".")
        module = network.get_submodule(path)
        if getattr(module, name, None) is None and key == CHILDREN:
            module.register_buffer(name, torch.empty_like(tensor))
            continue
        old = getattr(module, name)
        if old is not None and old.shape == tensor.shape:
            continue
        empty = torch.empty_like(tensor)
        is_buffer = name in module._buffers
        setattr(module, name, empty if is_buffer else nn.Parameter(empty))
        resized.add(module)
    for part in resized:
        _count_again(part)
    if isinstance(network, CapsuleNetwork):
        _place_again(network, types)


def _count_again(part: nn.Module) -> None:
    """Sizes that a module holds beside its tensors."""
    if isinstance(part, nn.Conv2d):
        # Of those in groups only depthwise ones lose channels.
        depthwise = part.groups > 1
        part.out_channels = part.weight.shape[0]
        part.groups = part.out_channels if depthwise else 1
        part.in_channels = part.out_channels if depthwise else part.weight.shape[1]
    elif isinstance(part, (nn.BatchNorm2d, nn.InstanceNorm2d)) and part.weight is not None:
        part.num_features = len(part.weight)
    elif isinstance(part, DenseCapsules) and part.sharing == "none":
        part.n_in, part.n_out = part.weight.shape[:2]
    elif isinstance(part, ConvCapsules):
        part.n_out = part.weight.shape[1]


def _place_again(network: CapsuleNetwork, types: int) -> None:
    """Where primary capsules lie, and what the first layer knows of that."""
    height, width, _ = network.primary_grid
    layer = first_layer(network)
    if network.kept_children is not None:
        # Some of a grid are none any more.
        network.primary_grid = (1, 1, len(network.kept_children))
        layer.child_grid = None
        return
    network.primary_grid = (height, width, types)
    if layer.child_grid is not None:
        layer.child_grid = network.primary_grid
        layer.n_in = height * width * types
    if layer.window is not None:
        layer.window = layer.window._replace(child_grid=network.primary_grid)
        layer.routing.window = layer.window


class _State:
    """The tensors of a network, from which rows are taken."""

    def __init__(self, network: CapsuleNetwork | DeepCaps):
        self.network = network
        self.tensors = dict(network.state_dict())

    def take_run(self, run: Run, units: tuple[int, ...]) -> None:
        """Keep these units of a run."""
        channels = run.channels(units)
        for name in (*run.makers, *run.passed):
            self.take(name, 0, channels)
        for name in run.readers:
            self.take(name, 1, channels, only=("weight",))
        if run.rows:
            gone = {row for unit, rows in enumerate(run.rows) if unit not in units for row in rows}
            children = range(len(self.tensors[f"layers.{run.layer}.weight"]))
            self.take_children(run.layer, tuple(i for i in children if i not in gone))

    def take(
        self,
        name: str,
        axis: int,
        index: tuple[int, ...],
        *,
        only: tuple[str, ...] = ("weight", "bias", "running_mean", "running_var"),
    ) -> None:
        """Keep these rows of a module's tensors."""
        for each in only:
            key = f"{name}.{each}"
            if key in self.tensors:
                rows = torch.tensor(index, device=self.tensors[key].device)
                self.tensors[key] = self.tensors[key].index_select(axis, rows)

    def take_children(self, layer: str, index: tuple[int, ...]) -> None:
        """Keep these children of a layer; of one whose children share matrices, these types."""
        many = len(self.tensors[f"layers.{layer}.weight"])
        self.take(f"layers.{layer}", 0, index, only=("weight",))
        # A prior has a row for each child also where those of a type share one matrix.
        children = len(self.tensors.get(f"layers.{layer}.routing.prior", ()))
        rows = tuple(first + i for first in range(0, children, many) for i in index)
        self.take(f"layers.{layer}.routing", 0, rows, only=("prior",))

    def take_parents(self, layer: str, index: tuple[int, ...]) -> None:
        """Keep these parents of a hidden layer, and one that stands for all others."""
        names = list(capsule_layers_of(self.network))
        above = names[names.index(layer) + 1]
        routing = cast(CapsuleLayer, capsule_layers_of(self.network)[layer]).routing
        assert isinstance(routing, DynamicRouting)
        weight = self.tensors[f"layers.{layer}.weight"]
        n_in, n_out = weight.shape[:2]
        gone = [j for j in range(n_out) if j not in index]
        key = f"layers.{layer}.routing.prior"
        prior = self.tensors.get(key, weight.new_zeros(n_in, n_out))
        left_behind = prior[:, gone].logsumexp(1, keepdim=True)
        with_one = (*index, gone[0])
        self.take(f"layers.{layer}", 1, with_one, only=("weight",))
        self.take(f"layers.{layer}.routing", 0, with_one, only=("bias",))
        self.tensors[f"layers.{layer}.weight"][:, -1] = 0
        self.tensors[key] = torch.cat([prior[:, list(index)], left_behind], 1)
        self.take_children(above, with_one)
        # Whatever the bias of the one makes of it, nothing reads it.
        self.tensors[f"layers.{above}.weight"][-1] = 0
