"""Training takes numbers that a float32 holds only in part for zero, and nothing else changes."""

import contextlib
import importlib

import pytest
import torch

from torchcaps.train import fit, make_recipe
from torchcaps.train.denormals import denormals_as_zero
from torchcaps.train.module import Training

# The package hides its module `fit` behind the function.
FIT = importlib.import_module("torchcaps.train.fit")


def are_zero():
    return bool(torch.tensor(1e-39) * 1 == 0)


@pytest.fixture(autouse=True)
def processor():
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor computes with denormal numbers whatever it is told")


@pytest.fixture(params=[False, True])
def before(request):
    torch.set_flush_denormal(request.param)
    yield request.param
    torch.set_flush_denormal(False)


def test_they_are_zero_within_and_then_what_they_were(before):
    assert are_zero() == before
    with contextlib.suppress(ZeroDivisionError), denormals_as_zero():
        assert are_zero()
        assert torch.tensor(1.2e-38) * 1 > 0
        raise ZeroDivisionError
    assert are_zero() == before


RECIPE = make_recipe(
    model="peer_sign_em", data="sign", epochs=1, batch_size=500, options={"bias": True}
)


def test_they_are_zero_while_a_network_is_trained(tmp_path, monkeypatch):
    seen = []
    real = Training.training_step

    def training_step(self, *batch):
        seen.append(are_zero())
        return real(self, *batch)

    monkeypatch.setattr(Training, "training_step", training_step)
    fit(RECIPE, tmp_path / "run")
    assert {*seen} == {True}
    assert not are_zero()


def test_weights_are_the_same_bit_for_bit(tmp_path, monkeypatch):
    with_zeros = fit(RECIPE, tmp_path / "zeros")
    monkeypatch.setattr(FIT, "denormals_as_zero", contextlib.nullcontext)
    without = fit(RECIPE, tmp_path / "as-they-are")
    assert with_zeros.model_file.read_bytes() == without.model_file.read_bytes()
