"""Progress on standard error: a bar on a terminal, or else an occasional line with an estimate."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console

T = TypeVar("T")
FIRST_LINE, NEXT_LINES = 10.0, 60.0  # seconds until the first line, and between lines


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
    if not console.is_terminal:
        lines = ProgressLines(description, total)
        yield lambda done: _print(console, lines.advance(done))
        return
    columns = TextColumn(description), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.advance(task, done)


def _print(console: Console, line: str | None) -> None:
    if line is not None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


class ProgressLines:
    """Lines such as "encoding: 1,200 of 9,000, about 12 min left", not too often.

    The estimate is from the speed since the last line: what was done before a restart takes no
    time and would spoil an average over everything.
    """

    def __init__(
        self, description: str, total: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.description, self.total, self.clock = description, total, clock
        self.done = self.done_before = 0
        self.since = clock()
        self.wait = FIRST_LINE

    def advance(self, done: int) -> str | None:
        """Count items; returns a line if it is time for one."""
        self.done += done
        seconds = self.clock() - self.since
        if seconds < self.wait or self.done == self.done_before:
            return None
        left = (self.total - self.done) * seconds / (self.done - self.done_before)
        self.since, self.wait, self.done_before = self.clock(), NEXT_LINES, self.done
        rest = f"about {left / 60:.0f} min left" if left >= 90 else f"about {left:.0f} s left"
        return f"{self.description}: {self.done:,} of {self.total:,}, {rest}"


WIDE = 240  # columns of a file or pipe, so that no name is broken


def result_console() -> Console:
    """Standard output: as wide as the terminal, and off a terminal as wide as a table needs."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(file=sys.stdout, width=width, markup=False, highlight=False)
