"""Where the kernels run: in Triton's interpreter, or on the GPU for tests that are marked so."""

import dataclasses
import functools
import importlib.util
import inspect
from contextlib import contextmanager
from unittest import mock

import numpy
import pytest
import torch


@pytest.fixture
def triton_device(request):
    """The device of this test. Triton decides at its import whether it interprets."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("there is no Triton: make test-all, or pip install -c constraints.txt triton")
    import triton

    interprets = not isinstance(triton.language.sum, triton.JITFunction)
    if request.node.get_closest_marker("gpu"):
        if interprets or not torch.cuda.is_available():
            pytest.skip("kernels are compiled where there is a GPU and with pytest -m gpu")
        yield torch.device("cuda")
        return
    if not interprets:
        pytest.skip("Triton was imported before TRITON_INTERPRET=1 was set, so it compiles")
    with like_a_gpu():
        yield torch.device("cpu")


@contextmanager
def like_a_gpu():
    """The interpreter in half of its time, and with the rounding of a GPU, which does not warn."""
    with pytest.MonkeyPatch.context() as monkeypatch, numpy.errstate(all="ignore"):
        patch_once(monkeypatch)
        look_for_no_overflow(monkeypatch)
        round_to_nearest(monkeypatch)
        yield


def patch_once(monkeypatch):
    """The interpreter changes the language at every call of a function, which takes half of its
    time; here once a test for every module that names it."""
    from triton import language
    from triton.runtime import interpreter

    patch, scopes = interpreter._patch_lang, {}

    @functools.cache
    def spoken_by(function):
        return tuple(
            value is language
            for value in function.__globals__.values()
            if inspect.ismodule(value) and value in (language, language.core)
        )

    def patched(function):
        spoken = spoken_by(function)
        if spoken not in scopes:
            scopes[spoken] = patch(function)
            monkeypatch.setattr(scopes[spoken], "restore", lambda: None)
        return scopes[spoken]

    monkeypatch.setattr(interpreter, "_patch_lang", patched)


def look_for_no_overflow(monkeypatch):
    """The interpreter computes every whole number twice, the second time in 64 bits, to see whether
    the first overflowed; but it throws the answer away where it does not debug. That takes another
    half of its time."""
    from triton.runtime import interpreter

    options = interpreter.interpreter_builder.options
    assert not options.debug
    quiet = dataclasses.replace(options, sanitize_overflow=False)
    monkeypatch.setattr(interpreter.interpreter_builder, "options", quiet)


def round_to_nearest(monkeypatch):
    """The interpreter cuts a float32 off where a bfloat16 ends. A GPU rounds to the nearest, which
    is half as far away and as often above as below."""
    from triton import language
    from triton.runtime import interpreter

    convert = interpreter._convert_float

    def converted(given, source, target, mode):
        if (source, target) != (language.float32, language.bfloat16):
            return convert(given, source, target, mode)
        return torch.tensor(given).bfloat16().view(torch.uint16).numpy()

    monkeypatch.setattr(interpreter, "_convert_float", converted)


@pytest.fixture
def launches():
    """The names of the kernels that a call starts."""
    from torchcaps.ops.triton import runtime, votes

    def names_of(call):
        found = []

        def launch(kernel, programs, *arguments, **constants):
            found.append(kernel.fn.__name__)
            runtime.launch(kernel, programs, *arguments, **constants)

        with mock.patch.object(votes, "launch", side_effect=launch):
            call()
        return found

    return names_of
