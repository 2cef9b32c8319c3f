"""Processes of this machine: how many to start, and what happens when one dies."""

import functools
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

AHEAD = 8  # items per process that may be pending behind the slowest one

T = TypeVar("T")
R = TypeVar("R")
Load = Callable[[], Callable[[T], R]]  # builds the function in the process that uses it

_load: Load[Any, Any]  # that of this process; see _set_up


def process_count(jobs: int | None) -> int:
    """How many processes to start: as many as asked for, else one per core we may use."""
    return usable_cpus() if jobs is None else jobs


def usable_cpus(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """CPUs that this process may use: those of its affinity, or fewer by a container's quota."""
    try:
        quota, period = (cgroups / "cpu.max").read_text().split()
        return max(1, min(_affinity(), round(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max": no quota
        return _affinity()


def _affinity() -> int:
    have = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if have else os.cpu_count() or 1


def calm_threads() -> None:
    """Set what OpenMP reads when torch is imported, unless the user has set it; not in libraries.

    Threads that wait for each other spin. On a busy machine they spin away the time that the others
    need: there they sleep instead, which on an idle one would cost up to a sixth.
    """
    if "torch" in sys.modules:
        return
    count = usable_cpus()
    if count < _affinity():  # torch knows of affinity, and of cores with two threads
        os.environ.setdefault("OMP_NUM_THREADS", str(count))
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > count / 2:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def map_in_processes(
    load: Load[T, R], items: Iterable[T], crashed: Callable[[T], R], count: int
) -> Iterator[R]:
    """`engines.map_loaded`; an item that kills its process twice is `crashed`."""
    make_pool = partial(_make_pool, load)
    waiting = iter(items)
    pending: deque[tuple[T, Future[R]]] = deque()
    pool = make_pool(count)
    try:
        while True:
            for item in itertools.islice(waiting, count * AHEAD - len(pending)):
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


def _make_pool(load: Load[Any, Any], count: int) -> ProcessPoolExecutor:
    # A plain fork would copy our locks and threads. The fork server imports the function's module
    # once, and its children inherit it.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        plain = load.func if isinstance(load, partial) else load
        context.set_forkserver_preload(["torch", plain.__module__])
    return ProcessPoolExecutor(count, context, _set_up, (load,))


def _do(item: Any) -> Any:
    return _load()(item)  # loads here, not in _set_up, so that a failure reaches the caller


def _set_up(load: Load[Any, Any]) -> None:
    """Set up a process: its function, one computing thread, and an end with its parent's."""
    import torch

    global _load
    _load = functools.cache(load)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
