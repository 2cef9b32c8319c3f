"""What a prepare run made and lost, for the person at the keyboard."""

from collections import Counter
from typing import get_args

from rich.console import Console
from rich.table import Table

from soundspot.data.writer import LEDGER, Entry, Status, Summary

SHOWN = 20  # losses that are listed; the ledger has them all


def show(summary: Summary) -> None:
    """Print a table of what became of the items."""
    found = Counter(entry.status for entry in summary.entries)
    table = Table("status", "items", "such as", box=None)
    table.columns[1].justify = "right"
    for status in get_args(Status):
        if found[status]:
            first = next(entry for entry in summary.entries if entry.status == status)
            table.add_row(status, f"{found[status]:,}", one_line(first))
    Console(markup=False, highlight=False).print(table)


def describe(summary: Summary) -> str:
    """The first losses, a line each, and the counts."""
    lines = [f"{entry.status:<14} {one_line(entry)}" for entry in summary.losses[:SHOWN]]
    if len(summary.losses) > SHOWN:
        lines.append(f"... and {len(summary.losses) - SHOWN:,} more, all in {LEDGER}")
    pairs = summary.pairset
    counts = ", ".join(f"{split} {len(pairs.select(split)):,}" for split in pairs.splits())
    items = sum(entry.status != "ignored" for entry in summary.entries)
    lines.append(f"{pairs.root}: {counts}; {len(summary.losses):,} of {items:,} items lost")
    return "".join(f"{line}\n" for line in lines)


def one_line(entry: Entry) -> str:
    """An entry on one line, whatever characters its file's name has."""
    text = f"{entry.item} {entry.reason}".rstrip()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
