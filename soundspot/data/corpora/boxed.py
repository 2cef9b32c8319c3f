"""Your own clips with boxes -> a pair set: a folder with media and one JSON list.

Every entry of the list is an object with

    file      a video, or a picture with `sound`
    at        second of the frame to which the boxes belong; default: the middle
    boxes     [[x1, y1, x2, y2], ...] in 0..1 of the frame, of what sounds; or {class: boxes, ...}
    visible   whether the source is in the picture; default: if there are boxes
    kind      any word: results are shown by it
    sound     a sound file, for a picture or instead of a video's own

A picture whose boxes are by class gets one pair for each: the sounds of the class are taken in turn
from another pair set. Such pairs form a group, so that results say whether the map follows the
sound. Of a video a small gray film around the frame is kept too, from which its motion is measured.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from soundspot.common.errors import SoundspotError
from soundspot.common.files import make_id
from soundspot.common.progress import progress
from soundspot.data.corpora.escvoc import Row, read_list
from soundspot.data.corpus_files import check_folders
from soundspot.data.manifest import Box, Pair
from soundspot.data.pair_set import PairSet, film_name
from soundspot.data.writer import LedgerEntry, PairWriter, SourceError, Summary, status_of
from soundspot.media import clips as media
from soundspot.media.films import film_bytes, read_films
from soundspot.media.opening import opened

KINDS = {"at": (int, float), "visible": bool, "kind": str, "sound": str}


@dataclass(frozen=True)
class Sounds:
    """Where the sounds of classes come from: a split of a pair set."""

    pairs: PairSet
    split: str

    def by_class(self) -> dict[str, list[str]]:
        """Class -> the sound files that its pairs have, sorted."""
        found: dict[str, set[str]] = {}
        for pair in self.pairs.select(self.split):
            if pair.cls is not None and pair.audio is not None:
                found.setdefault(pair.cls, set()).add(pair.audio)
        return {cls: sorted(files) for cls, files in found.items()}


def prepare(source: Path, out: Path, sounds: Sounds | None = None, split: str = "val") -> Summary:
    """Turn clips with boxes into a pair set with one split: val if anything is chosen by it.

    The `sounds` of pictures whose boxes are by class come from another pair set.
    """
    check_folders(source, out)
    rows = read_rows(source)
    by_class = any(isinstance(row["boxes"], dict) for row in rows)
    if by_class and sounds is None:
        raise SoundspotError(f"{source} has boxes by class: name a pair set with their sounds")
    rules: dict[str, Any] = {"corpus": "boxed", "frame": "at the given moment", "split": split}
    if by_class and sounds is not None:
        rules["sounds"] = f"{sounds.pairs.fingerprint()[:16]}, {sounds.split}"
    writer = PairWriter(out, source.resolve().name, "class" if by_class else "event", rules)
    pairs: list[Pair] = []
    entries: list[LedgerEntry] = []
    heard = sounds.by_class() if by_class and sounds is not None else {}
    turns: Counter[str] = Counter()
    with writer.locked():
        for row in progress(rows, "preparing clips"):
            try:
                made = list(_pairs(writer, source, row, split, sounds, heard, turns))
                entries.append(LedgerEntry(row["file"], "done"))
                pairs += made
            except SourceError as error:
                known = (source / row["file"]).exists()
                status = status_of(error) if known else "missing"
                entries.append(LedgerEntry(row["file"], status, str(error)))
        return writer.finish(pairs, (), entries)


def read_rows(source: Path) -> list[Row]:
    """The entries of the folder's only JSON list, checked."""
    lists = sorted(source.glob("*.json"))
    if len(lists) != 1:
        raise SoundspotError(f"{source} must hold one JSON list of its clips, not {len(lists)}")
    rows = read_list(lists[0], "file boxes", "list of boxed clips")
    for number, row in enumerate(rows):
        where = f"{lists[0]}, row {number}"
        for key, kind in KINDS.items():
            if not isinstance(row.get(key), (kind, type(None))):  # type: ignore[arg-type]
                raise SoundspotError(f"{where}: {key!r} cannot be {row[key]!r}")
        by_class = row["boxes"] if isinstance(row["boxes"], dict) else {"": row["boxes"]}
        for boxes in by_class.values():
            if not isinstance(boxes, list) or not all(map(_is_box, boxes)):
                raise SoundspotError(f"{where}: a box is [x1, y1, x2, y2] in 0..1 of the frame")
        if row.setdefault("visible", bool(row["boxes"])) and not row["boxes"]:
            raise SoundspotError(f"{where}: a visible source needs a box")
    return rows


def _is_box(box: object) -> bool:
    if not isinstance(box, list) or len(box) != 4:
        return False
    return all(isinstance(v, (int, float)) and 0 <= v <= 1 for v in box)


def _pairs(
    writer: PairWriter,
    source: Path,
    row: Row,
    split: str,
    sounds: Sounds | None,
    heard: dict[str, list[str]],
    turns: Counter[str],
) -> Iterator[Pair]:
    """The pairs of an entry: one, or one for each class of its boxes."""
    id, file, at = make_id(PurePath(row["file"])), source / row["file"], row.get("at")
    frame = writer.add_frame(id, partial(media.read_frame, file, at))
    pair = partial(Pair, frame=frame, split=split, source=row["file"])
    if not isinstance(row["boxes"], dict):
        own = source / row["sound"] if row.get("sound") else file
        audio = writer.add_sound(id, partial(media.read_sound, own, _heard_at(file, at)))
        _keep_film(writer, file, at, film_name(frame))
        boxes = (_boxes(row["boxes"]),) if row["visible"] else ()
        yield pair(id=id, audio=audio, cls=row.get("kind"), boxes=boxes)
        return
    assert sounds is not None  # `prepare` refuses boxes by class without them
    group = id if len(row["boxes"]) > 1 else None
    for cls, found in row["boxes"].items():
        if cls not in heard:
            raise SourceError(f"{row['file']}: {sounds.pairs.root} has no sound of {cls!r}")
        name = heard[cls][turns[cls] % len(heard[cls])]
        turns[cls] += 1
        waveform = partial(sounds.pairs.waveform, name)
        audio = writer.add_sound(PurePath(name).stem, waveform)
        key = f"{id}-{make_id(PurePath(cls))}"
        yield pair(id=key, audio=audio, cls=cls, boxes=(_boxes(found),), group=group)


def _heard_at(file: Path, at: float | None) -> float | None:
    """A video's sound is heard around its frame, a picture's around the sound's own middle."""
    with opened(file) as clip:
        return None if clip.image is not None else clip.info.moment(at)


def _keep_film(writer: PairWriter, file: Path, at: float | None, name: str) -> None:
    if (writer.root / name).exists():
        return
    with opened(file) as clip:
        if clip.info.kind != "video":
            return
        film = read_films(clip, [clip.info.moment(at)])[0]
    if film is not None:
        writer.store(name, film_bytes(film))


def _boxes(rows: Sequence[Sequence[int | float]]) -> tuple[Box, ...]:
    return tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in rows)
