"""Write a pair set so that it is complete or marked as unfinished, never half-written.

Media first, each under a temporary name until complete; the manifest next; pairset.json last. A
killed run resumes: a file that exists and decodes is not made again. The same input gives the same
bytes. One process writes at a time: the folder is locked.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from soundspot.common import files
from soundspot.common.config import parse_json, read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.common.progress import result_console
from soundspot.data import manifest
from soundspot.data.manifest import HEAD, PARTIAL, Pair, Pairing, Sound, write_rows
from soundspot.data.pair_set import FRAME_SIZE, ItemError, PairSet, decode_frame, decode_sound
from soundspot.media import clips as media
from soundspot.media.resizing import resize_frame

T = TypeVar("T")
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


class SourceError(SoundspotError):
    """One item of the corpus gives no pair: the ledger says so, and the run continues."""


@dataclass(frozen=True)
class PairWriter:
    """Writes one pair set; its provenance is part of the fingerprint: no machine, path or date."""

    root: Path
    name: str
    pairing: Pairing
    provenance: Mapping[str, Any]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Begin, and keep other processes out until the end."""
        self._marks()
        busy = f"another process is writing {self.root}: let it finish"
        with files.locked(self.root / files.LOCK, busy):
            for folder in (self.root, self.root / "frames", self.root / "sounds"):
                files.remove_leftovers(folder)
            self.begin()
            yield

    def begin(self) -> None:
        """Claim the folder: new, empty, or one that the same rules wrote before."""
        for mark in self._marks():
            rules = _read_json(mark)
            for key, value in self._rules().items():
                if rules.get(key) != value:
                    raise SoundspotError(
                        f"{self.root} is a pair set made with {key}={json.dumps(rules.get(key))}"
                        f", not {json.dumps(value)}; choose another folder or delete this one"
                    )
        files.write_text(self.root / PARTIAL, _dump(self._rules()))

    def _marks(self) -> list[Path]:
        """The files that mark this folder as a pair set; a folder of something else is refused."""
        with files.explain_write_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            marks = [path for path in (self.root / HEAD, self.root / PARTIAL) if path.exists()]
            # Hidden files may be a lock, or the first temporary file of a run that was killed.
            if not marks and any(not path.name.startswith(".") for path in self.root.iterdir()):
                raise SoundspotError(f"{self.root} holds something else; choose another folder")
        return marks

    def add_frame(self, key: str, make: Callable[[], NDArray[np.uint8]]) -> str:
        """Store a frame of any size under `key`, unless it exists; returns its file name.

        Raises:
            SourceError: `make` failed. A failure to write raises another error and ends the run.
        """
        name = f"frames/{_checked(key)}.jpg"
        if not self._decodes(name, decode_frame):
            frame = resize_frame(_from_source(make), FRAME_SIZE, FRAME_SIZE)
            self.store(name, media.jpeg_bytes(frame))
        return name

    def add_sound(self, key: str, make: Callable[[], NDArray[np.float32]]) -> str:
        """Store 3 s of sound under `key`, as `add_frame` does."""
        name = f"sounds/{_checked(key)}.flac"
        if not self._decodes(name, decode_sound):
            self.store(name, media.flac_bytes(_from_source(make)))
        return name

    def store(self, name: str, data: bytes) -> None:
        """Write a media file that is already encoded."""
        path = self.root / name
        with files.explain_write_errors(path):
            path.parent.mkdir(exist_ok=True)
        files.write_bytes(path, data)

    def finish(
        self, pairs: Sequence[Pair], sounds: Sequence[Sound], entries: Sequence[LedgerEntry]
    ) -> Summary:
        """Write ledger and manifest, and open the finished set."""
        write_rows(self.root / LEDGER, entries)
        if not pairs:
            reason = next((f"; {e.item}: {e.reason}" for e in entries if is_loss(e)), "")
            raise SoundspotError(f"none of {len(entries)} items could be prepared{reason}")
        write_rows(self.root / manifest.PAIRS, pairs)
        if sounds:
            write_rows(self.root / manifest.SOUNDS, sounds)
        lost = Counter(entry.status for entry in entries if is_loss(entry))
        totals = {"counts": manifest.counts(pairs, sounds), "lost": dict(sorted(lost.items()))}
        files.write_text(self.root / HEAD, _dump(self._rules() | totals))
        (self.root / PARTIAL).unlink(missing_ok=True)
        return Summary(PairSet.open(self.root), tuple(entries))

    def _rules(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "format": manifest.FORMAT,
            "pairing": self.pairing,
            "provenance": dict(self.provenance),
        }

    def _decodes(self, name: str, decode: Callable[[bytes, str], object]) -> bool:
        try:
            decode((self.root / name).read_bytes(), name)
        except (OSError, ItemError):
            return False
        return True


def _from_source(make: Callable[[], T]) -> T:
    try:
        return make()
    except SoundspotError as error:
        raise SourceError(str(error), error.code) from error


def _dump(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=1) + "\n"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = parse_json(read_bytes(path))
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} cannot be read ({error}); delete it to continue") from error
    return values if isinstance(values, dict) else {}


def _checked(key: str) -> str:
    # For WebDataset a key ends at the first dot; a slash would lead into another folder.
    if not key or "/" in key or "." in key or len(key.encode()) > 240:
        raise SoundspotError(f"{key!r} cannot name a file of a pair set")
    return key


def show_summary(summary: Summary) -> None:
    """Print how many items have which status, the first losses, and how many pairs there are."""
    counts = Counter(entry.status for entry in summary.entries)
    table = Table("status", "items", "such as", box=None)
    table.columns[1].justify = "right"
    for status in get_args(Status):
        if counts[status]:
            first = next(entry for entry in summary.entries if entry.status == status)
            table.add_row(status, f"{counts[status]:,}", one_line(first))
    pairs, losses = summary.pairset, summary.losses
    lines = [f"{entry.status:<14} {one_line(entry)}" for entry in losses[:SHOWN]]
    if len(losses) > SHOWN:
        lines.append(f"... and {len(losses) - SHOWN:,} more, all listed in {LEDGER}")
    splits = ", ".join(f"{split} {len(pairs.select(split)):,}" for split in pairs.splits())
    items = len(summary.entries) - counts["ignored"]
    lines.append(f"{pairs.root}: {splits}; {len(losses):,} of {items:,} items lost")
    console = result_console()
    console.print(table)
    console.print("\n".join(lines), soft_wrap=True)


def one_line(entry: LedgerEntry) -> str:
    """An entry on one line, whatever characters the file's name contains."""
    text = f"{entry.item} {entry.reason}".rstrip()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
