"""Where work on many items runs: in processes of this machine, or on a Ray cluster.

An engine takes a function and items, and returns the results in the items' order. Only a bounded
number of items is pending at any time, so that millions need no more memory than hundreds.
"""

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from soundspot.common.errors import SoundspotError
from soundspot.parallel.processes import Load, map_in_processes, process_count

CRASHED = "crashed the process that read it (out of memory, or a faulty decoder)"

T = TypeVar("T")
R = TypeVar("R")
EngineName = Literal["local", "ray"]


@dataclass(frozen=True)
class Engine:
    """Where the work runs; no result depends on it.

    "ray" is the cluster that RAY_ADDRESS names or, if it is not set, a new one on this machine.
    Without `jobs` there is one process or worker per core of the machine or cluster.
    """

    name: EngineName = "local"
    jobs: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work before any work starts."""
        if self.jobs is not None and self.jobs < 1:
            raise SoundspotError(f"expected at least 1 process, got {self.jobs}")


SERIAL = Engine("local", 1)  # in this very process


def map_items(
    function: Callable[[T], R], items: Iterable[T], engine: Engine, crashed: Callable[[T], R]
) -> Iterator[R]:
    """`map_loaded` for a function that needs no loading."""
    return map_loaded(partial(_return, function), items, engine, crashed)


def map_loaded(
    load: Load[T, R],
    items: Iterable[T],
    engine: Engine,
    crashed: Callable[[T], R],
    gpus: bool = False,
) -> Iterator[R]:
    """Yield the loaded function of every item, in order.

    A process that dies (out of memory, a fault in a decoder) costs only the item that killed it:
    all items that were pending are tried again, each in a new process.

    `load` builds the function, once in each process: it is a module's function, or a partial of
    one. `crashed` gives the result of an item that killed its process. With `gpus`, each worker of
    a cluster that has GPUs takes one.
    """
    if engine.name == "ray":
        from soundspot.parallel.ray_cluster import map_on_ray  # one file needs no cluster

        return map_on_ray(load, items, crashed, engine.jobs, gpus)
    count = process_count(engine.jobs)
    if count > 1:
        return map_in_processes(load, items, crashed, count)
    return _map_here(load, items)


def check_visible(path: Path) -> None:
    """Refuse to work on a machine that does not see a file or folder."""
    if not path.exists():
        raise SoundspotError(f"{platform.node()} does not see {path}, as every machine must")


def _return(function: Callable[[T], R]) -> Callable[[T], R]:
    return function


def _map_here(load: Load[T, R], items: Iterable[T]) -> Iterator[R]:
    yield from map(load(), items)
