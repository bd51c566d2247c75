"""Loop takes numbers that a float32 holds only in part for zero, and nothing else changes."""

import contextlib
import os
import signal
import time

import pytest
import torch

from laid_runs import few_numbers
from single_steps import FIT, before_steps
from torchcaps.train import fit, make_recipe
from torchcaps.train.denormals import denormals_as_zero
from torchcaps.train.loop import Loop


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


@pytest.fixture
def threads():
    """Two, as long as nobody asks for others, which have computed before."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    assert not zeros()
    yield
    torch.set_num_threads(before)


def zeros():
    """How many of so many denormal numbers that every thread has some are zero."""
    # Made and counted by their bits: who takes them for zero can neither write nor tell them.
    numbers = torch.full((1 << 18,), 700_000, dtype=torch.int32).view(torch.float32)
    return int(((numbers * 1).view(torch.int32) == 0).sum())


@pytest.mark.usefixtures("threads")
def test_they_are_zero_in_every_thread_and_then_what_they_were(before):
    """Those of one thread alone were: half of them."""
    was = zeros()
    assert 0 <= was < 1 << 18
    for _ in range(2):
        with contextlib.suppress(ZeroDivisionError), denormals_as_zero():
            assert zeros() == 1 << 18
            raise ZeroDivisionError
        assert zeros() == was


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("counts", [(4,), (4, 2), (4, 1), (1,), (1, 3)])
def test_threads_that_begin_or_end_meanwhile_are_left_as_they_were(counts):
    """A thread begins as the one that starts it was: those that began within took denormal numbers
    for zero ever after."""
    with denormals_as_zero():
        for count in counts:
            torch.set_num_threads(count)
            assert zeros() == 1 << 18
    for count in (2, 4):
        torch.set_num_threads(count)
        assert zeros() == 0


@pytest.mark.usefixtures("threads")
def test_they_are_zero_in_every_thread_of_a_backward_pass():
    numbers = torch.ones(1 << 18, requires_grad=True)
    with denormals_as_zero():
        (numbers * torch.full((1 << 18,), 1e-20)).backward(torch.full((1 << 18,), 1e-20))
    assert not numbers.grad.view(torch.int32).any()


@pytest.mark.usefixtures("threads")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_threads_that_it_has_not():
    child = os.fork()
    if child == 0:
        with denormals_as_zero():
            os._exit(0 if are_zero() else 1)
    for _ in range(300):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("it hangs")
    assert status == 0


RECIPE = make_recipe(
    model="peer_sign_em", data="sign", epochs=1, batch_size=20, options={"bias": True}
)


DATA = {"sign": few_numbers}


def test_they_are_zero_while_a_network_is_trained(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Loop, "training_step", before_steps(lambda _: seen.append(are_zero())))
    fit(RECIPE, tmp_path / "run")
    assert {*seen} == {True}
    assert not are_zero()


def test_weights_are_the_same_bit_for_bit(tmp_path, monkeypatch):
    with_zeros = fit(RECIPE, tmp_path / "zeros")
    monkeypatch.setattr(FIT, "denormals_as_zero", contextlib.nullcontext)
    without = fit(RECIPE, tmp_path / "as-they-are")
    assert with_zeros.model_file.read_bytes() == without.model_file.read_bytes()
