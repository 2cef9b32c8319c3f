"""Work on a Ray cluster: actors that run the same functions as the processes of one machine.

Each worker is an actor with one thread, and a GPU if the work wants one and the cluster has some;
it is given a few items at a time, from when it runs. If it dies, another takes its place where
there is room, and the items that it had are tried once more when their results are due, each in a
process of its own, which waits for no CPU: a smaller cluster must finish too. Ray itself is
imported only when work starts.
"""

import functools
import logging
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import soundspot
from soundspot.common.errors import SoundspotError, install_advice
from soundspot.parallel.processes import AHEAD, Load, process_count

HELD = 2  # items that a worker has at a time: the next one is there when it needs it
SPARE = 1  # CPUs that our workers leave free, so that Ray's own tasks never starve
ANSWER = 300.0  # seconds until a node must have said which version it has

T = TypeVar("T")
R = TypeVar("R")


def map_on_ray(
    load: Load[T, R],
    items: Iterable[T],
    crashed: Callable[[T], R],
    jobs: int | None,
    gpus: bool = False,
) -> Iterator[R]:
    """Yield the loaded function of every item, in order; see `engines.map_items`.

    There are `jobs` workers; None for as many as the cluster has room for, or has GPUs if those are
    wanted. More workers than GPUs share them.
    """
    ray = _import_ray()
    try:
        with _connected(ray, jobs) as room:
            found = int(ray.cluster_resources().get("GPU", 0)) if gpus else 0
            workers = min(room, found) if found and jobs is None else room
            for item, packed in _stream(ray, load, items, workers, min(1.0, found / workers)):
                yield _do_alone(ray, load, item, crashed) if packed is None else _unpack(packed)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise SoundspotError(
            f"the Ray cluster failed ({type(error).__name__}: {reason}); "
            "run the same command again to resume"
        ) from error


def _stream(
    ray: Any, load: Load[T, R], items: Iterable[T], workers: int, gpus: float = 0.0
) -> Iterator[tuple[T, bytes | None]]:
    """Items with their packed results, in order; None where a worker died before it had one."""
    make = ray.remote(num_cpus=1, num_gpus=gpus)(_Actor)
    starting: dict[Any, Any] = {}  # actors by the answer that says they run

    def start() -> None:
        actor = make.remote(load)
        starting[actor.runs.remote()] = actor

    for _ in range(workers):
        start()
    held: dict[Any, int] = {}  # how many items each running actor has
    asked: dict[Any, tuple[int, Any]] = {}  # by what Ray answers: which item, and which actor
    pending: dict[int, T] = {}  # in order, until their results are taken
    results: dict[int, bytes | None] = {}
    waiting = enumerate(items)
    try:
        while True:
            while min(held.values(), default=HELD) < HELD and len(pending) < workers * AHEAD:
                try:
                    number, item = next(waiting)
                except StopIteration:
                    break
                actor = min(held, key=held.__getitem__)
                pending[number] = item
                asked[actor.do.remote(pickle.dumps(item))] = number, actor
                held[actor] += 1
            first = next(iter(pending), None)
            if first is None and held:
                return
            if first is not None and first in results:
                yield pending.pop(first), results.pop(first)
                continue
            (answer,), _ = ray.wait([*asked, *starting], num_returns=1)
            if answer in starting:
                ray.get(answer)
                held[starting.pop(answer)] = 0
                continue
            number, actor = asked.pop(answer)
            try:
                results[number] = ray.get(answer)
                if actor in held:  # it may have died since
                    held[actor] -= 1
            except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError):
                results[number] = None
                if held.pop(actor, None) is not None:  # the first of its items to tell
                    start()
    finally:
        for actor in (*held, *starting.values()):
            ray.kill(actor)


class _Actor:
    """A worker that loads when it gets its first item, so that a failure to load is a result."""

    def __init__(self, load: Load[Any, Any]) -> None:
        self._load = functools.cache(load)

    def runs(self) -> None:
        """Answers when the actor has found a place."""

    def do(self, item: bytes) -> bytes:
        return _do_packed(self._load, item)


def _do_alone(ray: Any, load: Load[T, R], item: T, crashed: Callable[[T], R]) -> R:
    # Not even the spare CPU is sure to be there: after the loss of a node, a worker may have it.
    separate = ray.remote(num_cpus=0, max_retries=0, max_calls=1)(_do_packed)
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
    # Ray reads these when it is imported. The first two are for a cluster that we start: workers as
    # urgent as the processes of the local engine, and the patience to see them start on a busy
    # machine. The last two keep Ray from writing paragraphs about a dead worker into our output: we
    # report what happened to each item.
    for name, value in (
        ("RAY_worker_niceness", "0"),
        ("RAY_worker_register_timeout_seconds", "600"),
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_BACKEND_LOG_LEVEL", "fatal"),
        ("RAY_DEDUP_LOGS_SKIP_REGEX", "."),
    ):
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise SoundspotError(
            f"the engine ray needs Ray ({error}): {install_advice('cluster')}", "not-installed"
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
        token = "; it may need RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" if address else ""
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
            version = ray.get(ask.remote(), timeout=ANSWER)
        except ray.exceptions.RayTaskError:
            version = "none that works"
        except ray.exceptions.RayError as error:
            if not any(each["Alive"] for each in ray.nodes() if each["NodeID"] == node["NodeID"]):
                continue  # it died meanwhile, and the others go on
            raise SoundspotError(
                f"{node['NodeManagerHostname']} does not say which soundspot it has "
                f"({type(error).__name__}); run the same command again"
            ) from error
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
