"""In which order stacked layers route [tsai2020] §4.1, Procedure 2.

sequential   all iterations of a layer, then those of the next; any routing.
concurrent   the first iteration from the bottom up, then every layer at once from what its
             neighbours were an iteration ago; routings whose state is the parents alone.

`couple` has a function on the couplings for every layer that it names: on those of the last
iteration, or of the last step that reaches the output and of those that no longer do. `intervene`
has one on the capsules that leave a layer, whenever the layer above looks; a layer's own state is
what its routing gave.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice, check_count
from torchcaps.errors import TorchcapsError
from torchcaps.layers.capsule_layer import CapsuleLayer
from torchcaps.layers.hooks import MAKE_WEIGHTS, has_hooks, make_weights, stepped
from torchcaps.layers.intervention import NOTHING_DONE, leaving, named
from torchcaps.layers.routing.base import has_argument
from torchcaps.ops.checks import check_iterations, check_keep
from torchcaps.types import Capsules, Couple, Intervene, Keep, Routed, Step, VoteMap

Schedule = Literal["sequential", "concurrent"]


def route_sequentially(
    layers: Mapping[str, CapsuleLayer],
    children: Capsules,
    *,
    keep: Keep = "none",
    couple: Mapping[str, Couple] = NOTHING_DONE,
    intervene: Mapping[str, Intervene] = NOTHING_DONE,
) -> dict[str, Routed]:
    """Route one layer after the other, each over the parents of the one below.

    Arguments:
        layers: capsule layers by their names, from below.
        children: the capsules that the lowest of them sees.
        keep: which iterations the results hold, with their couplings: "none", "last", or all
            "steps".
        couple: by the name of a layer, a function on the couplings of its last iteration.
        intervene: by the name of a layer, a function on the capsules that leave it.

    >>> layers = {"classes": DenseCapsules(n_in=8, d_in=4, n_out=3, d_out=6)}
    >>> route_sequentially(layers, Capsules(torch.rand(2, 8, 4)))["classes"].parents.pose.shape
    torch.Size([2, 3, 6])
    """
    couple, intervene = _functions(layers, couple, intervene)
    return routed_in_a_row(layers, children, keep, couple, intervene)


def routed_in_a_row(
    layers: Mapping[str, CapsuleLayer],
    children: Capsules,
    keep: Keep,
    couple: Mapping[str, Couple],
    intervene: Mapping[str, Intervene],
) -> dict[str, Routed]:
    """Do what `route_sequentially` does with arguments that were checked."""
    routed = {}
    for name, layer in layers.items():
        made: Routed = layer(children, keep=keep, couple=couple.get(name))
        children = leaving(name, made.parents, intervene)
        routed[name] = made if children is made.parents else made._replace(parents=children)
    return routed


def route_concurrently(
    layers: Mapping[str, CapsuleLayer],
    children: Capsules,
    *,
    iterations: int,
    keep: Keep = "none",
    couple: Mapping[str, Couple] = NOTHING_DONE,
    intervene: Mapping[str, Intervene] = NOTHING_DONE,
) -> dict[str, Routed]:
    """Route all layers at the same time, iteration by iteration [tsai2020] §3.

    Weights are tied over iterations; the lowest children never change. The top of iteration t looks
    one layer down at t − 1, two layers down at t − 2. What cannot reach it is not computed, unless
    every step is to be kept.

    Arguments:
        layers: capsule layers by their names, from below.
        children: the capsules that the lowest of them sees.
        iterations: how often every layer routes, from 1.
        keep: which iterations the results hold, with their couplings: "none", "last", or all
            "steps".
        couple: by the name of a layer, a function on the couplings of its last iteration.
        intervene: by the name of a layer, a function on the capsules that leave it.

    >>> routed = route_concurrently(layers, children, iterations=2)  # doctest: +SKIP
    >>> routed["classes"].parents.pose.shape  # doctest: +SKIP
    """
    check_keep(keep)
    check_iterations(iterations)
    couple, intervene = _functions(layers, couple, intervene)
    check_have_routings(layers)
    names = list(layers)
    for layer in layers.values():
        # What a call of the layers makes, since they are not called here.
        make_weights(layer)

    looks = {name: _Look(layer, keep) for name, layer in layers.items()}
    steps: dict[str, list[Step]] = {}
    below = children
    for depth, name in enumerate(names):
        function = _couple_at(1, depth, couple, names, iterations)
        steps[name] = [looks[name].at(below, None, function)]
        below = leaving(name, steps[name][0].parents, intervene)
    for t in range(2, iterations + 1):
        moved = {}
        for depth, name in enumerate(names):
            above = len(names) - 1 - depth
            if t + above > iterations and keep != "steps":
                continue
            # Those below as they were an iteration ago.
            below = children
            if depth:
                below = leaving(names[depth - 1], steps[names[depth - 1]][-1].parents, intervene)
            function = _couple_at(t, depth, couple, names, iterations)
            moved[name] = looks[name].at(below, steps[name][-1].parents, function)
        for name, step in moved.items():
            steps[name] = [*steps[name], step] if keep == "steps" else [step]
    return {
        name: Routed(
            leaving(name, made[-1].parents, intervene), tuple(made) if keep != "none" else ()
        )
        for name, made in steps.items()
    }


def steps_in_a_row(layers: int, iterations: int, schedule: Schedule) -> int:
    """Say how many iterations of routing lie one behind the other on the longest way through
    stacked layers: what no number of processors makes shorter, and how deep gradients go.

    Arguments:
        layers: how many layers route.
        iterations: how often each of them does.
        schedule: "sequential": each layer waits for all iterations of the one below. "concurrent":
            the first iteration goes from the bottom up, and each later one is one step for all.

    >>> steps_in_a_row(5, 3, "sequential"), steps_in_a_row(5, 3, "concurrent")
    (15, 7)
    """
    check_choice("schedule", schedule, get_args(Schedule))
    check_iterations(iterations)
    check_count("layers", layers, so="it counts those that route")
    return layers * iterations if schedule == "sequential" else layers + iterations - 1


class _Look:
    """How a layer looks at its children, iteration by iteration; their votes are known while they
    stay."""

    def __init__(self, layer: CapsuleLayer, keep: Keep):
        self.layer, self.keep = layer, keep
        self.children: Capsules | None = None
        self.votes: Tensor | VoteMap

    def at(self, children: Capsules, parents: Capsules | None, couple: Couple | None) -> Step:
        """Take one step, which is a call of the layer where somebody put a hook on it."""
        step = partial(self._step, parents)
        # Weights are made already, and each time that spectral_norm makes them they move.
        if has_hooks(self.layer, but=MAKE_WEIGHTS):
            return stepped(
                self.layer, step, children, keep=self.keep, couple=couple, but=MAKE_WEIGHTS
            )
        return step(children, keep=self.keep, couple=couple)

    def _step(
        self, parents: Capsules | None, seen: Capsules, *, keep: Keep, couple: Couple | None
    ) -> Step:
        if seen is not self.children:
            self.children, self.votes = seen, self.layer.votes(seen)
        return self.layer.step(seen, parents, votes=self.votes, keep=keep, couple=couple)


def check_have_routings(layers: Mapping[str, nn.Module]) -> None:
    """Refuse layers that cannot route at the same time, since nothing in them routes in steps."""
    for name, layer in layers.items():
        if not isinstance(layer, CapsuleLayer):
            raise TorchcapsError(
                f"layers that route at the same time must be capsule layers with a routing, but "
                f"{name!r} is a {type(layer).__name__}; use route_sequentially, in a network "
                f'schedule="sequential".'
            )


def _check_layers(layers: Mapping[str, CapsuleLayer]) -> None:
    if not isinstance(layers, dict | nn.ModuleDict | Mapping):
        raise TorchcapsError(
            f"layers must be capsule layers by their names, from below, "
            f'{{"classes": DenseCapsules(…)}}, but came as a {type(layers).__name__}.'
        )
    if torch.compiler.is_compiling():
        return
    for name, layer in layers.items():
        # One of somebody's own may be any module that is called as ours are.
        if isinstance(layer, CapsuleLayer):
            continue
        if not isinstance(layer, nn.Module) or not has_argument(layer.forward, "keep"):
            raise TorchcapsError(
                f"a layer that is routed takes capsules and `keep`, but {name!r} is a "
                f"{type(layer).__name__}; give capsule layers, such as DenseCapsules."
            )


def _functions(
    layers: Mapping[str, CapsuleLayer],
    couple: Mapping[str, Couple] | None,
    intervene: Mapping[str, Intervene] | None,
) -> tuple[Mapping[str, Couple], Mapping[str, Intervene]]:
    _check_layers(layers)
    names = list(layers)
    return named("couple", couple, names), named("intervene", intervene, names)


def _couple_at(
    t: int, depth: int, couple: Mapping[str, Couple], names: Sequence[str], iterations: int
) -> Couple | None:
    """Give the function for a layer in iteration t, from 1, if it is the layer's last."""
    reaches = max(1, iterations - (len(names) - 1 - depth))
    return couple.get(names[depth]) if t >= reaches else None
