"""Which way a layer routes: by itself, or as a user chose; the results are the same."""

from unittest import mock

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from error_text import text_of
from torchcaps import Capsules, create_model
from torchcaps.layers import (
    ConvCapsules,
    DenseCapsules,
    DistanceRouting,
    DynamicRouting,
    EMRouting,
    InvertedRouting,
    UniformRouting,
    use_backend,
)
from torchcaps.ops import backend, fused, native
from torchcaps.types import VoteMap


def chosen(layer, count):
    pose = torch.rand(count, layer.n_in, layer.d_in, dtype=layer.weight.dtype)
    return "fused" if isinstance(layer.votes(Capsules(pose)), VoteMap) else "plain"


def test_auto_fuses_large_votes_of_many_samples_alone(monkeypatch):
    layer = DenseCapsules(n_in=64, d_in=4, n_out=8, d_out=8)  # 4,096 numbers a sample
    assert [chosen(layer, count) for count in (15, 16, 511, 512)] == ["plain"] * 3 + ["fused"]
    monkeypatch.setattr(backend, "FUSED_FROM", 4096)
    assert [chosen(layer, count) for count in (1, 15, 16)] == ["plain", "plain", "fused"]
    use_backend(layer, "fused")
    assert chosen(layer, 1) == "fused"
    use_backend(layer, "plain")
    assert chosen(layer, 512) == "plain"


def test_auto_stores_votes_on_a_gpu_as_long_as_they_fit(monkeypatch):
    gigabyte = mock.Mock(total_memory=2**30)  # a 32nd: 8,388,608 numbers in float32
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gigabyte)

    def is_unstored(count):
        with FakeTensorMode():
            pose = torch.empty(count, 64, 4, device="cuda")
            weight = torch.empty(64, 8, 8, 4, device="cuda")  # 4,096 numbers a sample
            given = VoteMap(Capsules(pose, torch.empty(count, 64, device="cuda")), weight)
        return backend.is_worth_fusing("dynamic", given, dict)

    assert [is_unstored(count) for count in (512, 2048, 2049)] == [False, False, True]


def test_a_native_kernel_predicts_smaller_votes():
    layer = DenseCapsules(n_in=64, d_in=4, n_out=8, d_out=8)  # 4,096 numbers a sample
    sooner = "fused" if native.available() else "plain"
    with torch.no_grad():
        assert [chosen(layer, count) for count in (31, 32)] == ["plain", sooner]
        assert chosen(layer.double(), 32) == "plain"
    assert chosen(layer.float(), 32) == "plain"


@pytest.mark.parametrize(
    ("way", "has_one"),
    [
        (EMRouting(variant="gritzman"), True),
        (InvertedRouting(), False),
        (DistanceRouting(), True),
        (DynamicRouting(iterations=33), False),
        (DistanceRouting(iterations=33), False),
        ("self_attention", False),
    ],
    ids=str,
)
def test_which_kernels_predict_smaller_votes(way, has_one):
    layer = DenseCapsules(n_in=64, d_in=4, n_out=8, d_out=4, pose="matrix", routing=way)
    with torch.no_grad():
        found = chosen(layer, 64)  # 2,048 numbers a sample
    assert found == ("fused" if has_one and native.available() else "plain")


def test_kernels_that_know_no_windows_predict_no_smaller_votes():
    layers = [
        ConvCapsules(
            child_grid=(6, 6, 4), types=8, d_in=4, d_out=4, pose="matrix", kernel=3, routing=way
        )
        for way in ("dynamic", "distance", "em")
    ]
    with torch.no_grad():
        found = [chosen(layer, 16) for layer in layers]
    assert found == ["plain", "plain", "fused" if native.available() else "plain"]


@pytest.mark.parametrize(
    ("kind", "options", "has_one"),
    [(UniformRouting, {}, True), (InvertedRouting, {"activations": True}, False)],
    ids=["uniform", "ablation C"],
)
def test_the_form_in_pytorch_answers_for_every_backend_but_plain(kind, options, has_one):
    layer = DenseCapsules(n_in=6, d_in=4, n_out=3, d_out=4, routing=kind(**options))
    votes = VoteMap(Capsules(torch.rand(2, 6, 4), torch.rand(2, 6)), layer.weight)
    for way in ("auto", "fused", "native"):
        use_backend(layer, way)
        assert layer.routing.takes(votes) is has_one, way
    use_backend(layer, "plain")
    assert not layer.routing.takes(votes)


def test_no_kernel_takes_what_the_form_in_pytorch_does_not():
    routing = InvertedRouting(activations=True)
    layer = DenseCapsules(n_in=6, d_in=4, n_out=3, d_out=4, routing=routing)
    votes = VoteMap(Capsules(torch.rand(2, 6, 4), torch.rand(2, 6)), layer.weight)
    for forms in (fused, native):
        assert not forms.takes("inverted", votes, routing.options()), forms.__name__


def test_a_backend_that_was_removed_leaves_the_layer_as_it_was():
    layer = DenseCapsules(n_in=6, d_in=4, n_out=3, d_out=4)
    text_of(lambda: use_backend(layer, "triton"))
    assert layer.routing.backend == "auto"


def test_a_concurrent_network_gives_the_same_either_way():
    torch.manual_seed(0)
    model = create_model("tsai_inverted_simple_c10", image=(1, 18, 20), n_classes=3, iterations=3)
    model.double().eval()
    image = torch.rand(2, 1, 18, 20).double()
    outs = []
    for way in ("plain", "fused"):
        use_backend(model, way)
        outs.append(model(image, keep="steps"))
    torch.testing.assert_close(outs[1].scores, outs[0].scores, rtol=0, atol=1e-10)
    for a, b in zip(outs[0].trace, outs[1].trace, strict=True):
        for one, other in zip(a.routed.steps, b.routed.steps, strict=True):
            torch.testing.assert_close(other.coupling, one.coupling, rtol=0, atol=1e-10)
