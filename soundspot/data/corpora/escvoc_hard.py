"""ESC-VOC made harder -> a pair set: val and test pairs, as they are and degraded in six ways.

A seed draws the pairs and everything random about them. Every pair appears once for each kind, its
id begins with the kind, and its boxes follow the picture.
"""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from soundspot.common.errors import SoundspotError
from soundspot.common.progress import progress
from soundspot.data.manifest import Box, Pair
from soundspot.data.pair_set import FRAME_SIZE, PairSet
from soundspot.data.writer import LedgerEntry, PairWriter, Summary
from soundspot.media.sound import mix

PAIRS = 154  # of each split
SEED = 0
BLUR = 4  # pixels, of 256
QUALITY = 5  # of the kind jpeg
PICTURES = ("half-size", "blur", "turn", "jpeg")
KINDS = ("clean", *PICTURES, "noise", "speech")
HALF = FRAME_SIZE // 2

Frame = NDArray[np.uint8]
Wave = NDArray[np.float32]
Corner = tuple[int, int]


def prepare(source: Path, out: Path, speech: Wave) -> Summary:
    """Degrade pairs of the prepared ESC-VOC, by at least 3 s of speech among others."""
    pairs = PairSet.open(source)
    rules = {"corpus": "escvoc-hard", "seed": SEED, "pairs": PAIRS, "blur": BLUR, "jpeg": QUALITY}
    writer = PairWriter(out, "escvoc-hard", "class", rules | {"source": pairs.fingerprint()})
    made: list[Pair] = []
    with writer.locked():
        for split in ("val", "test"):
            grounds = grounds_of(pairs, split)
            for number, pair in progress(draw(pairs, split), f"degrading pairs of {split}"):
                if not (choice := grounds[pair.cls]):
                    raise SoundspotError(f"half size needs a duet of {pairs.root} with {pair.cls}")
                drawn, ground = (number, pair), choice[number % len(choice)]
                made += [_spoil(writer, pairs, drawn, ground, kind, speech) for kind in KINDS]
        return writer.finish(made, [], [LedgerEntry(pair.id, "done") for pair in made])


def draw(pairs: PairSet, split: str) -> list[tuple[int, Pair]]:
    """Pairs of a split by the seed, with the seeds of what is random about each."""
    if split not in pairs.splits():
        return []
    rows = pairs.select(split)
    order = np.random.default_rng(SEED).permutation(len(rows))[:PAIRS]
    return [(int(k), rows[k]) for k in sorted(order)]


def grounds_of(pairs: PairSet, split: str) -> dict[str | None, list[str]]:
    """Class -> frames of a split that show nothing of it: what stands beside it in the duets."""
    duets, grounds = defaultdict(list), defaultdict(list)
    frames = {}
    for pair in pairs.pairs:
        if pair.split == f"duets-{split}":
            duets[pair.group].append(pair)
        elif pair.split == split:
            frames[pair.source] = pair.frame
    for one, other in duets.values():
        grounds[one.cls].append(frames[other.source])
        grounds[other.cls].append(frames[one.source])
    return grounds


def _spoil(
    writer: PairWriter,
    pairs: PairSet,
    drawn: tuple[int, Pair],
    ground: str,
    kind: str,
    speech: Wave,
) -> Pair:
    number, pair = drawn
    if pair.audio is None or pair.boxes is None:
        raise SoundspotError(f"pair {pair.id!r} of {pairs.root} has no sound or no boxes")
    key = f"{kind}-{pair.id}"
    rng = np.random.default_rng([SEED, number])
    frame, boxes = f"frames/{pair.id}.jpg", pair.boxes
    audio = f"sounds/{Path(pair.audio).stem}.flac"
    if kind in PICTURES:
        x, y = (int(v) for v in rng.integers(HALF + 1, size=2))
        corner = x, y
        frame = writer.add_frame(
            key, lambda: changed(kind, pairs.frame(pair), pairs.frame(ground), corner)
        )
        boxes = tuple(tuple(moved(kind, box, corner) for box in some) for some in boxes)
    elif not (writer.root / frame).exists():
        writer.store(frame, pairs.read(pair.frame))
    if kind in ("noise", "speech"):
        heard = pairs.waveform(pair)
        other = rng.standard_normal(len(heard)) if kind == "noise" else _window(speech, heard, rng)
        audio = writer.add_sound(key, partial(mix, heard, np.asarray(other, np.float32)))
    elif not (writer.root / audio).exists():
        writer.store(audio, pairs.read(pair.audio))
    return replace(pair, id=key, frame=frame, audio=audio, boxes=boxes)


def _window(speech: Wave, heard: Wave, rng: np.random.Generator) -> Wave:
    start = int(rng.integers(len(speech) - len(heard) + 1))
    return speech[start : start + len(heard)]


def changed(kind: str, frame: Frame, ground: Frame, corner: Corner) -> Frame:
    """The picture blurred, turned counter-clockwise, badly packed, or small on another."""
    picture = Image.fromarray(frame)
    match kind:
        case "blur":
            picture = picture.filter(ImageFilter.GaussianBlur(BLUR))
        case "turn":
            picture = picture.transpose(Image.Transpose.ROTATE_90)
        case "jpeg":
            packed = BytesIO()
            picture.save(packed, "JPEG", quality=QUALITY)
            picture = Image.open(packed)
        case _:
            small, picture = (
                picture.resize((HALF, HALF), Image.Resampling.BOX),
                Image.fromarray(ground),
            )
            picture.paste(small, corner)
    return np.asarray(picture)


def moved(kind: str, box: Box, corner: Corner) -> Box:
    """Where a box is after that."""
    x1, y1, x2, y2 = box
    if kind == "turn":
        return y1, 1 - x2, y2, 1 - x1
    if kind == "half-size":
        x, y = (place / FRAME_SIZE for place in corner)
        return x + x1 / 2, y + y1 / 2, x + x2 / 2, y + y2 / 2
    return box
