"""Progress on standard error: a bar, if it is a terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console

T = TypeVar("T")


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Iterate and show a bar, which disappears at the end; `total` if the items have no length."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.progress import track

    yield from track(items, description, total, console=Console(stderr=True), transient=True)


@contextmanager
def counting(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show the progress of long work; call what it yields with the number of items just done."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = TextColumn(description), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.advance(task, done)


WIDE = 240  # columns of a file or pipe, so that no name is broken


def result_console() -> Console:
    """Standard output: as wide as the terminal, and off a terminal as wide as a table needs."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(file=sys.stdout, width=width, markup=False, highlight=False)
