"""Self-attention routing of random vote maps by every form."""

import torch

from ops.fused.inverted_cases import leaves_of, noise_like, slots_of, vote_map_of
from torchcaps.ops import fused, materialise, native, triton
from torchcaps.ops import self_attention_routing as plain_routing

FORMS = {"fused": fused, "native": native, "triton": triton}


def attention_leaves(names="", **how):
    """Random ones in float32: b vote bias, x coordinates, p prior."""
    leaves, window = leaves_of(names, **how), how.get("window")
    slots = how.get("n_in", 6) if window is None else slots_of(window)
    # Logits grow with the children; large ones enlarge the rounding of any way to compute them.
    leaves["weight"] *= slots**-0.25
    if "p" in names:
        leaves["prior"] = torch.randn(slots, how.get("n_out", 3)).double()
    return {name: x.float() for name, x in leaves.items()}


def attended_by(form, leaves, how, keep="last", squash="exp"):
    vote_map = vote_map_of(leaves, **how)
    options = {"bias": leaves.get("prior"), "squash": squash, "keep": keep}
    if form == "plain":
        return plain_routing(materialise(vote_map), **options)
    return FORMS[form].self_attention_routing(vote_map, **options)


def attention_results(form, leaves, how, **options):
    """Poses and couplings, and the gradients of random sums of them."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in leaves.items()}
    routed = attended_by(form, leaves, how, **options)
    values = {"pose": routed.parents.pose}
    if routed.steps:
        values["coupling"] = routed.steps[0].coupling
    loss = sum((x * noise_like(x, seed)).sum() for seed, x in enumerate(values.values()))
    gradients = torch.autograd.grad(loss, leaves.values(), allow_unused=True)
    found = {name: x.detach() for name, x in values.items()}
    return found | {f"of {n}": x for n, x in zip(leaves, gradients, strict=True)}


def assert_attention_law(form, leaves, how, device="cpu", **options):
    """Of the plain op in float64: 2e-6 of the largest value, 2e-5 of the largest gradient; where
    single precision does not reach that, about as near as the plain op in it."""
    exact = attention_results("plain", {n: x.double() for n, x in leaves.items()}, how, **options)
    theirs = attention_results("plain", leaves, how, **options)
    fast = attention_results(form, {n: x.to(device) for n, x in leaves.items()}, how, **options)
    for name, x in exact.items():
        if x is None:
            assert fast[name] is None, name
            continue
        found = fast[name].cpu()
        assert (found.shape, found.dtype) == (x.shape, torch.float32), name
        if not x.numel():
            continue
        scale = x.abs().max().clamp(min=1e-30)
        error, plain = (float((y - x).abs().max() / scale) for y in (found, theirs[name]))
        bar = 2e-5 if name.startswith("of ") else 2e-6
        assert error <= max(bar, 4 * plain), (name, error, plain)
