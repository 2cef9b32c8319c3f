"""A folder of videos -> a pair set: the middle frame of each, and the 3 s around it."""

import functools
import hashlib
import re
import unicodedata
from collections import defaultdict
from pathlib import Path, PurePath

from soundspot import media
from soundspot.errors import SoundspotError
from soundspot.pairs import Pair, hash_split
from soundspot.prepare.writer import Entry, PairWriter, SourceError, Summary
from soundspot.progress import progress

LONGEST_ID = 200  # bytes; a file name may have 255 with its suffix


def prepare(
    source: Path, out: Path, *, classes: bool = False, val: float = 0.1, test: float = 0.0
) -> Summary:
    """Turn every video under `source` into a pair.

    Every file is tried, whatever its name. What gives no pair stands in the summary and in
    ledger.jsonl with its reason.

    Args:
        source: The folder of videos, with or without sub-folders.
        out: The pair set's folder.
        classes: Take the name of the first sub-folder as the class.
        val: Share of the ids that go to the val split, by their hash.
        test: Share of the ids that go to the test split.
    """
    items = _list(source, out)
    splits = {item: hash_split(make_id(item), val, test) for item in items}
    rules = {"corpus": "folder", "frame": "the middle one", "sound": "3 s around the frame"}
    choices = {"classes": classes, "val": val, "test": test}
    writer = PairWriter(out, source.resolve().name, "event", rules | choices)
    writer.begin()
    refused = _collisions(items)
    pairs, entries = [], []
    for item in progress(items, "preparing videos"):
        if item in refused:
            entries.append(Entry(item.as_posix(), "duplicate", refused[item]))
            continue
        try:
            cls = _class_of(item) if classes else None
            frame, audio = add_video(writer, source / item, make_id(item))
        except SourceError as error:
            entries.append(Entry(item.as_posix(), "failed", str(error)))
            continue
        pair = Pair(make_id(item), frame, audio, splits[item], cls, source=item.as_posix())
        pairs.append(pair)
        entries.append(Entry(item.as_posix(), "done"))
    return writer.finish(pairs, (), entries)


def add_video(writer: PairWriter, file: Path, key: str) -> tuple[str, str]:
    """Store one video's frame and sound, unless they are there; returns their file names."""
    if not file.is_file():
        raise SourceError(f"{file} is no regular file, or a link to nothing")
    clip = functools.cache(lambda: media.read_clip(file))
    frame = writer.add_frame(key, lambda: clip().frame)
    return frame, writer.add_sound(key, lambda: clip().waveform)


def make_id(item: PurePath) -> str:
    """An id that is a file name everywhere, from a path relative to the corpus.

    Folders are joined by two underscores; letters and digits of any script, "_" and "-" stay;
    anything else becomes "_". A long name is cut and ends in a hash of the whole.
    """
    path = unicodedata.normalize("NFC", item.with_suffix("").as_posix())
    name = re.sub(r"[^\w-]", "_", path.replace("/", "__"))
    if len(name.encode()) <= LONGEST_ID:
        return name
    digest = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{name.encode()[: LONGEST_ID - 13].decode(errors='ignore')}-{digest}"


def _list(source: Path, out: Path) -> list[PurePath]:
    if not source.is_dir():
        raise SoundspotError(f"{source} must be a folder of videos")
    if out.resolve().is_relative_to(source.resolve()):
        raise SoundspotError(f"{out} lies inside {source}: the pair set would be taken for videos")
    items = sorted(p.relative_to(source) for p in source.rglob("*") if not p.is_dir())
    if not items:
        raise SoundspotError(f"{source} holds no files")
    return list(items)


def _collisions(items: list[PurePath]) -> dict[PurePath, str]:
    """Items whose id another item has too, where upper and lower case are one to some systems."""
    same: dict[str, list[PurePath]] = defaultdict(list)
    for item in items:
        same[make_id(item).casefold()].append(item)
    return {
        item: f"gives the same id {make_id(item)} as "
        + ", ".join(other.as_posix() for other in group if other != item)
        for group in same.values()
        if len(group) > 1
        for item in group
    }


def _class_of(item: PurePath) -> str:
    if len(item.parts) < 2:
        raise SourceError(f"{item} lies in no sub-folder, so it has no class")
    return item.parts[0]
