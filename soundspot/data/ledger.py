"""The ledger: what became of every item of a corpus, on disk and on the screen."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

from rich.table import Table

from soundspot.common.console import result_console
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet

LEDGER = "ledger.jsonl"
SHOWN = 20  # losses that are printed; the ledger lists them all

Status = Literal[
    "done",
    "missing",  # asked for, but not there
    "no sound",
    "silent",
    "unreadable",
    "duplicate",
    "not understood",  # a file whose name does not fit the corpus
    "ignored",  # a file that nobody asked for: not a loss
]


def status_of(error: SoundspotError) -> Status:
    """What an error says about the file that was read."""
    if error.code == "silent":
        return "silent"
    return "no sound" if error.code == "no-sound" else "unreadable"


@dataclass(frozen=True)
class LedgerEntry:
    """One line of the ledger: what became of one item of the corpus."""

    item: str
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class Summary:
    """What a prepare run produced, and what it could not."""

    pairset: PairSet
    entries: tuple[LedgerEntry, ...]

    @property
    def losses(self) -> tuple[LedgerEntry, ...]:
        """The items that are not in the pair set, each with its reason."""
        return tuple(entry for entry in self.entries if is_loss(entry))


def is_loss(entry: LedgerEntry) -> bool:
    """Whether something that was asked for is not in the pair set."""
    return entry.status not in ("done", "ignored")


def show_summary(summary: Summary) -> None:
    """Print a table of how many items have which status."""
    counts = Counter(entry.status for entry in summary.entries)
    table = Table("status", "items", "such as", box=None)
    table.columns[1].justify = "right"
    for status in get_args(Status):
        if counts[status]:
            first = next(entry for entry in summary.entries if entry.status == status)
            table.add_row(status, f"{counts[status]:,}", one_line(first))
    result_console().print(table)


def describe_summary(summary: Summary) -> str:
    """The first losses, one per line, and the counts."""
    lines = [f"{entry.status:<14} {one_line(entry)}" for entry in summary.losses[:SHOWN]]
    if len(summary.losses) > SHOWN:
        lines.append(f"... and {len(summary.losses) - SHOWN:,} more, all listed in {LEDGER}")
    pairs = summary.pairset
    counts = ", ".join(f"{split} {len(pairs.select(split)):,}" for split in pairs.splits())
    items = sum(entry.status != "ignored" for entry in summary.entries)
    lines.append(f"{pairs.root}: {counts}; {len(summary.losses):,} of {items:,} items lost")
    return "".join(f"{line}\n" for line in lines)


def one_line(entry: LedgerEntry) -> str:
    """An entry on one line, whatever characters the file's name contains."""
    text = f"{entry.item} {entry.reason}".rstrip()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
