"""Write a pair set so that it is whole or unfinished, never torn.

Media first, each under a temporary name until complete; the manifest next; pairset.json last. A
killed run goes on where it stopped: a file that is there and decodes is not made again. The same
input gives the same bytes. A writer holds no state, so that processes can share one.

Axes: h w pixels of a frame.
"""

import dataclasses
import io
import itertools
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from soundspot import media
from soundspot.errors import SoundspotError
from soundspot.files import replacing, write_text
from soundspot.manifest import FORMAT, HEAD, PAIRS, PARTIAL, SOUNDS, counts
from soundspot.pairs import (
    FRAME_SIZE,
    ItemError,
    Pair,
    Pairing,
    PairSet,
    Sound,
    decode_frame,
    decode_sound,
)

LEDGER = "ledger.jsonl"
T = TypeVar("T")
Status = Literal["done", "missing", "failed", "duplicate"]


class SourceError(SoundspotError):
    """One item of the corpus gives no pair: noted in the ledger, and the run goes on."""


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
        return tuple(entry for entry in self.entries if entry.status != "done")


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

    def begin(self) -> None:
        """Claim the folder: new, empty, or one that the same rules wrote before."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            marks = [path for path in (self.root / HEAD, self.root / PARTIAL) if path.exists()]
            if not marks and any(self.root.iterdir()):
                raise SoundspotError(f"{self.root} is neither empty nor a pair set; choose another")
        except OSError as error:
            raise SoundspotError(f"{self.root} cannot be written ({error.strerror})") from error
        for mark in marks:
            found = _read_json(mark)
            for key, value in self._rules().items():
                if found.get(key) != value:
                    raise SoundspotError(
                        f"{self.root} holds a pair set made with {key}={json.dumps(found.get(key))}"
                        f", not {json.dumps(value)}; choose another folder or delete this one"
                    )
        write_text(self.root / PARTIAL, _dump(self._rules()))

    def add_frame(self, key: str, make: Callable[[], NDArray[np.uint8]]) -> str:
        """Store a frame of any size under `key`, unless it is there; returns its file name.

        Raises:
            SourceError: `make` failed. A failure to write is another error, which ends the run.
        """
        name = f"frames/{_checked(key)}.jpg"
        if not self._decodes(name, decode_frame):
            frame = _from_source(make)
            media.write_jpeg(self._place(name), squash(frame, FRAME_SIZE, FRAME_SIZE))
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

    def finish(
        self, pairs: Sequence[Pair], sounds: Sequence[Sound], entries: Sequence[Entry]
    ) -> Summary:
        """Write ledger and manifest, and open the finished set."""
        write_rows(self.root / LEDGER, entries)
        if not pairs:
            reason = next((f"; {e.item}: {e.reason}" for e in entries), "")
            raise SoundspotError(
                f"none of {len(entries)} items could be prepared into {self.root}{reason}"
            )
        write_rows(self.root / PAIRS, pairs)
        if sounds:
            write_rows(self.root / SOUNDS, sounds)
        lost = Counter(entry.status for entry in entries if entry.status != "done")
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
    except SoundspotError as error:
        raise SourceError(str(error)) from error


def squash(frame: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """Resize an RGB frame, antialiased bicubic, whatever its aspect."""
    if frame.shape[:2] == (height, width):
        return frame
    # (h, w, 3) in memory is what torch calls channels_last, for which it has its fast kernel.
    batch = torch.from_numpy(np.require(frame, requirements=["C", "W"])).permute(2, 0, 1)[None]
    resized = F.interpolate(batch, (height, width), mode="bicubic", antialias=True)
    return resized[0].permute(1, 2, 0).contiguous().numpy()


def pack(pairset: PairSet, out: Path, frames_per_shard: int = 1000) -> PairSet:
    """Copy a pair set into tar shards that WebDataset reads too.

    A sound follows the first frame that uses it; pooled sounds come last. Member names lose their
    folder, as WebDataset's samples are members of one name with different suffixes. Files beside
    the pair set's own, such as ESC-VOC's training boxes, stay behind.
    """
    writer = PairWriter(out, pairset.name, pairset.pairing, pairset.provenance)
    writer.begin()
    rename = _flat_names(pairset)
    groups = [[p.frame] if p.audio is None else [p.frame, p.audio] for p in pairset.pairs]
    groups += [[sound.audio] for sound in pairset.sounds]
    written: set[str] = set()
    for number, start in enumerate(range(0, len(groups), frames_per_shard)):
        names = dict.fromkeys(itertools.chain(*groups[start : start + frames_per_shard]))
        with (
            replacing(out / f"shard-{number:06d}.tar") as part,
            tarfile.open(part, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name in (name for name in names if name not in written):
                data = pairset.read(name)
                member = tarfile.TarInfo(rename[name])  # without time or owner: the same bytes
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        written |= names.keys()
    pairs = [
        dataclasses.replace(p, frame=rename[p.frame], audio=p.audio and rename[p.audio])
        for p in pairset.pairs
    ]
    sounds = [dataclasses.replace(s, audio=rename[s.audio]) for s in pairset.sounds]
    ledger = pairset.root / LEDGER
    rows = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    return writer.finish(pairs, sounds, [Entry(**json.loads(row)) for row in rows]).pairset


def _flat_names(pairset: PairSet) -> dict[str, str]:
    rows: list[Pair | Sound] = [*pairset.pairs, *pairset.sounds]
    names = {row.audio for row in rows if row.audio is not None}
    names |= {pair.frame for pair in pairset.pairs}
    rename = {name: PurePosixPath(name).name for name in sorted(names)}
    twice = [name for name, n in Counter(rename.values()).items() if n > 1]
    if twice:
        raise SoundspotError(f"{pairset.root} has two files called {twice[0]}: cannot be packed")
    return rename


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
