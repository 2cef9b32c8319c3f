"""PairSet: frames with their sounds, and the manifest that lists them.

A pair set is a folder:

    pairset.json     name, format, pairing, counts, provenance; written last, so it marks "finished"
    pairs.jsonl      one Pair per line
    sounds.jsonl     one Sound per line: the pool from which class-level pairs draw (optional)
    frames/*.jpg     256 x 256 RGB        } or the same members in shard-*.tar,
    sounds/*.flac    3 s, mono, 16 kHz    } in WebDataset's layout
    films/*.png      small gray pictures around a frame of a video (optional, see `media.films`)
    ledger.jsonl     what became of every item of the corpus

An item that cannot be read raises `ItemError`; `find_problems` lists all of them.
"""

import hashlib
import io
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, cast

import av
import numpy as np
from numpy.typing import NDArray

from soundspot.common.config import nearest
from soundspot.common.errors import SoundspotError
from soundspot.common.progress import progress
from soundspot.data import manifest
from soundspot.data.manifest import HEAD, PAIRS, SOUNDS, SPLITS, Pair, Pairing, Sound, media_digest
from soundspot.media import images
from soundspot.media.clips import SAMPLE_RATE, SOUND_SAMPLES, is_silent
from soundspot.media.films import Film, decode_film

__all__ = ["ItemError", "Pair", "PairSet", "Problem", "Sound", "draw_sounds"]

FRAME_SIZE = 256

ProblemKind = Literal["missing", "unreadable", "size", "silent", "box", "leak", "changed"]


class Problem(NamedTuple):
    """What is wrong with one item of a pair set."""

    kind: ProblemKind
    item: str
    reason: str


class ItemError(SoundspotError):
    """One item of a pair set cannot be used; `problem` says which and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)  # as the only argument, it pickles out of a reader process
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.problem.item} {self.problem.reason}"


class ShardIndex(NamedTuple):
    """Where the members of a pair set's tar shards are."""

    members: dict[str, tuple[Path, int, int]]  # name -> shard, offset, size
    damaged: tuple[Problem, ...]


@dataclass(frozen=True)
class PairSet:
    """A pair set on disk. Only the manifest is in memory, so it pickles into reader processes."""

    root: Path
    name: str
    pairing: Pairing
    pairs: tuple[Pair, ...]
    sounds: tuple[Sound, ...]
    provenance: dict[str, Any]

    @classmethod
    def open(cls, root: Path | str) -> "PairSet":
        """Read and validate the manifest of a finished pair set."""
        root = Path(root)
        head = manifest.read_head(root)
        pairs = tuple(manifest.read_rows(root / PAIRS, Pair))
        pooled = (root / SOUNDS).exists()
        sounds = tuple(manifest.read_rows(root / SOUNDS, Sound)) if pooled else ()
        counts = manifest.counts(pairs, sounds)
        if head.counts != counts:
            raise SoundspotError(f"{root} is damaged: {HEAD} counts {head.counts}, not {counts}")
        manifest.check_pairing(root, head.pairing, pairs, sounds)
        return cls(root, head.name, head.pairing, pairs, sounds, head.provenance)

    def splits(self) -> tuple[str, ...]:
        """The splits that have pairs, in the order of SPLITS."""
        present = {pair.split for pair in self.pairs}
        return tuple(split for split in SPLITS if split in present)

    def select(self, split: str) -> list[Pair]:
        """The pairs of a split, in the manifest's order."""
        if split not in self.splits():
            raise SoundspotError(f"{self.root}: split {split!r}: {nearest(split, self.splits())}")
        return [pair for pair in self.pairs if pair.split == split]

    def frame(self, frame: Pair | str) -> NDArray[np.uint8]:
        """The frame of a pair or of a file name: (256, 256, 3) RGB."""
        name = frame if isinstance(frame, str) else frame.frame
        return decode_frame(self.read(name), name)

    def film(self, frame: str) -> Film | None:
        """The film around a frame, by the frame's file name; None if there is none."""
        try:
            return decode_film(self.read(film_name(frame)))
        except ItemError:
            return None

    def waveform(self, sound: Pair | Sound | str) -> NDArray[np.float32]:
        """The sound of a pair, of the pool or of a file name: (48000,) at 16 kHz."""
        name = sound if isinstance(sound, str) else sound.audio
        if name is None:
            raise SoundspotError(f"pair {cast(Pair, sound).id!r} has no sound of its own: draw one")
        return decode_sound(self.read(name), name)

    def read(self, name: str) -> bytes:
        """The bytes of a media file, from the folder or from its shard."""
        # Opened for every read, so that forked readers do not share a handle.
        path, offset, size = self.shards.members.get(name, (self.root / name, 0, -1))
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(size)
        except FileNotFoundError as error:
            reason = f"is not in {self.root}"
            reason += "".join(f"; {shard} {why}" for _, shard, why in self.shards.damaged)
            raise ItemError(Problem("missing", name, reason)) from error
        except OSError as error:
            reason = f"cannot be read from {path} ({error.strerror})"
            raise ItemError(Problem("unreadable", name, reason)) from error

    def fingerprint(self) -> str:
        """The sha256 of the manifest: changes whenever pairs, paths or provenance change."""
        digest = hashlib.sha256()
        for name in (HEAD, PAIRS, SOUNDS):
            path = self.root / name
            if path.exists():
                data = path.read_bytes()
                digest.update(f"{name} {len(data)}\n".encode())
                digest.update(data)
        return digest.hexdigest()

    @cached_property
    def shards(self) -> ShardIndex:
        """The members of the tar shards, if there are any."""
        members, damaged = {}, []
        for path in sorted(self.root.glob("shard-*.tar")):
            try:
                with tarfile.open(path, "r:") as tar:
                    for member in tar:
                        if member.isfile():
                            members[member.name] = (path, member.offset_data, member.size)
            except (tarfile.TarError, OSError) as error:
                # Members before the damage are still good; `find_problems` reports the shard.
                damaged.append(Problem("unreadable", path.name, f"is damaged ({error})"))
        return ShardIndex(members, tuple(damaged))


def draw_sounds(pairset: PairSet, split: str, epoch: int, seed: int) -> list[Sound]:
    """The sound of each pair of a split in one epoch, in the order of `select`.

    A pair with a fixed sound keeps it. For the others a sound of the same class and split is drawn
    from the pool. The i-th draw depends on (seed, epoch, i) alone, so every process gets the same
    list.
    """
    pool = manifest.by_split_and_class(pairset.sounds)
    pairs = pairset.select(split)
    draws = np.random.default_rng([seed, epoch]).random(len(pairs))
    sounds = []
    for pair, draw in zip(pairs, draws, strict=True):
        if pair.audio is not None:
            sounds.append(
                Sound(pair.id, pair.audio, split, pair.cls or "", pair.source, pair.licence)
            )
        else:
            choices = pool[split, pair.cls]
            sounds.append(choices[int(draw * len(choices))])
    return sounds


def film_name(frame: str) -> str:
    """The file of the film around a stored frame."""
    return f"films/{PurePosixPath(frame).stem}.png"


def decode_frame(data: bytes, name: str) -> NDArray[np.uint8]:
    """Decode a stored frame, which must be 256 x 256 RGB."""
    try:
        with images.recognize(io.BytesIO(data)) as image:
            size, mode = image.size, image.mode
            pixels = np.array(image) if size == (FRAME_SIZE, FRAME_SIZE) else None
    except Exception as error:  # Pillow reports a broken file as almost anything
        raise ItemError(
            Problem("unreadable", name, f"is not a readable image ({error})")
        ) from error
    if pixels is None or mode != "RGB":
        reason = f"must be {FRAME_SIZE}x{FRAME_SIZE} RGB, not {size[0]}x{size[1]} {mode}"
        raise ItemError(Problem("size", name, reason))
    return pixels


def decode_sound(data: bytes, name: str) -> NDArray[np.float32]:
    """Decode a stored sound, which must be 3 s of mono at 16 kHz."""
    try:
        with av.open(io.BytesIO(data), mode="r", format="flac") as container:
            stream = container.streams.audio[0]
            rate, channels = stream.rate, stream.channels
            blocks = list(container.decode(stream))
    except av.FFmpegError as error:
        raise ItemError(Problem("unreadable", name, f"is not a readable FLAC ({error})")) from error
    if not blocks:
        raise ItemError(Problem("unreadable", name, "is not a readable FLAC (it has no samples)"))
    samples = sum(block.samples for block in blocks)
    if (rate, channels, samples) != (SAMPLE_RATE, 1, SOUND_SAMPLES):
        reason = (
            f"must be {SOUND_SAMPLES} mono samples at {SAMPLE_RATE} Hz, "
            f"not {samples} samples of {channels} channel(s) at {rate} Hz"
        )
        raise ItemError(Problem("size", name, reason))
    integers = np.concatenate([block.to_ndarray()[0] for block in blocks])
    full_scale = np.float32(np.iinfo(integers.dtype).max + 1.0)
    waveform: NDArray[np.float32] = integers.astype(np.float32) / full_scale
    return waveform


def find_problems(pairset: PairSet) -> Iterator[Problem]:
    """Yield everything that is wrong with a pair set, reading every file once.

    Missing, unreadable, wrong-size and silent media, boxes without area, leaks (the same frame or
    sound in two splits), and media that changed since the manifest was written. A duet split
    belongs to the split it is made from.
    """
    yield from pairset.shards.damaged
    for pair in pairset.pairs:
        for box in (box for annotator in pair.boxes or () for box in annotator):
            if not (box[0] < box[2] and box[1] < box[3]):
                yield Problem("box", pair.id, f"has a box without area: {list(box)}")
    for pair in pairset.pairs:
        if pair.id in manifest.held_out() and pair.split in ("train", "val"):
            yield Problem("leak", pair.id, f"is a benchmark's test clip, but in {pair.split}")
    frames: dict[str, set[str]] = defaultdict(set)
    sounds: dict[str, set[str]] = defaultdict(set)
    rows: list[Pair | Sound] = [*pairset.pairs, *pairset.sounds]
    for item in rows:
        family = item.split.removeprefix("duets-")
        if isinstance(item, Pair):
            frames[item.frame].add(family)
        if item.audio is not None:
            sounds[item.audio].add(family)
    digests: dict[str, bytes] = {}
    yield from _check_media(pairset, frames, "frames", digests)
    yield from _check_media(pairset, sounds, "sounds", digests)
    for pair in pairset.pairs:
        frame, sound = digests.get(pair.frame), digests.get(pair.audio or "")
        if pair.digest and frame and sound and media_digest(frame, sound) != pair.digest:
            yield Problem("changed", pair.id, "has changed since it was prepared")


def _check_media(
    pairset: PairSet,
    splits: Mapping[str, set[str]],
    what: Literal["frames", "sounds"],
    digests: dict[str, bytes],
) -> Iterator[Problem]:
    same: dict[bytes, list[str]] = defaultdict(list)
    for name in progress(splits, f"checking {what}"):
        try:
            data = pairset.read(name)
            digests[name] = hashlib.sha256(data).digest()
            same[digests[name]].append(name)
            if what == "frames":
                decode_frame(data, name)
            elif is_silent(decode_sound(data, name)):
                yield Problem("silent", name, "is silent")
        except ItemError as error:
            yield error.problem
    for names in same.values():
        families = {family for name in names for family in splits[name]}
        if len(families) > 1:
            uses = ", ".join(f"{name} ({' and '.join(sorted(splits[name]))})" for name in names)
            yield Problem("leak", names[0], f"is in more than one split: {uses}")
