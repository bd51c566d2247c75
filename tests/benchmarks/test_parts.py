"""Every fast part can be switched off, alone."""

import dataclasses

import parts
import pytest
import speed
import torch
from cases import CASES, tiny
from contestants import CONTESTANTS, leaving_out
from parts import PARTS, is_in, switch_off
from process import errors
from subjects import build, ours

from torchcaps.ops import fused, native
from torchcaps.ops.backend import fused_form

NATIVE, TEXTBOOK = CONTESTANTS["ours-native"], CONTESTANTS["textbook"]
# Where each part acts.
CASE_OF = {
    "fourier": "capsnet-train-128",
    "winograd": "resnet18-train-128",
    "whole-map": "efficient-train-128",
    "native-dynamic": "capsnet-train-128",
    "native-distance": "gamma-train-128",
    "native-em": "em-train-128",
}


@pytest.fixture
def own_kernels(monkeypatch):
    """What is switched off for a process comes back for the next test."""
    for name in vars(fused).keys() & vars(native).keys():
        if not name.startswith("_"):
            monkeypatch.setattr(native, name, getattr(native, name))
    for table in ("ROUTINGS", "_TAKES"):
        monkeypatch.setattr(native, table, dict(getattr(native, table)))


def test_every_part_has_a_case():
    assert set(CASE_OF) == set(PARTS)


@pytest.mark.parametrize("part", parts.LAYERS)
def test_a_layer_is_direct_without_its_part(part):
    case = tiny(CASES[CASE_OF[part]])
    subject = build(case, leaving_out(NATIVE, part))
    found = [
        (type(layer).__name__, layer.is_direct)
        for layer in subject.module.modules()
        if hasattr(layer, "is_direct")
    ]
    assert (parts.LAYERS[part], True) in found
    for kind, is_direct in found:
        assert is_direct is (kind == parts.LAYERS[part])


@pytest.mark.parametrize("part", parts.KERNELS)
def test_a_routing_is_that_of_pytorch_without_its_kernel(part, own_kernels):
    stem = part.removeprefix("native-")
    name = f"{stem}_routing"
    assert getattr(native, name) is not getattr(fused, name)
    switch_off(part, ours(tiny(CASES[CASE_OF[part]])))
    assert getattr(native, name) is getattr(fused, name)
    assert fused_form("native", stem) is fused.ROUTINGS[stem]
    kept = [name for name in native.ROUTINGS if name != stem]
    assert len(kept) == 2
    assert all(native.ROUTINGS[name] is not fused.ROUTINGS[name] for name in kept)
    # A case builds its network more than once.
    switch_off(part, ours(tiny(CASES[CASE_OF[part]])))


def test_only_cases_that_have_a_part_are_timed_without_it():
    names = [
        each.name
        for each in speed.without(
            ["winograd", "fourier"], [NATIVE, TEXTBOOK], CASES["resnet18-train-128"]
        )
    ]
    assert names == ["ours-native-without-winograd"]
    with torch.device("meta"):
        network = ours(tiny(CASES["resnet18-train-128"]))
    assert is_in("winograd", network)
    assert not is_in("fourier", network)


def test_a_part_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no fast part is called 'magic'; there are fourier, "):
        leaving_out(NATIVE, "magic")


def test_a_network_without_a_textbook_is_held_to_its_plain_form():
    case = dataclasses.replace(tiny(CASES["resnet18-train-128"]), batch=2)
    found = errors(build(case, NATIVE))
    assert 0 < max(found["values"].values()) < 1e-4
    assert len(found["gradients"]) > 20
