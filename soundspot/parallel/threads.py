"""Set torch's number of threads for a while, even if several parts of a process do so at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_inside: list[tuple[int, int]] = []  # (thread, count) of every `with` that is not finished
_outside = 0  # the count when there was none


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this many threads; when nobody asks any more, the first count is back."""
    global _outside
    # torch's count belongs to the thread that sets it, and to threads that are started later.
    thread = threading.get_ident()
    mine = (thread, count)
    with _lock:
        if not _inside:
            _outside = torch.get_num_threads()
        _inside.append(mine)
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            _inside.remove(mine)
            still = [other for owner, other in _inside if owner == thread]
            torch.set_num_threads(still[-1] if still else _outside)
