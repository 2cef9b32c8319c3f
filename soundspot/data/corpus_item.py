"""One item of a corpus -> the bytes of its frame and its sound, or the reason why not.

`prepare_item` writes nothing and needs nothing but the item's files, so it runs in any process of
any machine that sees them.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from soundspot.common.errors import MediaError
from soundspot.data.ledger import Status, status_of
from soundspot.data.manifest import Box, media_digest
from soundspot.data.pair_set import FRAME_SIZE, ItemError, decode_frame, decode_sound
from soundspot.media import clips as media
from soundspot.media.file_types import PICTURES
from soundspot.media.resizing import resize_frame

Files = tuple[str, ...]


@dataclass(frozen=True)
class CorpusItem:
    """One clip that a corpus should contain.

    Attributes:
        name: Its name in the ledger.
        id: The id of the pair, from which its files are named.
        split: The split of the pair.
        choices: Where its media may be, best first: (video,), (picture, sound) or (video, separate
            sound), relative to the corpus.
        spares: Further files of the same id; those that are not used are reported as duplicates.
        at: Second of the frame; None for the middle.
        cls: The class, if known.
        boxes: The annotated truth, if any.
        absent: Status and reason, if it is already clear that there is nothing to read. The words
            enter the digest of a tar shard: to change them is to make such shards again.
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

    Attributes:
        status: "done" if there is a frame and a sound.
        reason: Why not, or what was wrong with better choices.
        used: The files it was made from.
        digest: Of frame and sound, see `manifest.media_digest`.
        frame: JPEG; empty if an earlier run has stored it.
        sound: FLAC; empty if an earlier run has stored it.
    """

    status: Status
    reason: str = ""
    used: Files = ()
    digest: str = ""
    frame: bytes = b""
    sound: bytes = b""


def prepare_item(item: CorpusItem, source: Path, stored: Path | None = None) -> Outcome:
    """Read an item's frame and the 3 s around it, from the first choice that has both.

    `source` is the corpus's folder, `stored` a pair set that may contain the item already.
    """
    if item.absent is not None:
        return Outcome(*item.absent)
    # With several choices, the stored files do not tell which one they came from.
    if stored and len(item.choices) == 1 and (digest := _stored_digest(stored, item.id)):
        return Outcome("done", used=item.choices[0], digest=digest)
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
        except MediaError as error:
            faults.append((status_of(error), str(error).replace(f"{source}{os.sep}", "")))
            continue
        except Exception as error:  # among millions of files, some break a decoder in new ways
            faults.append(("unreadable", f"{files[0]} cannot be read ({error!r})"))
            continue
        frame = media.jpeg_bytes(resize_frame(clip.frame, FRAME_SIZE, FRAME_SIZE))
        sound = media.flac_bytes(clip.waveform)
        return Outcome("done", _join(faults), files, _digest(frame, sound), frame, sound)
    return Outcome(faults[0][0], _join(faults))


def _join(faults: list[tuple[Status, str]]) -> str:
    return " ".join(dict.fromkeys(reason for _, reason in faults))


def _stored_digest(root: Path, id: str) -> str:
    """The digest of the files that an earlier run stored; empty unless both exist and decode."""
    frame, sound = f"frames/{id}.jpg", f"sounds/{id}.flac"
    try:
        picture, waveform = (root / frame).read_bytes(), (root / sound).read_bytes()
        decode_frame(picture, frame)
        decode_sound(waveform, sound)
    except (OSError, ItemError):
        return ""
    return _digest(picture, waveform)


def _digest(frame: bytes, sound: bytes) -> str:
    return media_digest(hashlib.sha256(frame).digest(), hashlib.sha256(sound).digest())
