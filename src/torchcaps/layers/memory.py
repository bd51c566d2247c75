"""Memory that is used again."""

import ctypes
import sys

__all__ = ["keep_memory"]

# Options of mallopt, <malloc.h> of the GNU C library.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
# Of allocators that may have been loaded in its place: jemalloc, tcmalloc, mimalloc.
OTHERS = ("mallctl", "tc_version", "mi_version")


def keep_memory() -> bool:
    """Keep what is freed for the next tensors, for as long as this process lives; False where that
    cannot be told.

    A tensor of more than 32 MB is otherwise given back to Linux as soon as it is freed, and the
    next one is made of fresh pages, each of which is zeroed when it is first touched: a step that
    only moves numbers spends most of its time there. Results are the same bit for bit. What was
    once used is not given back, and tensors of many sizes may leave holes, so that the peak of
    memory is another one. `torchcaps train --keep-memory` calls this.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version") or any(hasattr(libc, x) for x in OTHERS):
        return False
    # No pieces of their own for large tensors; the heap grows by 64 MB and never shrinks.
    options = {MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 64 << 20}
    return all(libc.mallopt(option, value) for option, value in options.items())
