"""A progress bar where somebody watches: on the error stream, if that is a terminal."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Iterate over items under a bar that disappears when they are done.

    Args:
        items: What to iterate over.
        description: Stands beside the bar.
        total: How many there are, about, if they have no length.
    """
    console = Console(stderr=True)
    yield from track(
        items,
        description,
        total,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
