"""The items of a corpus: how they are found, and what becomes of each.

Files are found by the ids in their names, however a corpus nests its folders.

An id is part of a file's name or, for frames and sounds, of the name of a folder around them. A
clip is a video, or a picture and a sound with the same id.
"""

import hashlib
import itertools
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from soundspot.common.errors import MediaError, SoundspotError
from soundspot.common.files import list_files
from soundspot.data.manifest import Box, hash_split, held_out, media_digest
from soundspot.data.options import Options, SplitOptions, digest_of
from soundspot.data.pair_set import FRAME_SIZE
from soundspot.data.writer import LedgerEntry, Status, status_of
from soundspot.media import PICTURES, SOUNDS, VIDEOS
from soundspot.media import clips as media
from soundspot.media.resizing import resize_frame

Files = tuple[str, ...]


@dataclass(frozen=True)
class CorpusItem:
    """One clip that a corpus should contain.

    Attributes:
        name: Its name in the ledger.
        id: The id of the pair, from which its files are named.
        choices: Where its media may be, best first: (video,), (picture, sound) or (video, separate
            sound), relative to the corpus.
        spares: Further files of the same id; those that are not used are reported as duplicates.
        at: Second of the frame; None for the middle.
        absent: Status and reason, if it is already clear that there is nothing to read.
    """

    name: str
    id: str
    split: str
    choices: tuple[Files, ...] = ()
    spares: Files = ()
    at: float | None = None
    cls: str | None = None
    boxes: tuple[tuple[Box, ...], ...] | None = None
    absent: tuple[Status, str] | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of an item.

    If it is not "done", `reason` says why, else what was wrong with better choices. `used` are the
    files it was made from, `inputs` a digest of all that it could have been made from. `frame` is
    a JPEG and `sound` a FLAC, both empty if an earlier run has stored them.
    """

    status: Status
    reason: str = ""
    used: Files = ()
    digest: str = ""
    frame: bytes = b""
    sound: bytes = b""
    inputs: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """What an earlier run stored: a pair's id, its files' digest, and what it was made from."""

    id: str
    digest: str
    inputs: str


def inputs_of(item: CorpusItem, source: Path) -> str:
    """A digest of the item and its files: their names, sizes, times of change and inodes."""
    files = []
    for name in itertools.chain(*item.choices):
        try:
            status = (source / name).stat()
            files.append((name, status.st_size, status.st_mtime_ns, status.st_ino))
        except OSError:
            files.append((name, -1, 0, 0))
    return digest_of(json.dumps((item.id, item.name, item.at, item.absent, item.choices, files)))


def prepare_item(item: CorpusItem, source: Path, stored: Path, kept: Kept | None) -> Outcome:
    """Read an item's frame and the 3 s around it, from the first choice that has both.

    `source` is the corpus's folder. What an earlier run `kept` in the pair set `stored` is taken,
    if neither the files that it was made from nor the stored ones have changed.
    """
    inputs = inputs_of(item, source)
    if item.absent is not None:
        return Outcome(*item.absent, inputs=inputs)
    # With several choices, the stored files do not tell which one they came from.
    same = kept and kept.inputs == inputs and len(item.choices) == 1
    if kept and same and _stored_digest(stored, item.id) == kept.digest:
        return Outcome("done", used=item.choices[0], digest=kept.digest, inputs=inputs)
    faults: list[tuple[Status, str]] = []
    for files in item.choices:
        paths = [source / file for file in files]
        if gone := [file for file in files if not (source / file).exists()]:
            faults.append(("missing", f"{gone[0]} is a dangling link, or was deleted"))
            continue
        try:
            # An image's sound is cut at its own middle, a video's around the frame.
            image = len(files) > 1 and paths[0].suffix.lower() in PICTURES
            sound_file = paths[1] if len(paths) > 1 else None
            clip = media.read_clip(paths[0], sound_file, None if image else item.at)
        except MediaError as error:  # anything else is a fault of ours, not of the file
            faults.append((status_of(error), str(error).replace(f"{source}{os.sep}", "")))
            continue
        frame = media.jpeg_bytes(resize_frame(clip.frame, FRAME_SIZE, FRAME_SIZE))
        sound = media.flac_bytes(clip.waveform)
        digest = digest_pair(frame, sound)
        return Outcome("done", _join(faults), files, digest, frame, sound, inputs)
    return Outcome(faults[0][0], _join(faults), inputs=inputs)


def _join(faults: list[tuple[Status, str]]) -> str:
    return " ".join(dict.fromkeys(reason for _, reason in faults))


def _stored_digest(root: Path, id: str) -> str:
    """The digest of the files that an earlier run stored; empty unless both exist."""
    try:
        frame = (root / f"frames/{id}.jpg").read_bytes()
        return digest_pair(frame, (root / f"sounds/{id}.flac").read_bytes())
    except OSError:
        return ""


def digest_pair(frame: bytes, sound: bytes) -> str:
    """The digest of a pair's two files."""
    return media_digest(hashlib.sha256(frame).digest(), hashlib.sha256(sound).digest())


ParseId = Callable[[str], str | None]  # a name without its suffix -> the id in it, if any


@dataclass
class _Media:
    """The files of one id; frames whose folder has the id in its name are kept by folder."""

    videos: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    frames: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    sounds: list[str] = field(default_factory=list)


def check_folders(source: Path, out: Path) -> None:
    """Refuse a source that is not a folder, and a pair set inside it."""
    if not source.is_dir():
        raise SoundspotError(f"{source} must be a folder of videos")
    if out.resolve().is_relative_to(source.resolve()):
        raise SoundspotError(f"{out} is inside {source}: choose a folder outside the corpus")


def find_items(
    source: Path,
    out: Path,
    parse: ParseId,
    example: str,
    options: Options,
    at: float | None = None,
    only: Sequence[str] | None = None,
) -> tuple[list[CorpusItem], list[LedgerEntry]]:
    """The selected clips, without classes, and further entries for the ledger.

    Listed ids stay in the list's order, without repetitions; without a list they are `only` these,
    or all. `example` is a name that `parse` understands, for messages; `at` is the second of the
    frame, None for the middle.
    """
    check_folders(source, out)
    wanted = only if options.listed is None else options.listed
    if wanted is None:
        media, notes = _find_media(source, parse, None, example)
        ids = sorted(media)
    else:
        # A line of the list may be an id, a file name or a path.
        listed = [(text, parse(bare(PurePath(text).name))) for text in wanted]
        ids = list(dict.fromkeys(id for _, id in listed if id is not None))
        media, notes = _find_media(source, parse, frozenset(ids), example)
        reason = f"is in the list, but is not an id such as {example}"
        notes += [LedgerEntry(text, "missing", reason) for text, id in listed if id is None]
    items = [_make_item(id, media.get(id, _Media()), options, at) for id in ids]
    return draw_subset(items, options.subset, options.seed), notes


def _find_media(
    source: Path, parse: ParseId, wanted: Collection[str] | None, example: str
) -> tuple[dict[str, _Media], list[LedgerEntry]]:
    """The media of every (wanted) id that has any, and ledger entries for files without an id."""
    media: dict[str, _Media] = defaultdict(_Media)
    notes: list[LedgerEntry] = []
    for file in list_files(source):
        suffix = file.suffix.lower()
        if suffix not in VIDEOS | PICTURES | SOUNDS or file.name.startswith("."):
            reason = "is not named like a video, picture or sound"
            notes.append(LedgerEntry(file.as_posix(), "ignored", reason))
            continue
        parts = file.parts[-1:] if suffix in VIDEOS else file.parts[::-1]
        named = [id for id in (parse(bare(part)) for part in parts) if id]
        id = next((id for id in named if wanted is None or id in wanted), None)
        if id is not None:
            _add(media[id], file, own=parse(bare(file.name)) == id)
        elif not named:
            status: Status = "not understood" if wanted is None else "ignored"
            reason = f"has no id such as {example} in its name"
            notes.append(LedgerEntry(file.as_posix(), status, reason))
    return media, notes


def bare(name: str) -> str:
    """A name without media suffixes: SoundNet keeps frames in folders called <id>.mp4."""
    path = PurePath(name)
    while path.suffix.lower() in VIDEOS | PICTURES | SOUNDS:
        path = path.with_suffix("")
    return path.name


def draw_subset(items: Sequence[CorpusItem], count: int | None, seed: int) -> list[CorpusItem]:
    """A random subset, in the items' order, that depends on seed and names alone.

    Items are chosen by the rank of their hash, so that two copies of a corpus which differ in a few
    files give subsets which differ in a few.
    """
    if count is None:
        return list(items)
    if not 0 < count <= len(items):
        raise SoundspotError(f"cannot draw a subset of {count:,} from {len(items):,} clips")
    ranks = [_rank(seed, item.name) for item in items]
    chosen = set(sorted(range(len(items)), key=ranks.__getitem__)[:count])
    return [item for number, item in enumerate(items) if number in chosen]


def hold_out(items: Sequence[CorpusItem]) -> tuple[list[CorpusItem], dict[str, str]]:
    """Put the test clips of benchmarks into test, whatever their hash says; rules if there are any.

    The published lists for training hold some: 3,709 of VGG-SS's are in the one of 144,000.
    """
    moved = [
        replace(item, split="test") if item.id in held_out() and item.split != "test" else item
        for item in items
    ]
    return moved, {} if moved == list(items) else {"benchmarks": "in test"}


def _rank(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed} {name}".encode("utf-8", "surrogatepass")).digest()


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


def _make_item(id: str, media: _Media, options: Options, at: float | None) -> CorpusItem:
    pictures = media.pictures + [_middle(frames) for frames in media.frames.values()]
    choices = (
        *((video,) for video in media.videos),
        *itertools.product(pictures, media.sounds),
        *itertools.product(media.videos, media.sounds),
    )
    spares = (*media.videos[1:], *pictures[1:], *media.sounds[1:])
    absent: tuple[Status, str] | None = None
    if pictures and not choices:
        absent = "no sound", f"there is {pictures[0]}, but no sound of this id"
    elif media.sounds and not choices:
        absent = "missing", f"there is {media.sounds[0]}, but no picture of this id"
    elif not choices:
        absent = "missing", "no file has this id"
    split = split_of(id, options)
    return CorpusItem(id, id, split, choices, spares, at, absent=absent)


def split_of(id: str, options: Options) -> str:
    """The split of a clip; a benchmark is not split: all of it is test."""
    if isinstance(options, SplitOptions):
        return hash_split(id, options.val, options.test)
    return "test"


def _middle(frames: Sequence[str]) -> str:
    """The middle frame of a folder, in numerical order: 10 comes after 9."""
    ordered = sorted(frames, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
    return ordered[len(ordered) // 2]
