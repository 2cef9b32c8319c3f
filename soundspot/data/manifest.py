"""The rows of a pair set: Pair and Sound, their files on disk, and what makes a row valid.

A bad line is refused, with its number, its field and the nearest valid key.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar, cast, get_args

from soundspot.common.config import nearest, parse_json, read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text

FORMAT = 1
HEAD, PAIRS, SOUNDS = "pairset.json", "pairs.jsonl", "sounds.jsonl"
PARTIAL = f"{HEAD}.partial"  # takes the place of the head until the set is finished
SPLITS = ("train", "val", "test", "duets-val", "duets-test")

# x1, y1, x2, y2 as fractions of the frame.
Box = tuple[float, float, float, float]
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
                    raise SoundspotError(f"{where}: id {item.id!r} is also on line {seen[item.id]}")
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
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SoundspotError(f"{where} is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise SoundspotError(f"{where} must be a JSON object, not {type(values).__name__}")
    known = {field.name: field for field in fields(row)}
    for key in values:
        if key not in known:
            raise SoundspotError(f"{where}: unknown field {key!r}; {nearest(key, list(known))}")
    for name, field in known.items():
        if name not in values:
            if field.default is MISSING:
                raise SoundspotError(f"{where}: the field {name!r} is missing")
        elif name == "boxes":
            values[name] = _parse_boxes(values[name], where)
        elif not isinstance(values[name], cast(type, field.type)):
            raise SoundspotError(f"{where}: {name!r} must be text, not {values[name]!r}")
    for name in ("id", "frame", "audio"):
        if values.get(name) == "":
            raise SoundspotError(f"{where}: {name!r} is empty")
    for name in ("frame", "audio"):
        file = PurePosixPath(values.get(name) or ".")
        if file.is_absolute() or ".." in file.parts:
            raise SoundspotError(f"{where}: {name!r} leaves the pair set's folder: {file}")
    if values["split"] not in SPLITS:
        raise SoundspotError(
            f"{where}: unknown split {values['split']!r}; {nearest(values['split'], SPLITS)}"
        )
    return row(**values)


def _is_box(value: object) -> bool:
    # The exact type, since a bool is an int to Python; NaN fails the comparison.
    good = isinstance(value, list) and len(value) == 4
    return good and all(type(v) in (int, float) and 0 <= v <= 1 for v in cast(list[Any], value))


def _parse_boxes(value: object, where: str) -> tuple[tuple[Box, ...], ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(
        isinstance(annotator, list) and all(map(_is_box, annotator)) for annotator in value
    ):
        raise SoundspotError(
            f"{where}: 'boxes' is a list of annotators, each a list of [x1, y1, x2, y2] in 0..1 "
            f"of the frame, not {json.dumps(value)[:80]}"
        )
    return tuple(
        tuple(cast(Box, tuple(float(v) for v in box)) for box in annotator) for annotator in value
    )


def read_head(root: Path) -> dict[str, Any]:
    """Read pairset.json, which every finished pair set has."""
    path = root / HEAD
    try:
        head = parse_json(read_bytes(path))
    except FileNotFoundError as error:
        if (root / PARTIAL).exists():
            raise SoundspotError(
                f"{root} is not finished: run the same `soundspot prepare` again"
            ) from error
        if not root.exists():
            raise SoundspotError(
                f"there is no folder {root}: make a pair set there with `soundspot prepare` "
                "(docs/data.md says from which downloads)"
            ) from error
        raise SoundspotError(f"{root} is not a pair set: it has no {HEAD}") from error
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} cannot be read ({error})") from error
    expected = {"name": str, "format": int, "pairing": str, "counts": dict, "provenance": dict}
    for key, kind in expected.items():
        if not isinstance(head, dict) or not isinstance(head.get(key), kind):
            raise SoundspotError(f"{path}: {key!r} must be present and of type {kind.__name__}")
    if head["format"] != FORMAT:
        raise SoundspotError(f"{path} has format {head['format']}; this version reads {FORMAT}")
    if head["pairing"] not in get_args(Pairing):
        choices = nearest(head["pairing"], get_args(Pairing))
        raise SoundspotError(f"{path}: unknown pairing {head['pairing']!r}; {choices}")
    return cast(dict[str, Any], head)


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
            raise SoundspotError(
                f"{root}: pair {pair.id!r} has no sound, but pairing is {pairing!r}"
            )
        if pair.audio is None and (pair.split, pair.cls) not in pool:
            raise SoundspotError(
                f"{root}: pair {pair.id!r} has no sound, and sounds.jsonl contains none of class "
                f"{pair.cls!r} in split {pair.split!r}"
            )


def media_digest(frame: bytes, sound: bytes) -> str:
    """A digest of a pair's two files, given the sha256 of each."""
    return hashlib.sha256(frame + sound).hexdigest()[:16]


def hash_split(id: str, val: float = 0.1, test: float = 0.0) -> str:
    """Put an id into train, val or test by its hash: the same on every machine and in every run."""
    if not (0 <= val <= 1 and 0 <= test <= 1 and val + test <= 1):
        raise SoundspotError(
            f"val and test must be fractions that add up to at most 1, got {val} and {test}"
        )
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if place < test else "val" if place < test + val else "train"
