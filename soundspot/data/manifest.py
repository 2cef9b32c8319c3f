"""The rows of a pair set: Pair and Sound, their files on disk, and what makes a row valid.

A bad line is refused, with its number, its field and the nearest valid key.
"""

import functools
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from soundspot.common.config import Share, from_dict, nearest, parse_json, read_typed
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.common.id_lists import read_ids

FORMAT = 1
HEAD, PAIRS, SOUNDS = "pairset.json", "pairs.jsonl", "sounds.jsonl"
PARTIAL = f"{HEAD}.partial"  # takes the place of the head until the set is finished
SPLITS = ("train", "val", "test", "duets-val", "duets-test")

# x1, y1, x2, y2 as fractions of the frame.
Box = tuple[Share, Share, Share, Share]
Pairing = Literal["event", "class"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A frame and the sound that belongs to it.

    Attributes:
        id: Unique in the set.
        frame: The frame's file, relative to the set's folder, or its name in a shard.
        audio: The sound's file; None if a sound of the same class and split is drawn in every epoch
            (class-level pairing only).
        split: One of SPLITS.
        cls: The class, if known.
        boxes: The truth, one tuple of boxes per annotator; None if nobody annotated.
        group: Pairs that share one frame with several sources (the two halves of a duet).
        source: Where the frame comes from.
        licence: The frame's licence; a pooled sound has its own.
        digest: Of the stored frame and sound (see `media_digest`); empty if there is none. With it
            the set's fingerprint covers the content of the files.
    """

    id: str
    frame: str
    audio: str | None
    split: str
    cls: str | None = None
    boxes: tuple[tuple[Box, ...], ...] | None = None
    group: str | None = None
    source: str = ""
    licence: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Sound:
    """A sound of the pool from which class-level pairs draw."""

    id: str
    audio: str
    split: str
    cls: str
    source: str = ""
    licence: str = ""


@dataclass(frozen=True)
class Head:
    """The pairset.json of a pair set: what PairSet says of it, and what it should contain."""

    name: str
    format: int
    pairing: Pairing
    provenance: dict[str, Any]
    counts: dict[str, dict[str, int]]
    lost: dict[str, int] = field(default_factory=dict)


_Row = TypeVar("_Row", Pair, Sound)


def read_rows(path: Path, row: type[_Row]) -> Iterator[_Row]:
    """Stream the rows of a manifest, so that a long one need not fit into memory."""
    seen: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                where = f"{path}, line {number}"
                item = _parse(line, row, where)
                if item.id in seen:
                    raise SoundspotError(f"{where}: id {item.id!r} appears twice", "damaged")
                seen[item.id] = number
                yield item
    except FileNotFoundError as error:
        raise SoundspotError(f"{path.parent} is not a pair set: it has no {path.name}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SoundspotError(f"{path} cannot be read ({error})") from error


def write_rows(path: Path, rows: Iterable[Any]) -> None:
    """Write dataclasses as JSON lines; a field at its default is left out."""
    stored = (
        {f.name: getattr(row, f.name) for f in fields(row) if getattr(row, f.name) != f.default}
        for row in rows
    )
    # ASCII: a file name that is not valid UTF-8 survives as an escape.
    write_text(path, "".join(json.dumps(values) + "\n" for values in stored))


def counts(pairs: Sequence[Pair], sounds: Sequence[Sound]) -> dict[str, dict[str, int]]:
    """How many pairs and pooled sounds each split has, in the order of SPLITS."""
    tables = {"pairs": Counter(p.split for p in pairs), "sounds": Counter(s.split for s in sounds)}
    return {
        name: {split: table[split] for split in SPLITS if split in table}
        for name, table in tables.items()
    }


def _parse(line: str, row: type[_Row], where: str) -> _Row:
    try:
        item = from_dict(row, parse_json(line))
    except (ValueError, SoundspotError) as error:
        raise SoundspotError(f"{where}: {error}", "damaged") from error
    files = (item.frame, item.audio) if isinstance(item, Pair) else (item.audio,)
    for file in files:
        if file is not None and not {"", ".."}.isdisjoint(file.split("/")):
            raise SoundspotError(f"{where}: {file!r} is no file in the set's folder", "damaged")
    if not item.id:
        raise SoundspotError(f"{where}: the id is empty", "damaged")
    if item.split not in SPLITS:
        raise SoundspotError(f"{where}: {nearest(item.split, SPLITS)}", "damaged")
    return item


def read_head(root: Path) -> Head:
    """Read pairset.json, which every finished pair set has."""
    path = root / HEAD
    if path.exists():
        head = read_typed(path, Head, "run the same `soundspot prepare` again")
        if head.format != FORMAT:
            raise SoundspotError(f"{path} has format {head.format}; this version reads {FORMAT}")
        return head
    if (root / PARTIAL).exists():
        raise SoundspotError(f"{root} is not finished: run `soundspot prepare` again", "missing")
    if not root.exists():
        raise SoundspotError(f"no folder {root}: make it with `soundspot prepare`", "missing")
    raise SoundspotError(f"{root} is not a pair set: it has no {HEAD}", "missing")


def by_split_and_class(sounds: Sequence[Sound]) -> dict[tuple[str, str | None], list[Sound]]:
    """The pooled sounds to draw from."""
    pool: dict[tuple[str, str | None], list[Sound]] = defaultdict(list)
    for sound in sounds:
        pool[sound.split, sound.cls].append(sound)
    return dict(pool)


def check_pairing(
    root: Path, pairing: Pairing, pairs: Sequence[Pair], sounds: Sequence[Sound]
) -> None:
    """Refuse a pair without a sound for which none can be drawn."""
    pool = by_split_and_class(sounds)
    for pair in pairs:
        if pair.audio is None and pairing != "class":
            raise SoundspotError(f"{root}: pair {pair.id!r} has no sound", "damaged")
        if pair.audio is None and (pair.split, pair.cls) not in pool:
            raise SoundspotError(f"{root} has no sound for pair {pair.id!r}", "damaged")


def media_digest(frame: bytes, sound: bytes) -> str:
    """A digest of a pair's two files, given the sha256 of each."""
    return hashlib.sha256(frame + sound).hexdigest()[:16]


@functools.cache
def held_out() -> frozenset[str]:
    """Ids of the test clips of VGG-SS and SoundNet-Flickr, which nothing should learn from.

    They are the keys of the published vggss.json and of Flickr's boxes of 250 test pictures.
    """
    return frozenset(read_ids(Path(__file__).parent / "corpora" / "held_out.txt.gz"))


def hash_split(id: str, val: float = 0.1, test: float = 0.0) -> str:
    """Put an id into train, val or test by its hash: the same on every machine and in every run."""
    if not (0 <= val <= 1 and 0 <= test <= 1 and val + test <= 1):
        raise SoundspotError(f"val and test must be shares of 1 together, got {val} and {test}")
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if place < test else "val" if place < test + val else "train"
