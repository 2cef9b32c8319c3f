"""A progress bar where somebody watches: on the error stream, if that is a terminal."""

from collections.abc import Collection, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def progress(items: Collection[T], description: str) -> Iterator[T]:
    """Iterate over items under a bar that disappears when they are done."""
    console = Console(stderr=True)
    yield from track(
        items, description, console=console, transient=True, disable=not console.is_terminal
    )
