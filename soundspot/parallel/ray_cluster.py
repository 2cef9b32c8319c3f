"""Work on a Ray cluster: tasks and actors of Ray Data that run the same functions.

Each worker takes blocks of items. If it dies, Ray gives its block to another, as often as needed.
An item that was started twice and never finished is skipped, and tried once more when its result
is due, in a separate process. Workers have one thread each and no GPU.

Ray itself is imported only when work starts.
"""

import copy
import functools
import itertools
import logging
import os
import pickle
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import soundspot
from soundspot.common.errors import SoundspotError, install_advice
from soundspot.parallel.processes import Load, process_count

AHEAD = 1000  # items per worker that Ray gets at a time: no more can be pending
BLOCK = 16  # items that a worker takes at most, and that are repeated if it dies
TRIES = 2  # of an item in a block: after that it is suspected of killing its workers
SPARE = 1  # CPUs that our workers leave free, so that Ray's own tasks never starve

T = TypeVar("T")
R = TypeVar("R")


def map_on_ray(
    load: Load[T, R], items: Iterable[T], crashed: Callable[[T], R], jobs: int | None, actors: bool
) -> Iterator[R]:
    """Yield the loaded function of every item, in order; see `engines.map_items`.

    There are `jobs` workers; None for as many as the cluster has room for. Actors keep what they
    have loaded.
    """
    ray = _import_ray()
    try:
        with _connected(ray, jobs) as workers:
            waiting = iter(items)
            while window := list(itertools.islice(waiting, workers * AHEAD)):
                results = _stream(ray, load, window, workers, actors)
                for item, packed in zip(window, results, strict=True):
                    yield _do_alone(ray, load, item, crashed) if packed is None else _unpack(packed)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise SoundspotError(
            f"the Ray cluster failed ({type(error).__name__}: {reason}); "
            "run the same command again to resume"
        ) from error


def _stream(
    ray: Any, load: Load[T, R], window: Sequence[T], workers: int, actors: bool
) -> Iterator[bytes | None]:
    """Packed results in order; None where an item was skipped."""
    # It needs no CPU, so it can always be placed, and Ray restarts it if it dies.
    tally = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Tally).remote()
    rows = [{"number": i, "packed": pickle.dumps(item)} for i, item in enumerate(window)]
    size = max(1, min(BLOCK, len(rows) // (4 * workers)))
    with ray.data.DataContext.current(_context(ray)):
        given = ray.data.from_items(rows, override_num_blocks=-(-len(rows) // size))
        if actors:
            pool = ray.data.ActorPoolStrategy(size=workers)
            done = given.map(_Actor, fn_constructor_args=(load, tally), compute=pool)
        else:
            pool = ray.data.TaskPoolStrategy(size=workers)
            done = given.map(_task, fn_args=(load, tally), compute=pool)
        results = iter(done.iter_rows())
    for row in results:
        yield row["packed"]


class _Tally:
    """Counts how often each item was started; lives in a separate process."""

    def __init__(self) -> None:
        self._started: Counter[int] = Counter()

    def start(self, number: int) -> int:
        self._started[number] += 1
        return self._started[number]


class _Actor:
    """A worker that loads when it gets its first item, so that a failure to load is a result."""

    def __init__(self, load: Load[Any, Any], tally: Any) -> None:
        self._load, self._tally = functools.cache(load), tally

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return _task(row, self._load, self._tally)


def _task(row: dict[str, Any], load: Load[Any, Any], tally: Any) -> dict[str, Any]:
    import ray

    starts = ray.get(tally.start.remote(row["number"]))
    return {"packed": None if starts > TRIES else _do_packed(load, row["packed"])}


def _do_alone(ray: Any, load: Load[T, R], item: T, crashed: Callable[[T], R]) -> R:
    separate = ray.remote(num_cpus=1, max_retries=0, max_calls=1)(_do_packed)
    try:
        packed = ray.get(separate.remote(load, pickle.dumps(item)))
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
        return crashed(item)
    result: R = _unpack(packed)
    return result


def _do_packed(load: Load[Any, Any], item: bytes) -> bytes:
    """A result or an exception; to Ray both are results."""
    try:
        return pickle.dumps((load()(pickle.loads(item)), None))
    except Exception as error:
        return pickle.dumps((None, error))


def _unpack(packed: bytes) -> Any:
    result, error = pickle.loads(packed)
    if error is not None:
        raise error
    return result


def _import_ray() -> Any:
    # Ray reads these when it is imported. The last two keep it from writing paragraphs about a
    # dead worker into our output: we report what happened to each item.
    for name, value in (
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_BACKEND_LOG_LEVEL", "fatal"),
        ("RAY_DEDUP_LOGS_SKIP_REGEX", "."),
    ):
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise SoundspotError(
            f"--engine ray needs Ray ({error}): {install_advice('cluster')}"
        ) from error
    return ray


@contextmanager
def _connected(ray: Any, jobs: int | None) -> Iterator[int]:
    """Join the cluster that the environment names, or start one here; yields the worker count."""
    if ray.is_initialized():
        _check_nodes(ray)
        yield _workers(ray, jobs)
        return
    address = os.environ.get("RAY_ADDRESS")
    cpus = process_count(jobs) + SPARE
    here = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    try:
        _check_reachable(address or "")
        with _no_standard_error():
            ray.init(
                **({"address": address} if address else here),
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        place = f"at RAY_ADDRESS={address}" if address else "here"
        token = "; it may need a token in RAY_AUTH_TOKEN" if address else ""
        raise SoundspotError(f"no Ray cluster {place} ({reason}){token}") from error
    try:
        if address:
            _check_nodes(ray)
        yield _workers(ray, jobs)
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Fail at once if nothing listens there: Ray would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Silence Ray's core, which reports on standard error that it was told to be silent."""
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _check_nodes(ray: Any) -> None:
    """Refuse a node without this version of soundspot: Ray would retry there forever."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    for node in ray.nodes():
        if not node["Alive"]:
            continue
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ask = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(_version)
        try:
            version = ray.get(ask.remote())
        except ray.exceptions.RayError:
            version = "none that works"
        if version != soundspot.__version__:
            raise SoundspotError(
                f"expected soundspot {soundspot.__version__} on every node of the Ray cluster, but "
                f"{node['NodeManagerHostname']} has {version}"
            )


def _version() -> str:
    return soundspot.__version__


def _workers(ray: Any, jobs: int | None) -> int:
    cpus = int(ray.cluster_resources().get("CPU", 0))
    workers = cpus - SPARE if jobs is None else jobs
    if workers < 1 or workers > cpus - SPARE:
        raise SoundspotError(
            f"the Ray cluster has {cpus} CPUs, of which {SPARE} must stay free: it has no room for "
            f"{max(workers, 1)} workers"
        )
    return workers


def _context(ray: Any) -> Any:
    """Ray Data's settings: ordered results, actors that may die at any time, no chatter."""
    context = copy.deepcopy(ray.data.DataContext.get_current())
    context.execution_options.preserve_order = True
    context.max_consecutive_actor_init_deaths = 3  # a worker may be killed as it starts
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    for handler in logging.getLogger("ray.data").handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.CRITICAL + 1)
    return context
