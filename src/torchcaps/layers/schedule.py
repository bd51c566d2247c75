"""In which order stacked layers route [tsai2020] §4.1, Procedure 2.

sequential   all iterations of a layer, then those of the next; any routing.
concurrent   the first iteration from the bottom up, then every layer at once from what its
             neighbours were an iteration ago; routings whose state is the parents alone.
"""

from collections.abc import Mapping

from torch import Tensor

from torchcaps.layers.capsule_layer import CapsuleLayer
from torchcaps.ops.checks import check_keep
from torchcaps.types import Capsules, Keep, Routed, Step, VoteMap

__all__ = ["route_concurrently", "route_sequentially"]


def route_sequentially(
    layers: Mapping[str, CapsuleLayer], children: Capsules, *, keep: Keep = "none"
) -> dict[str, Routed]:
    routed = {}
    for name, layer in layers.items():
        routed[name] = layer(children, keep=keep)
        children = routed[name].parents
    return routed


def route_concurrently(
    layers: Mapping[str, CapsuleLayer],
    children: Capsules,
    *,
    iterations: int,
    keep: Keep = "none",
) -> dict[str, Routed]:
    """Weights are tied over iterations; the lowest children never change.

    The top of iteration t looks one layer down at t − 1, two layers down at t − 2. What cannot
    reach it is not computed, unless every step is to be kept.
    """
    check_keep(keep)
    votes: dict[str, Tensor | VoteMap] = {}
    steps: dict[str, list[Step]] = {}
    for name, layer in layers.items():
        votes[name] = layer.votes(children)
        steps[name] = [layer.step(children, None, votes=votes[name], keep=keep)]
        children = steps[name][0].parents
    names = list(layers)
    for t in range(2, iterations + 1):
        moved = {}
        for depth, name in enumerate(names):
            above = len(names) - 1 - depth
            if t + above > iterations and keep != "steps":
                continue
            last = steps[name][-1]
            # Those below as they were an iteration ago; the votes are known while they stay.
            below = steps[names[depth - 1]][-1].parents if depth else last.children
            assert below is not None
            if below is not last.children:
                votes[name] = layers[name].votes(below)
            moved[name] = layers[name].step(below, last.parents, votes=votes[name], keep=keep)
        for name, step in moved.items():
            steps[name] = [*steps[name], step] if keep == "steps" else [step]
    return {
        name: Routed(made[-1].parents, tuple(made) if keep != "none" else ())
        for name, made in steps.items()
    }
