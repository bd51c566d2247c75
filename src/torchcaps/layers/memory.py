"""Memory that is used again."""

import ctypes
import sys

__all__ = ["keep_memory"]

# Options of mallopt, <malloc.h> of the GNU C library.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4


def keep_memory() -> bool:
    """Keep what is freed for the next tensors, for as long as this process lives; False where that
    cannot be told.

    A tensor of more than 32 MB is otherwise given back to Linux as soon as it is freed, and the
    next one is made of fresh pages, each of which is zeroed when it is first touched: a step that
    only moves numbers spends most of its time there. `torchcaps train` calls this on a CPU; a
    program of your own should where it does nothing but train. Results are the same bit for bit,
    the peak of memory is about the same, and what was once used is not given back to others.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    # No pieces of their own for large tensors; the heap grows by 64 MB and never shrinks.
    options = {MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 64 << 20}
    return all(libc.mallopt(option, value) for option, value in options.items())
