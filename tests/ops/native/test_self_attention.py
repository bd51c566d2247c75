"""Native self-attention routing is the plain one of the materialised votes: values, gradients,
errors."""

import re
from unittest import mock

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ops.fused.attention_cases import (
    assert_attention_law,
    attended_by,
    attention_leaves,
    attention_results,
)
from ops.fused.inverted_cases import ODD
from torchcaps.errors import TorchcapsError
from torchcaps.layers import DenseCapsules, SelfAttentionRouting, use_backend
from torchcaps.ops import native
from torchcaps.ops.native import mixing
from torchcaps.types import Capsules


@pytest.fixture(autouse=True)
def _library():
    if not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


def calls(call):
    """How often `call` runs a kernel."""
    with mock.patch.object(mixing, "_run", side_effect=mixing._run) as counted:
        call()
    return counted.call_count


def test_the_law_of_many_children():
    leaves = attention_leaves("p", batch=(6,), n_in=200, n_out=10, d_in=8, d_out=16)
    assert_attention_law("native", leaves, {})


@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_priors_broadcast_as_in_the_plain_op(window):
    how = {"window": window}
    slots = 12 if window else 6
    for shape in ((3,), (slots, 1), (1, 3), (1, 1, slots, 3)):
        leaves = attention_leaves("x", **how) | {"prior": torch.randn(shape)}
        if window is None:
            leaves["prior"] = leaves["prior"].reshape(shape[-3:])
        assert_attention_law("native", leaves, how)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_rounded_once(half):
    how = {"pose": "matrix", "window": ODD}
    leaves = {name: x.to(half) for name, x in attention_leaves("xp", **how).items()}
    wide = {name: x.float() for name, x in leaves.items()}
    mine, theirs = (attention_results("native", x, how) for x in (leaves, wide))
    for name in ("pose", "coupling"):
        assert torch.equal(mine[name], theirs[name].to(half))
    for name, x in leaves.items():
        assert (mine[f"of {name}"].shape, mine[f"of {name}"].dtype) == (x.shape, half)


@pytest.mark.parametrize("what", ["float64", "vote bias", "prior of samples"])
def test_what_a_kernel_does_not_take_goes_the_fused_way(what):
    leaves = attention_leaves("bp" if what == "vote bias" else "p")
    if what == "float64":
        leaves = {name: x.double() for name, x in leaves.items()}
    if what == "prior of samples":
        leaves["prior"] = torch.randn(3, 6, 3)
    found = []
    assert calls(lambda: found.append(attention_results("native", leaves, {}))) == 0
    for name, x in attention_results("fused", leaves, {}).items():
        assert torch.equal(found[0][name], x), name


def test_without_a_library_the_fused_form_routes(monkeypatch):
    monkeypatch.setenv("TORCHCAPS_NATIVE", "0")
    leaves, found = attention_leaves("p"), []
    assert calls(lambda: found.append(attended_by("native", leaves, {}).parents.pose)) == 0
    assert torch.equal(found[0], attended_by("fused", leaves, {}).parents.pose)


def test_a_layer_takes_the_kernel_by_itself():
    layer = DenseCapsules(n_in=200, d_in=8, n_out=10, d_out=16, routing=SelfAttentionRouting())
    torch.nn.init.normal_(layer.routing.prior)
    children, found = Capsules(torch.randn(80, 200, 8) / 8), []
    for backend, expected in (("auto", 1), ("native", 1), ("fused", 0), ("plain", 0)):
        use_backend(layer, backend)
        assert calls(lambda: found.append(layer(children).parents.pose)) == expected
    for pose in found[:-1]:
        assert (pose - found[-1]).abs().max() <= 2e-6 * found[-1].abs().max()


def test_flops_are_those_of_its_sums():
    leaves = attention_leaves("p", batch=(7,), n_in=16, n_out=10, d_in=8, d_out=16)
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    votes, agreement = 2 * 7 * 16 * 10 * 16 * 8, 2 * 7 * 16 * 10 * 16
    with FlopCounterMode(display=False) as counter:
        pose = attended_by("native", leaves, {}, keep="none").parents.pose
        # T; votes for agreements and for the sum.
        assert counter.get_total_flops() == votes + 2 * votes + 2 * agreement
        pose.sum().backward()
    # Gradients of children and weights, for the first one and for the last.
    assert counter.get_total_flops() >= 3 * votes + 2 * votes + 4 * votes


@pytest.mark.parametrize("window", [None, pytest.param(ODD, marks=pytest.mark.slow)], ids=str)
def test_one_graph_compiles(window):
    torch._dynamo.reset()
    how = {"pose": "matrix", "window": window}
    leaves = {name: x.requires_grad_() for name, x in attention_leaves("xp", **how).items()}

    def pose(*given):
        given = dict(zip(leaves, given, strict=True))
        return attended_by("native", given, how, keep="none").parents.pose

    compiled = torch.compile(pose, backend="aot_eager", fullgraph=True)
    found = []
    for op in (compiled, pose):
        made = op(*leaves.values())
        found.append((made, *torch.autograd.grad(made.square().sum(), leaves.values())))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("names", ["", "p"])
def test_second_derivatives_are_refused(names):
    leaves = {name: x.requires_grad_() for name, x in attention_leaves(names).items()}
    pose = attended_by("native", leaves, {}).parents.pose
    (gradient,) = torch.autograd.grad(pose.square().sum(), leaves["pose"], create_graph=True)
    words = (
        "by create_graph=True, route ops.materialise(vote_map) with the routing of torchcaps.ops"
    )
    with pytest.raises(TorchcapsError, match=re.escape(words)):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {"squash": "expo"}),
        ({}, {"keep": "step"}),
        ({"prior": torch.zeros(3, 12)}, {}),
        ({"weight": torch.ones(5, 3, 2, 2)}, {}),
    ],
    ids=lambda x: str(x)[:30],
)
def test_what_the_plain_op_refuses_is_refused_in_its_words(given, options):
    how = {"pose": "matrix", "window": ODD}
    leaves = attention_leaves("p", **how) | given
    with pytest.raises(TorchcapsError) as theirs:
        attended_by("plain", leaves, how, **options)
    with pytest.raises(TorchcapsError, match=re.escape(str(theirs.value))):
        attended_by("native", leaves, how, **options)
