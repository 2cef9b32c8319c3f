"""A progress bar on standard error, if that is a terminal."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Iterate and show a bar, which disappears at the end; `total` if the items have no length."""
    console = Console(stderr=True)
    yield from track(
        items, description, total, console=console, transient=True, disable=not console.is_terminal
    )
