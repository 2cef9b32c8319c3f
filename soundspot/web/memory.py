"""Memory that visitors used goes back to the system, where the C library has to be told.

glibc gives every thread a heap of its own, and a server's many threads keep what passed through
each of them. Elsewhere the calls are not there, and nothing is done.
"""

import ctypes
import sys

ARENA_MAX = -8  # M_ARENA_MAX in glibc's malloc.h
HEAPS = 2


def few_heaps() -> None:
    """Let all threads share two heaps; to be called before there are many threads."""
    _call("mallopt", ARENA_MAX, HEAPS)


def give_back() -> None:
    """Return what is free."""
    _call("malloc_trim", 0)


def _call(name: str, *values: int) -> None:
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    function = getattr(library, name, None)  # other C libraries than glibc lack it
    if function is not None:
        function(*values)
