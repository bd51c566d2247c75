"""Numbers nearer to zero than 1e-38, which a float32 holds only in part: denormal ones.

A processor computes with them in its microcode, up to seventy times as slowly, and gradients of a
deep network that is at chance are such numbers for epochs.

Every thread has a register that says how they are taken, and torch tells that of the thread which
asks. PyTorch's operators share their work with the threads of GNU's OpenMP, so these are asked too,
each by itself. Those of other OpenMPs do as the thread that they work for.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# A float64 that is held in part; named, because Python itself multiplies what is constant.
DENORMAL = 1e-310
# In a forked child GNU's OpenMP waits for threads that are its parent's.
PROCESS = os.getpid()


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Take them for zero in this thread and in those that PyTorch's operators share work with, as
    GPUs do in some kernels; no update that they make could be seen in a weight. Does nothing on a
    processor that cannot.

    >>> with denormals_as_zero():
    ...     print(float(torch.tensor(1e-39) * 1))  # doctest: +SKIP
    0.0
    """
    before: dict[int, bool] = {}

    def begin() -> None:
        before[threading.get_ident()] = _are_zero()
        torch.set_flush_denormal(True)

    def end() -> None:
        # A thread that began meanwhile began as this one was.
        torch.set_flush_denormal(before.get(threading.get_ident(), here))

    here = _are_zero()
    threads = torch.get_num_threads()
    _in_every_thread(begin, threads)
    try:
        yield
    finally:
        _in_every_thread(end, max(threads, torch.get_num_threads()))


def _in_every_thread(act: Callable[[], None], threads: int) -> None:
    """Do something in this thread and in all others that compute for it."""
    run = _in_a_team() if threads > 1 and os.getpid() == PROCESS else None
    if run is None:
        act()
        return
    each = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: act())
    run(each, None, ctypes.c_uint(threads), ctypes.c_uint(0))


def _in_a_team() -> Any:
    """Give the function of GNU's OpenMP that runs another in so many threads, if it is loaded."""
    try:
        return ctypes.CDLL(None).GOMP_parallel
    except (OSError, AttributeError, TypeError):
        return None


def _are_zero() -> bool:
    """Say whether somebody told this thread so before; torch can only be told."""
    return DENORMAL * 1.0 == 0.0
