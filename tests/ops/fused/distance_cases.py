"""Distance routing by every way, and all that it gives."""

import torch

from ops.fused.vote_maps import leaves
from ops.fused.vote_maps import vote_map as map_of
from torchcaps.ops import distance_routing as plain
from torchcaps.ops import fused, materialise, native
from torchcaps.types import Capsules

DENSE = ("none", "vector", None)
ALL = ("vote_bias", "coordinates", "bias")


def leaves_of(kind, *, scales=0, **options):
    """As `leaves`, with lengths below and above those of the votes, and some given distances."""
    found = leaves(kind, **options)
    found["length"] = (3 * torch.rand(found["pose"].shape[:-1])).to(found["pose"])
    if scales:
        found["scale"] = (0.5 + torch.rand(scales)).to(found["pose"])
    return found


def routed_by(way, kind, found, **options):
    options |= {name: found[name] for name in ("bias", "scale") if name in found}
    vote_map = map_of(kind, found)._replace(children=Capsules(found["pose"], found["length"]))
    if way != "plain":
        form = {"fused": fused, "native": native}[way]
        return form.distance_routing(vote_map, **options)
    length, window = found["length"], kind[2]
    if window is not None:
        length = window.of(length.unsqueeze(-1)).squeeze(-1)
    return plain(materialise(vote_map), length, **options)


def numbers_of(routed):
    steps = [x for step in routed.steps for x in (step.coupling, *step.parents)]
    return [*routed.parents, *steps, *([] if routed.scale is None else [routed.scale])]


def noise_like(x, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(x.shape, dtype=torch.float64, generator=generator).to(x)


def results_of(way, kind, found, **options):
    """All that a routing gives, and the gradients of a random sum of it."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in found.items()}
    values = numbers_of(routed_by(way, kind, leaves, **options))
    loss = sum((x * noise_like(x, seed)).sum() for seed, x in enumerate(values))
    gradients = torch.autograd.grad(loss, leaves.values(), materialize_grads=True)
    return [x.detach() for x in values], dict(zip(leaves, gradients, strict=True))


def error(fast, theirs):
    """Of numbers above one as a share of the largest."""
    assert (fast.shape, fast.dtype) == (theirs.shape, theirs.dtype)
    if theirs.numel() == 0:
        return 0.0
    return float((fast - theirs).abs().max()) / max(float(theirs.abs().max()), 1.0)
