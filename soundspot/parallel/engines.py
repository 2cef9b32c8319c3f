"""Where work on many items is done: the processes of this machine, or a Ray cluster.

An engine takes a function and items and gives the results in the items' order, with a bounded
number of items under way, so that millions cost no more memory than hundreds.
"""

import functools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from soundspot.common.errors import SoundspotError
from soundspot.parallel import ray_cluster

AHEAD = 8  # items a process may be ahead of the slowest one's result

T = TypeVar("T")
R = TypeVar("R")
EngineName = Literal["local", "ray"]


@dataclass(frozen=True)
class Engine:
    """Who does the work; no result depends on it.

    Attributes:
        name: "local" for processes of this machine; "ray" for the cluster that RAY_ADDRESS names,
            or, without one, a cluster of its own on this machine.
        jobs: Number of processes or workers; None for one a core, of the machine or the cluster.
    """

    name: EngineName = "local"
    jobs: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work before any work starts."""
        if self.jobs is not None and self.jobs < 1:
            raise SoundspotError(f"expected a number of processes from 1 on, got {self.jobs}")


SERIAL = Engine("local", 1)  # in this very process


def cores() -> int:
    """How many processes this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    function: Callable[[T], R], items: Iterable[T], engine: Engine, crashed: Callable[[T], R]
) -> Iterator[R]:
    """Give function(item) for every item, in order.

    A process that dies (out of memory, a fault in a decoder) takes only its own item with it: the
    items that were under way are tried again, each in a process of its own.

    Args:
        function: A function of a module, or a partial of one: processes must be able to import it.
        items: Read as results are taken.
        engine: Who does the work.
        crashed: What stands for the result of an item whose own process died.
    """
    return _run(partial(_as_it_is, function), items, engine, crashed, function, actors=False)


def run_loaded(
    load: Callable[[], Callable[[T], R]],
    items: Iterable[T],
    engine: Engine,
    crashed: Callable[[T], R],
) -> Iterator[R]:
    """The same for a function that is dear to make: each process or actor makes it once.

    Args:
        load: Gives the function; called in the process that uses it.
        items: Read as results are taken.
        engine: Who does the work.
        crashed: What stands for the result of an item whose own process died.
    """
    return _run(load, items, engine, crashed, load, actors=True)


def _as_it_is(function: Callable[[T], R]) -> Callable[[T], R]:
    return function


def _run(
    load: Callable[[], Callable[[T], R]],
    items: Iterable[T],
    engine: Engine,
    crashed: Callable[[T], R],
    imported: Callable[..., Any],
    actors: bool,
) -> Iterator[R]:
    if engine.name == "ray":
        return ray_cluster.run(load, items, crashed, engine.jobs, cores(), actors)
    jobs = cores() if engine.jobs is None else engine.jobs
    if jobs == 1:
        return _run_here(load, items)
    return _run_processes(partial(_pool, load, imported), jobs, items, crashed)


def _run_here(load: Callable[[], Callable[[T], R]], items: Iterable[T]) -> Iterator[R]:
    yield from map(load(), items)


def _run_processes(
    make_pool: Callable[[int], ProcessPoolExecutor],
    jobs: int,
    items: Iterable[T],
    crashed: Callable[[T], R],
) -> Iterator[R]:
    waiting = iter(items)
    pending: deque[tuple[T, Future[R]]] = deque()
    pool = make_pool(jobs)
    try:
        while True:
            while len(pending) < jobs * AHEAD:
                try:
                    item = next(waiting)
                except StopIteration:
                    break
                try:
                    future = pool.submit(_do, item)
                except BrokenProcessPool:
                    pool.shutdown()
                    pool = make_pool(jobs)
                    future = pool.submit(_do, item)
                pending.append((item, future))
            if not pending:
                return
            item, future = pending.popleft()
            try:
                result = future.result()
            except BrokenProcessPool:
                result = _alone(make_pool, item, crashed)
            yield result
    finally:
        pool.shutdown(cancel_futures=True)


def _alone(
    make_pool: Callable[[int], ProcessPoolExecutor], item: T, crashed: Callable[[T], R]
) -> R:
    with make_pool(1) as pool:
        try:
            result: R = pool.submit(_do, item).result()
        except BrokenProcessPool:
            return crashed(item)
        return result


def _pool(
    load: Callable[[], Callable[[Any], Any]], imported: Callable[..., Any], jobs: int
) -> ProcessPoolExecutor:
    # A plain fork would copy our locks and threads. The fork server imports the function's module
    # once, and its children have it at hand.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        plain = imported.func if isinstance(imported, partial) else imported
        context.set_forkserver_preload(["torch", plain.__module__])
    return ProcessPoolExecutor(jobs, context, _begin, (load,))


def _do(item: Any) -> Any:
    return _function()(item)


@functools.cache
def _function() -> Callable[[Any], Any]:
    return _load()  # here, not in _begin: a failure to load is the item's, and comes through


def _load() -> Callable[[Any], Any]:
    raise RuntimeError("this process is none of a pool's")


def _begin(load: Callable[[], Callable[[Any], Any]]) -> None:
    """Set up a process: its function, one thread of computing, and no life of its own."""
    import torch

    global _load
    _load = load
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
