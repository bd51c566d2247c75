"""Memory that is used again."""

import ctypes
import os
import sys

# Options of mallopt, <malloc.h> of the GNU C library.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
# Of allocators that may have been loaded in its place: jemalloc, tcmalloc, mimalloc.
OTHERS = ("mallctl", "tc_version", "mi_version")


def can_keep_memory() -> bool:
    """Say whether `keep_memory` does anything: under Linux with the allocator of the GNU C library,
    and without TORCHCAPS_KEEP_MEMORY=0 in the environment.

    >>> if can_keep_memory():  # doctest: +SKIP
    ...     keep_memory()
    """
    return _libc() is not None


def keep_memory() -> bool:
    """Keep what is freed for the next tensors, for as long as this process lives; False where
    `can_keep_memory` says no.

    A tensor of more than 32 MB is otherwise given back to Linux as soon as it is freed, and the
    next one is made of fresh pages, each of which is zeroed when it is first touched: a step that
    only moves numbers spends most of its time there. Results are the same bit for bit. What was
    once used is not given back, and tensors of many sizes may leave holes, so that the peak of
    memory is another one. `fit` and the commands that train or predict call this; a program that
    only builds layers is left as it is.

    >>> keep_memory()  # doctest: +SKIP
    """
    libc = _libc()
    if libc is None:
        return False
    # No pieces of their own for large tensors; the heap grows by 64 MB and never shrinks.
    options = {MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 64 << 20}
    return all(libc.mallopt(option, value) for option, value in options.items())


def _libc() -> ctypes.CDLL | None:
    """Give the C library, where its allocator can be told and may be."""
    if not sys.platform.startswith("linux") or os.environ.get("TORCHCAPS_KEEP_MEMORY") == "0":
        return None
    libc = ctypes.CDLL(None)
    is_gnu = hasattr(libc, "gnu_get_libc_version") and not any(hasattr(libc, x) for x in OTHERS)
    return libc if is_gnu else None
