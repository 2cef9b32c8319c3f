"""Return memory to the system after visitors have left, where the C library must be told to.

glibc gives every thread its own heap, and a server with many threads holds on to what passed
through each of them. Other C libraries lack these calls; there nothing is done.
"""

import ctypes
import sys

ARENA_MAX = -8  # M_ARENA_MAX in glibc's malloc.h
HEAPS = 2


def limit_heaps() -> None:
    """Make all threads share two heaps; call it before there are many threads."""
    _call("mallopt", ARENA_MAX, HEAPS)


def trim_heaps() -> None:
    """Return free memory to the system."""
    _call("malloc_trim", 0)


def _call(name: str, *values: int) -> None:
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), name, lambda *_: None)(*values)
