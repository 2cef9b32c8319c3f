"""Where work on many items is done: the processes of this machine.

An engine takes a function and items and gives the results in the items' order, with a bounded
number of items under way, so that millions cost no more memory than hundreds.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, TypeVar

from soundspot.errors import SoundspotError

AHEAD = 8  # items a process may be ahead of the slowest one's result

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """How many processes this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    function: Callable[[T], R], items: Iterable[T], jobs: int, crashed: Callable[[T], R]
) -> Iterator[R]:
    """Give function(item) for every item, in order.

    A process that dies (out of memory, a fault in a decoder) takes only its own item with it: the
    items that were under way are tried again, each in a process of its own.

    Args:
        function: A function of a module, or a partial of one: processes must be able to import it.
        items: Read as results are taken.
        jobs: Number of processes; with one the work is done in this very process.
        crashed: What stands for the result of an item whose own process died.
    """
    if jobs < 1:
        raise SoundspotError(f"expected a number of processes from 1 on, got {jobs}")
    if jobs == 1:
        yield from map(function, items)
        return
    waiting = iter(items)
    flying: deque[tuple[T, Future[R]]] = deque()
    pool = _pool(jobs, function)
    try:
        while True:
            while len(flying) < jobs * AHEAD:
                try:
                    item = next(waiting)
                except StopIteration:
                    break
                try:
                    future = pool.submit(function, item)
                except BrokenProcessPool:
                    pool.shutdown()
                    pool = _pool(jobs, function)
                    future = pool.submit(function, item)
                flying.append((item, future))
            if not flying:
                return
            item, future = flying.popleft()
            try:
                result = future.result()
            except BrokenProcessPool:
                result = _alone(function, item, crashed)
            yield result
    finally:
        pool.shutdown(cancel_futures=True)


def _alone(function: Callable[[T], R], item: T, crashed: Callable[[T], R]) -> R:
    with _pool(1, function) as pool:
        try:
            return pool.submit(function, item).result()
        except BrokenProcessPool:
            return crashed(item)


def _pool(jobs: int, function: Callable[..., Any]) -> ProcessPoolExecutor:
    # A plain fork would copy our locks and threads. The fork server imports the function's module
    # once, and its children have it at hand.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        plain = function.func if isinstance(function, partial) else function
        context.set_forkserver_preload(["torch", plain.__module__])
    return ProcessPoolExecutor(jobs, context, _begin)


def _begin() -> None:
    """Set up a process: one thread of computing, and no life of its own."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
