"""The files of a corpus, found by the ids in their names, however its folders are nested.

An id stands in a file's name or, for frames and sounds, in the name of a folder around them. A clip
is a video, or a picture and a sound of the same id.
"""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, TypeVar

from soundspot.common.errors import SoundspotError
from soundspot.data.items import PICTURES, SOUNDS, VIDEOS, Files, Item
from soundspot.data.manifest import hash_split
from soundspot.data.writer import Entry, Status

T = TypeVar("T")
Parse = Callable[[str], str | None]  # a name without its suffix -> the id it stands for, if any


@dataclass(frozen=True)
class Selection:
    """Which clips of a corpus, and how they are split.

    Attributes:
        ids: Only these: ids, file names or paths. None for all that are there.
        subset: So many of them, drawn at random. None for all.
        seed: Of the draw.
        val: Share of the ids that go to the val split, by their hash.
        test: Share of the ids that go to the test split.
    """

    ids: Sequence[str] | None = None
    subset: int | None = None
    seed: int = 0
    val: float = 0.1
    test: float = 0.0

    def rules(self) -> dict[str, Any]:
        """What of it belongs into a pair set's provenance."""
        rules: dict[str, Any] = {"val": self.val, "test": self.test}
        if self.ids is not None:
            rules["ids"] = digest_of("\n".join(self.ids))
        if self.subset is not None:
            rules |= {"subset": self.subset, "seed": self.seed}
        return rules


EVERYTHING = Selection()


@dataclass(frozen=True)
class Place:
    """The media of one id: `Item`'s choices, spares and absent."""

    choices: tuple[Files, ...] = ()
    spares: Files = ()
    absent: tuple[Status, str] | None = None


@dataclass
class _Media:
    """The files of one id; frames that only their folder names, by folder."""

    videos: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    frames: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    sounds: list[str] = field(default_factory=list)


def check_places(source: Path, out: Path) -> None:
    """Refuse a source that is no folder, and a pair set inside it."""
    if not source.is_dir():
        raise SoundspotError(f"{source} must be a folder of videos")
    if out.resolve().is_relative_to(source.resolve()):
        raise SoundspotError(f"{out} lies inside {source}: the pair set would be taken for videos")


def list_files(source: Path) -> list[PurePath]:
    """Every file under a folder, in sorted order; links to folders are followed, loops are not."""
    files: list[PurePath] = []
    walked: set[str] = set()
    for folder, folders, names in os.walk(source, followlinks=True):
        real = os.path.realpath(folder)
        if real in walked:
            folders.clear()
            continue
        walked.add(real)
        folders.sort()  # of two ways to a folder the first by name counts
        files += (PurePath(folder, name).relative_to(source) for name in names)
    if not files:
        raise SoundspotError(f"{source} holds no files")
    return sorted(files)


def select_clips(
    source: Path, out: Path, parse: Parse, example: str, selection: Selection
) -> tuple[list[tuple[str, Place]], list[Entry]]:
    """The selected ids, each with its place, and what else the ledger should say.

    Args:
        source: The corpus's folder.
        out: The pair set's folder.
        parse: From a name to an id.
        example: A name that would be understood, for the report.
        selection: Listed ids stay in the list's order, repeated ones once.
    """
    check_places(source, out)
    if selection.ids is None:
        places, notes = find_clips(source, parse, None, example)
        clips = list(places.items())
    else:
        read = [(text, read_id(text, parse)) for text in selection.ids]
        ids = list(dict.fromkeys(id for _, id in read if id is not None))
        places, notes = find_clips(source, parse, ids, example)
        gone = Place(absent=("missing", "no file has this id"))
        clips = [(id, places.get(id, gone)) for id in ids]
        reason = f"stands in the list, but is no id such as {example}"
        notes += [Entry(text, "missing", reason) for text, id in read if id is None]
    return draw(clips, lambda clip: clip[0], selection.subset, selection.seed), notes


def make_items(
    clips: Iterable[tuple[str, Place]], selection: Selection, at: float | None = None
) -> list[Item]:
    """The items of clips that are called by their ids, without classes."""
    return [
        Item(
            name=id,
            id=id,
            split=hash_split(id, selection.val, selection.test),
            choices=place.choices,
            spares=place.spares,
            at=at,
            absent=place.absent,
        )
        for id, place in clips
    ]


def digest_of(text: str) -> str:
    """A short name for a list, which goes into a pair set's provenance."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def find_clips(
    source: Path, parse: Parse, ids: Collection[str] | None, example: str
) -> tuple[dict[str, Place], list[Entry]]:
    """Find the media of every id.

    Args:
        source: The corpus's folder.
        parse: From a name to an id.
        ids: Only these count; None for all that are there.
        example: A name that would be understood, for the report.

    Returns:
        The place of each id that has any file, sorted by id, and what the ledger should say of
        files that belong to none.
    """
    wanted = None if ids is None else frozenset(ids)
    media: dict[str, _Media] = defaultdict(_Media)
    notes: list[Entry] = []
    for file in list_files(source):
        suffix = file.suffix.lower()
        known = suffix in VIDEOS or suffix in PICTURES or suffix in SOUNDS
        if not known or file.name.startswith("."):
            notes.append(Entry(file.as_posix(), "ignored", "is no video, picture or sound by name"))
            continue
        parts = file.parts[-1:] if suffix in VIDEOS else file.parts[::-1]
        named = [id for id in (parse(bare(part)) for part in parts) if id]
        id = next((id for id in named if wanted is None or id in wanted), None)
        if id is not None:
            _add(media[id], file, own=parse(bare(file.name)) == id)
        elif not named:
            reason = f"has no id in its name, such as {example}"
            notes.append(
                Entry(file.as_posix(), "not understood" if wanted is None else "ignored", reason)
            )
    return {id: _place(media[id]) for id in sorted(media)}, notes


def bare(name: str) -> str:
    """A name without suffixes of media: SoundNet keeps frames in folders called <id>.mp4."""
    path = PurePath(name)
    while path.suffix.lower() in VIDEOS | PICTURES | SOUNDS:
        path = path.with_suffix("")
    return path.name


def read_id(text: str, parse: Parse) -> str | None:
    """The id that a line of a list means: an id, a file name or a path."""
    return parse(bare(PurePath(text).name))


def draw(items: Sequence[T], id_of: Callable[[T], str], count: int | None, seed: int) -> list[T]:
    """A random subset, in the items' order, that depends on seed and ids alone.

    An item is in or out by the rank of its hash, so that two copies of a corpus which differ in a
    few files give subsets which differ in a few.
    """
    if count is None:
        return list(items)
    if not 0 < count <= len(items):
        raise SoundspotError(f"cannot draw a subset of {count:,} from {len(items):,} clips")
    ranks = [hashlib.sha256(f"{seed} {id_of(item)}".encode()).digest() for item in items]
    chosen = set(sorted(range(len(items)), key=ranks.__getitem__)[:count])
    return [item for number, item in enumerate(items) if number in chosen]


def _add(media: _Media, file: PurePath, own: bool) -> None:
    suffix, name = file.suffix.lower(), file.as_posix()
    if suffix in VIDEOS:
        media.videos.append(name)
    elif suffix in SOUNDS:
        media.sounds.append(name)
    elif own:
        media.pictures.append(name)
    else:
        media.frames[file.parent.as_posix()].append(name)


def _place(media: _Media) -> Place:
    middles = [_middle(frames) for frames in media.frames.values()]
    pictures = media.pictures + middles
    choices = (
        *((video,) for video in media.videos),
        *_pairs(pictures, media.sounds),
        *_pairs(media.videos, media.sounds),
    )
    if choices:
        spares = (*media.videos[1:], *pictures[1:], *media.sounds[1:])
        return Place(choices, spares)
    if pictures:
        return Place(absent=("no sound", f"there is {pictures[0]}, but no sound of this id"))
    return Place(absent=("missing", f"there is {media.sounds[0]}, but no picture of this id"))


def _pairs(pictures: Iterable[str], sounds: Sequence[str]) -> Iterator[Files]:
    return ((picture, sound) for picture in pictures for sound in sounds)


def _middle(frames: Sequence[str]) -> str:
    """The frame in the middle of the folder, where 10 comes after 9."""
    ordered = sorted(frames, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
    return ordered[len(ordered) // 2]
