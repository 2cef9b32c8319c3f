"""Write a pair set so that it is whole or unfinished, never torn.

Media first, each under a temporary name until complete; the manifest next; pairset.json last. A
killed run goes on where it stopped: a file that is there and decodes is not made again. The same
input gives the same bytes. One process writes at a time: the folder is locked.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from soundspot.common.errors import SoundspotError
from soundspot.common.files import LOCK, locked, remove_leftovers, write_bytes, write_text
from soundspot.data.manifest import FORMAT, HEAD, PAIRS, PARTIAL, SOUNDS, counts
from soundspot.data.pair_set import (
    FRAME_SIZE,
    ItemError,
    Pair,
    Pairing,
    PairSet,
    Sound,
    decode_frame,
    decode_sound,
)
from soundspot.media import clips as media
from soundspot.media.decoding import Fault
from soundspot.media.images import resize_frame

LEDGER = "ledger.jsonl"
T = TypeVar("T")

Status = Literal[
    "done",
    "missing",  # asked for, but not there
    "no sound",
    "silent",
    "unreadable",
    "duplicate",
    "not understood",  # a file whose name is none of the corpus's
    "ignored",  # a file that nobody asked for: no loss
]


class SourceError(SoundspotError):
    """One item of the corpus gives no pair: noted in the ledger, and the run goes on."""

    def __init__(self, message: str, fault: Fault = "unreadable") -> None:
        super().__init__(message)
        self.fault = fault


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of the ledger: what became of one item of the corpus."""

    item: str
    status: Status
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a prepare run made, and what it could not make."""

    pairset: PairSet
    entries: tuple[Entry, ...]

    @property
    def losses(self) -> tuple[Entry, ...]:
        """The items that are not in the pair set, each with its reason."""
        return tuple(entry for entry in self.entries if is_loss(entry))


def is_loss(entry: Entry) -> bool:
    """Whether something that was asked for is not in the pair set."""
    return entry.status not in ("done", "ignored")


@dataclasses.dataclass(frozen=True)
class PairWriter:
    """Writes one pair set.

    Attributes:
        root: The pair set's folder.
        name: Of the pair set.
        pairing: "event" where frame and sound were recorded together, else "class".
        provenance: The rules that made the media. It enters the fingerprint, so it names no
            machine, path or date.
    """

    root: Path
    name: str
    pairing: Pairing
    provenance: Mapping[str, Any]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Begin, and keep every other process out until the end."""
        self._marks()
        with locked(self.root / LOCK, f"another process is writing {self.root}: let it finish"):
            for folder in (self.root, self.root / "frames", self.root / "sounds"):
                remove_leftovers(folder)
            self.begin()
            yield

    def begin(self) -> None:
        """Claim the folder: new, empty, or one that the same rules wrote before."""
        for mark in self._marks():
            found = _read_json(mark)
            for key, value in self._rules().items():
                if found.get(key) != value:
                    raise SoundspotError(
                        f"{self.root} holds a pair set made with {key}={json.dumps(found.get(key))}"
                        f", not {json.dumps(value)}; choose another folder or delete this one"
                    )
        write_text(self.root / PARTIAL, _dump(self._rules()))

    def _marks(self) -> list[Path]:
        """The files that say whose folder this is; a folder of something else is refused."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            marks = [path for path in (self.root / HEAD, self.root / PARTIAL) if path.exists()]
            # Hidden files may be a lock, or the torn first one of a run killed at once.
            if not marks and any(not path.name.startswith(".") for path in self.root.iterdir()):
                raise SoundspotError(f"{self.root} is neither empty nor a pair set; choose another")
        except OSError as error:
            raise SoundspotError(f"{self.root} cannot be written ({error.strerror})") from error
        return marks

    def add_frame(self, key: str, make: Callable[[], NDArray[np.uint8]]) -> str:
        """Store a frame of any size under `key`, unless it is there; returns its file name.

        Raises:
            SourceError: `make` failed. A failure to write is another error, which ends the run.
        """
        name = f"frames/{_checked(key)}.jpg"
        if not self._decodes(name, decode_frame):
            frame = _from_source(make)
            media.write_jpeg(self._place(name), resize_frame(frame, FRAME_SIZE, FRAME_SIZE))
        return name

    def add_sound(self, key: str, make: Callable[[], NDArray[np.float32]]) -> str:
        """Store 3 s of sound under `key`, unless it is there; returns its file name.

        Raises:
            SourceError: `make` failed. A failure to write is another error, which ends the run.
        """
        name = f"sounds/{_checked(key)}.flac"
        if not self._decodes(name, decode_sound):
            waveform = _from_source(make)
            media.write_flac(self._place(name), waveform)
        return name

    def store(self, name: str, data: bytes) -> None:
        """Write a media file that is encoded already."""
        write_bytes(self._place(name), data)

    def finish(
        self, pairs: Sequence[Pair], sounds: Sequence[Sound], entries: Sequence[Entry]
    ) -> Summary:
        """Write ledger and manifest, and open the finished set."""
        write_rows(self.root / LEDGER, entries)
        if not pairs:
            reason = next((f"; {e.item}: {e.reason}" for e in entries if is_loss(e)), "")
            raise SoundspotError(
                f"none of {len(entries)} items could be prepared into {self.root}{reason}"
            )
        write_rows(self.root / PAIRS, pairs)
        if sounds:
            write_rows(self.root / SOUNDS, sounds)
        lost = Counter(entry.status for entry in entries if is_loss(entry))
        found = {"counts": counts(pairs, sounds), "lost": dict(sorted(lost.items()))}
        write_text(self.root / HEAD, _dump(self._rules() | found))
        (self.root / PARTIAL).unlink(missing_ok=True)
        return Summary(PairSet.open(self.root), tuple(entries))

    def _rules(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "format": FORMAT,
            "pairing": self.pairing,
            "provenance": dict(self.provenance),
        }

    def _place(self, name: str) -> Path:
        path = self.root / name
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise SoundspotError(f"{path} cannot be written ({error.strerror})") from error
        return path

    def _decodes(self, name: str, decode: Callable[[bytes, str], object]) -> bool:
        try:
            decode((self.root / name).read_bytes(), name)
        except (OSError, ItemError):
            return False
        return True


def _from_source(make: Callable[[], T]) -> T:
    try:
        return make()
    except media.MediaError as error:
        raise SourceError(str(error), error.fault) from error
    except SoundspotError as error:
        raise SourceError(str(error)) from error


def write_rows(path: Path, rows: Iterable[Any]) -> None:
    """Write dataclasses as JSON lines; a field at its default is left out."""
    lines = []
    for row in rows:
        values = {
            field.name: getattr(row, field.name)
            for field in dataclasses.fields(row)
            if getattr(row, field.name) != field.default
        }
        # ASCII: a file name that is no valid UTF-8 survives as an escape.
        lines.append(json.dumps(values) + "\n")
    write_text(path, "".join(lines))


def _dump(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=1) + "\n"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} cannot be read ({error}); delete it to go on") from error
    return values if isinstance(values, dict) else {}


def _checked(key: str) -> str:
    # A dot would end the key early for WebDataset; a slash would leave the folder.
    if not key or "/" in key or "." in key or len(key.encode()) > 240:
        raise SoundspotError(f"{key!r} cannot name a file of a pair set")
    return key
