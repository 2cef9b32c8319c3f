"""Processes of this machine: how many there are, and what happens when one dies."""

import functools
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

AHEAD = 8  # items per process that may be pending behind the slowest one

T = TypeVar("T")
R = TypeVar("R")


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_count(jobs: int | None) -> int:
    """The number of processes to start: what was asked for, else one per usable core."""
    return usable_cores() if jobs is None else jobs


def map_in_processes(
    load: Callable[[], Callable[[T], R]],
    items: Iterable[T],
    crashed: Callable[[T], R],
    count: int,
    imported: Callable[..., Any],
) -> Iterator[R]:
    """Yield the loaded function of every item, in order; see `engines.map_items`.

    Args:
        load: Builds the function; called once in each process.
        items: Read as results are taken.
        crashed: Gives the result of an item that killed its process twice.
        count: Number of processes.
        imported: A function whose module the processes will need.
    """
    make_pool = partial(_make_pool, load, imported)
    waiting = iter(items)
    pending: deque[tuple[T, Future[R]]] = deque()
    pool = make_pool(count)
    try:
        while True:
            while len(pending) < count * AHEAD:
                try:
                    item = next(waiting)
                except StopIteration:
                    break
                try:
                    future = pool.submit(_do, item)
                except BrokenProcessPool:
                    pool.shutdown()
                    pool = make_pool(count)
                    future = pool.submit(_do, item)
                pending.append((item, future))
            if not pending:
                return
            item, future = pending.popleft()
            try:
                result = future.result()
            except BrokenProcessPool:
                result = _do_alone(make_pool, item, crashed)
            yield result
    finally:
        pool.shutdown(cancel_futures=True)


def _do_alone(
    make_pool: Callable[[int], ProcessPoolExecutor], item: T, crashed: Callable[[T], R]
) -> R:
    with make_pool(1) as pool:
        try:
            result: R = pool.submit(_do, item).result()
        except BrokenProcessPool:
            return crashed(item)
        return result


def _make_pool(
    load: Callable[[], Callable[[Any], Any]], imported: Callable[..., Any], count: int
) -> ProcessPoolExecutor:
    # A plain fork would copy our locks and threads. The fork server imports the function's module
    # once, and its children inherit it.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        plain = imported.func if isinstance(imported, partial) else imported
        context.set_forkserver_preload(["torch", plain.__module__])
    return ProcessPoolExecutor(count, context, _set_up, (load,))


def _do(item: Any) -> Any:
    return _function()(item)


@functools.cache
def _function() -> Callable[[Any], Any]:
    return _load()  # here, not in _set_up, so that a failure to load reaches the caller


def _load() -> Callable[[Any], Any]:
    raise RuntimeError("this process does not belong to a pool")


def _set_up(load: Callable[[], Callable[[Any], Any]]) -> None:
    """Set up a process: its function, one computing thread, and an end with its parent's."""
    import torch

    global _load
    _load = load
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
