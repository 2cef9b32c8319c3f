"""Where tables are printed."""

import sys

from rich.console import Console

WIDE = 240  # columns of a file or pipe, so that no name is broken


def result_console() -> Console:
    """Standard output: as wide as the terminal, and off a terminal as wide as a table needs."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(file=sys.stdout, width=width, markup=False, highlight=False)
