"""Tell the C library when to keep freed memory and when to return it to the system.

Only glibc has these calls; elsewhere nothing is done.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Names and defaults of glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8
DEFAULTS = ((TRIM_THRESHOLD, 128 * 1024), (MMAP_MAX, 65_536))
HEAPS = 2


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Reuse freed memory as long as the context lasts, and return it to the system afterwards.

    A large tensor otherwise comes from the system and goes back to it every time, and its pages are
    cleared anew: a third of the time of a training step whose tensors have 100 MB.
    """
    _call("mallopt", MMAP_MAX, 0)
    _call("mallopt", TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        for name, value in DEFAULTS:
            _call("mallopt", name, value)
        trim_heaps()


def limit_heaps() -> None:
    """Make all threads share two heaps; call it before there are many threads.

    glibc gives every thread its own, and a server with many threads holds on to what passed through
    each of them.
    """
    _call("mallopt", ARENA_MAX, HEAPS)


def trim_heaps() -> None:
    """Return free memory to the system."""
    _call("malloc_trim", 0)


def _call(name: str, *values: int) -> None:
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), name, lambda *_: None)(*values)
