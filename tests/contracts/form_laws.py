"""What it means that a form is the plain op: its bars, and how finely a backend cuts its work."""

from typing import Literal, NamedTuple

import torch

from contracts.forms import BACKENDS, results_of
from torchcaps.ops.fused import tiles, window_sums


class Bars(NamedTuple):
    """In single precision, of the plain op in double precision: a part of the size of a tensor, by
    its largest number or by its norm; or so many times the error that the plain op has itself."""

    by_norm: bool = False
    values: float = 0
    gradients: float = 0
    others: tuple[str, ...] = ("plain",)
    together: bool = False  # Any value may be as far off as the worst of the plain op.
    # What hardly depends on anything has gradients of rounding errors. They are parts of the
    # largest gradient, or of a millionth of the largest tensor.
    rounding: Literal["largest", "millionth"] = "largest"


# Logits of distance routing are many times a distance, LayerNorm of nearly equal numbers enlarges
# the last bits, and small variances enlarge all of them. Where gradients of two samples cancel, as
# they do in one of some hundred draws with one child and one parent, nothing is left but rounding.
BARS = {
    ("dynamic", "native"): Bars(gradients=4, others=("plain", "fused")),
    # In one of 400 draws of a case both forms are four to five times as far off as the plain op, on
    # Intel; over all of them medians and worst errors of the three are alike.
    ("distance", "native"): Bars(values=3, gradients=3, others=("plain", "fused"), together=True),
    ("em", "native"): Bars(True, 3, 4, ("plain", "fused"), together=True, rounding="millionth"),
}
VALUES, GRADIENTS = 2e-6, 2e-5
# The costs are few, agreement has one factor, and so few are the errors that even out in one.
COSTS = dict.fromkeys(("of beta_a", "of beta_u", "of agreement"), 1e-4)

# How finely work is cut: everything at once; some lanes and children with a remainder; one vote.
CUTS = {"fused": ("whole", "ragged", "single"), "native": (1, 3)}


def cut(monkeypatch, way, how):
    if way == "native":  # By threads of ours: those of PyTorch would wait for each other.
        monkeypatch.setattr(torch, "get_num_threads", lambda: how)
    elif how != "whole":
        monkeypatch.setattr(tiles, "CHILDREN", 5)
        for module, name in ((tiles, "TILE_BYTES"), (window_sums, "CHUNK_BYTES")):
            monkeypatch.setattr(module, name, {"ragged": 1000, "single": 1}[how])


def assert_equal_in_double(way, case, leaves):
    """Of numbers above one, as a part of the largest."""
    exact = results_of("plain", case, leaves)
    found = results_of(way, case, leaves)
    assert list(found) == list(exact)
    for name, x in exact.items():
        fast = found[name]
        assert (fast.shape, fast.dtype, fast.device) == (x.shape, x.dtype, x.device), name
        if x.numel():
            error = float((fast - x).abs().max()) / max(float(x.abs().max()), 1.0)
            assert error <= 1e-10, (name, error)


def assert_close_in_single(way, case, leaves, device="cpu", bars=None):
    """Within the bars of the plain op in double precision."""
    bars = bars or BARS.get((case.algorithm, way), Bars())
    exact = results_of("plain", case, {name: x.double() for name, x in leaves.items()})
    fast = results_of(way, case, {name: x.to(device) for name, x in leaves.items()})
    others = [results_of(other, case, leaves) for other in (bars.others if any(bars[1:3]) else ())]
    size = torch.linalg.vector_norm if bars.by_norm else lambda x: x.abs().max()
    assert list(fast) == list(exact)
    full = {name: x for name, x in exact.items() if x.numel()}
    scales = {name: max(float(size(x)), 1e-30) for name, x in full.items()}
    if bars.rounding == "millionth":
        least = 1e-6 * max(scales.values(), default=0.0)
        scales = {name: max(scale, least) for name, scale in scales.items()}
    if bars.rounding == "largest":
        gradients = {name: scale for name, scale in scales.items() if name.startswith("of ")}
        largest = max(gradients.values(), default=0.0)
        scales |= {name: largest for name, x in gradients.items() if x <= 1e-6 * largest}

    def error(found, name):
        return float(size(found[name].cpu().double() - full[name])) / scales[name]

    for name, x in exact.items():
        assert (fast[name].shape, fast[name].dtype) == (x.shape, torch.float32), name
    worst = {name: max((error(other, name) for other in others), default=0.0) for name in full}
    if bars.together:
        values = [name for name in full if not name.startswith("of ")]
        worst |= dict.fromkeys(values, max((worst[name] for name in values), default=0.0))
    for name in full:
        of_leaf = name.startswith("of ")
        bar = COSTS.get(name, GRADIENTS if of_leaf else VALUES)
        allowed = max(bar, (bars.gradients if of_leaf else bars.values) * worst[name])
        found = error(fast, name)
        if found > allowed and of_leaf and case.algorithm == "em":
            # In one draw of forty a kernel is that much further off; over many draws the forms are
            # alike. Inputs that differ in the last bit move what is exact as far.
            moved = max(error(x, name) for x in nearly_the_same(case, leaves))
            allowed = bars.gradients * moved
        assert found <= allowed, (name, found, worst[name])


def nearly_the_same(case, leaves):
    """Results in double precision of inputs that single precision hardly tells from these."""
    for seed in range(4):
        draw = torch.Generator().manual_seed(seed)
        moved = {
            name: x.double() * (1 + (torch.randint(0, 2, x.shape, generator=draw) - 0.5) / 2**23)
            for name, x in leaves.items()
        }
        yield results_of("plain", case, moved)


def assert_law(way, case, leaves):
    """In the precision of the leaves."""
    assert way in BACKENDS
    if leaves["pose"].dtype == torch.float64:
        assert_equal_in_double(way, case, leaves)
    else:
        assert_close_in_single(way, case, leaves)
