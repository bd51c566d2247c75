"""Dense capsule layers one on another, whole networks of layers, and the options they share."""

from collections.abc import Mapping
from typing import Any, Literal

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    AttentionCapsules,
    CapsuleLayer,
    Decoder,
    DenseCapsules,
    EMRouting,
    PrimaryCapsules,
    Routing,
    make_routing,
)
from torchcaps.layers.after import children_after
from torchcaps.layers.decoder import Mask
from torchcaps.layers.dense import Sharing
from torchcaps.models.initialise import Init, initialised
from torchcaps.models.network import CapsuleNetwork
from torchcaps.ops.squashing import Squash


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


def stacked(
    image: tuple[int, int, int],
    backbone: nn.Module,
    primary: PrimaryCapsules,
    sizes: Mapping[str, tuple[int, int]],
    *,
    routing: str | Routing,
    bias: bool | Literal["odd"],
    weight_std: float,
    init: Init = "paper",
    squash: Squash = "hinton",
    sharing: Sharing = "none",
    head: bool = False,
    decoder: bool | Decoder = False,
    mask: Mask = "class",
    **of_routing: Any,
) -> CapsuleNetwork:
    """Stack dense layers of these sizes, (capsules, components), on primary capsules, each with a
    routing of its own; the last are the classes. `sharing` is that of the lowest."""
    below: dict[str, Any] = {**children_after((backbone, primary), image), "sharing": sharing}
    layers = {}
    for name, (n_out, d_out) in sizes.items():
        layers[name] = DenseCapsules(
            **below,
            n_out=n_out,
            d_out=d_out,
            weight_std=weight_std,
            **routed_by(routing, bias=bias, squash=squash, **of_routing),
        )
        below = {"n_in": n_out, "d_in": d_out}
    return assembled(
        image, backbone, primary, layers, init=init, head=head, decoder=decoder, mask=mask
    )


def assembled(
    image: tuple[int, int, int],
    backbone: nn.Module,
    primary: nn.Module,
    layers: Mapping[str, CapsuleLayer | AttentionCapsules],
    *,
    init: Init = "paper",
    head: bool = False,
    decoder: bool | Decoder = False,
    mask: Mask = "class",
    **more: Any,
) -> CapsuleNetwork:
    """Put a network together, whose last layer is `classes`. A decoder may be there already; `more`
    is what else `CapsuleNetwork` takes."""
    first, classes = next(iter(layers.values())), layers["classes"]
    network = CapsuleNetwork(
        image=image,
        backbone=backbone,
        primary=primary,
        primary_grid=first.child_grid or (1, 1, first.n_in),
        layers=layers,
        # Before the decoder, for both draw their weights.
        head=nn.Linear(classes.d_out, 1) if head else None,
        decoder=Decoder(n_classes=classes.n_out, d_in=classes.d_out, image=image, mask=mask)
        if decoder is True
        else decoder or None,
        **more,
    )
    return initialised(network, init)
