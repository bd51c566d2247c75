"""Route by name from what stands between children and votes, as a layer does."""

import inspect
from collections.abc import Callable
from typing import Any

from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.ops import routing as routings
from torchcaps.ops.backend import Backend, check_backend, fused_form, has_form, is_fused
from torchcaps.ops.votes import check_vote_map, materialise, seen_poses
from torchcaps.types import Routed, VoteMap

# Every function NAME_routing, but for 3-D routing: no vote map makes the votes that it takes.
PLAIN: dict[str, Callable[..., Routed]] = {
    name.removesuffix("_routing"): getattr(routings, name)
    for name in dir(routings)
    if name.endswith("_routing") and name != "conv3d_routing"
}
PLAIN["self_routing"] = PLAIN.pop("self")
# What comes with the children, not beside them.
GIVEN = ("votes", "activation", "poses")


def route(
    vote_map: VoteMap, routing: str = "dynamic", *, backend: Backend = "auto", **options: Any
) -> Routed:
    """Route children to parents [*b, j, d], or [*b, p, j, d] through a window.

    The votes are stored only where that is faster; parents and gradients are the same either way.

    Arguments:
        vote_map: the children, with the activations that "em" and "distance" ask for, and the
            weights that make votes of their poses.
        routing: "dynamic" is `ops.dynamic_routing`, and so for every function NAME_routing but
            `ops.conv3d_routing`.
        backend: "auto" stores the votes only where that is faster. "plain" stores them. "fused"
            makes them a tile at a time. "native" does the same by a compiled kernel for processors,
            and as "fused" does where a routing has no such kernel. On a GPU "fused" sums votes
            through windows by convolutions, which PyTorch rounds to TensorFloat-32 unless
            torch.backends.cudnn.allow_tf32 = False.
        options: those of the function of this name, such as `iterations` or `keep` of
            `ops.dynamic_routing`.

    >>> children = tc.Capsules(torch.rand(32, 1152, 8))
    >>> weight = torch.randn(1152, 10, 16, 8)  # [i, j, d_out, d_in]
    >>> route(tc.VoteMap(children, weight), "dynamic", iterations=3).parents.pose.shape
    torch.Size([32, 10, 16])
    """
    if not isinstance(vote_map, VoteMap):
        raise TorchcapsError(
            f"route takes a VoteMap(children, weight), but got a {type(vote_map).__name__}; votes "
            f"that are made already go to ops.dynamic_routing(votes) and its like."
        )
    _check_routing(routing)
    check_backend(backend)
    _check_options(routing, options)
    check_vote_map(vote_map)
    asked = {name: value for name, value in options.items() if name not in ("keep", "couple")}
    if is_fused(
        backend,
        routing,
        vote_map,
        lambda: asked,
        takes=lambda: has_form(backend, routing, vote_map, asked),
        called=f"{routing} routing",
    ):
        return fused_form(backend, routing)(vote_map, **options)
    beside = _of_children(vote_map, routing, options)
    return PLAIN[routing](materialise(vote_map), **beside, **options)


def _check_routing(routing: object) -> None:
    if not isinstance(routing, str) or routing not in PLAIN:
        raise TorchcapsError(
            f"routing={short(routing)} is unknown; {nearest(str(routing), PLAIN)}. One of your own "
            f"takes the votes, my_routing(ops.materialise(vote_map)), or is given to a layer, "
            f"layers.DenseCapsules(routing=MyRouting(), …)."
        )


def _check_options(routing: str, options: dict[str, Any]) -> None:
    known = [name for name in inspect.signature(PLAIN[routing]).parameters if name not in GIVEN]
    for name in options:
        if name in GIVEN:
            raise TorchcapsError(
                f"route takes no {name}: it stands in the vote map, "
                f"VoteMap(Capsules(pose, activation), weight)."
            )
        if name not in known:
            raise TorchcapsError(f"{routing} routing has no option {name}; {nearest(name, known)}.")
    for each in inspect.signature(PLAIN[routing]).parameters.values():
        needed = each.kind is each.KEYWORD_ONLY and each.default is each.empty
        if needed and each.name not in (*GIVEN, *options):
            raise TorchcapsError(
                f"{routing} routing needs {each.name}, which layers own; give it: "
                f"route(vote_map, {routing!r}, {each.name}=…)."
            )


def _of_children(vote_map: VoteMap, routing: str, options: dict[str, Any]) -> dict[str, Any]:
    """Give the activations [*b, i] and the poses as parents see them, for the routings that go by
    them."""
    parameters = inspect.signature(PLAIN[routing]).parameters
    taken, sees = parameters.get("activation"), "poses" in parameters
    needed = taken is not None and taken.default is taken.empty
    if not (needed or sees or options.get("beta_a") is not None):
        return {}
    activation, window = vote_map.children.activation, vote_map.window
    if activation is not None and window is not None:
        activation = window.of(activation.unsqueeze(-1)).squeeze(-1)
    return {"activation": activation, **({"poses": seen_poses(vote_map)} if sees else {})}
