"""ESC-VOC made harder -> a pair set: val and test pairs, as they are and degraded in five ways.

A seed draws the pairs and everything random about them. Every pair appears once for each kind, its
id begins with the kind, and its boxes follow the picture.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
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
KINDS = ("clean", "half-size", "blur", "turn", "noise", "speech")

Frame = NDArray[np.uint8]
Wave = NDArray[np.float32]


def prepare(source: Path, out: Path, speech: Wave) -> Summary:
    """Degrade pairs of the prepared ESC-VOC, by at least 3 s of speech among others."""
    pairs = PairSet.open(source)
    rules = {"corpus": "escvoc-hard", "seed": SEED, "pairs": PAIRS, "blur": BLUR, "snr_db": 0}
    writer = PairWriter(out, "escvoc-hard", "class", rules | {"source": pairs.fingerprint()})
    made: list[Pair] = []
    with writer.locked():
        chosen = [
            (number, pair) for split in ("val", "test") for number, pair in draw(pairs, split)
        ]
        for number, pair in progress(chosen, "degrading pairs"):
            made += [_spoil(writer, pairs, pair, kind, number, speech) for kind in KINDS]
        return writer.finish(made, [], [LedgerEntry(pair.id, "done") for pair in made])


def draw(pairs: PairSet, split: str) -> list[tuple[int, Pair]]:
    """Pairs of a split by the seed, with the seeds of what is random about each."""
    if split not in pairs.splits():
        return []
    rows = pairs.select(split)
    order = np.random.default_rng(SEED).permutation(len(rows))[:PAIRS]
    return [(int(k), rows[k]) for k in sorted(order)]


def _spoil(
    writer: PairWriter, pairs: PairSet, pair: Pair, kind: str, number: int, speech: Wave
) -> Pair:
    if pair.audio is None or pair.boxes is None:
        raise SoundspotError(f"pair {pair.id!r} of {pairs.root} has no sound or no boxes")
    key = f"{kind}-{pair.id}"
    rng = np.random.default_rng([SEED, number])
    frame, boxes = f"frames/{pair.id}.jpg", pair.boxes
    audio = f"sounds/{Path(pair.audio).stem}.flac"
    if kind in PICTURES:
        corner = tuple(int(v) for v in rng.integers(FRAME_SIZE // 2 + 1, size=2))
        change, move = PICTURES[kind]
        frame = writer.add_frame(key, lambda: change(pairs.frame(pair), corner))
        boxes = tuple(tuple(move(box, corner) for box in annotator) for annotator in boxes)
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


def half_size(frame: Frame, corner: tuple[int, ...]) -> Frame:
    """The picture at half its size, somewhere on a plain ground of its mean color."""
    small = Image.fromarray(frame).resize((FRAME_SIZE // 2,) * 2, Image.Resampling.BOX)
    ground = np.empty_like(frame)
    ground[:] = frame.mean(axis=(0, 1)).round()
    x, y = corner
    ground[y : y + FRAME_SIZE // 2, x : x + FRAME_SIZE // 2] = np.asarray(small)
    return ground


def _halved(box: Box, corner: tuple[int, ...]) -> Box:
    x, y = (place / FRAME_SIZE for place in corner)
    return x + box[0] / 2, y + box[1] / 2, x + box[2] / 2, y + box[3] / 2


def blurred(frame: Frame, corner: tuple[int, ...]) -> Frame:
    """The picture out of focus."""
    return np.asarray(Image.fromarray(frame).filter(ImageFilter.GaussianBlur(BLUR)))


def turned(frame: Frame, corner: tuple[int, ...]) -> Frame:
    """The picture turned by 90 degrees, counter-clockwise."""
    return np.rot90(frame).copy()


def _turned(box: Box, corner: tuple[int, ...]) -> Box:
    x1, y1, x2, y2 = box
    return y1, 1 - x2, y2, 1 - x1


def _same(box: Box, corner: tuple[int, ...]) -> Box:
    return box


Change = Callable[[Frame, tuple[int, ...]], Frame]
Move = Callable[[Box, tuple[int, ...]], Box]
PICTURES: dict[str, tuple[Change, Move]] = {
    "half-size": (half_size, _halved),
    "blur": (blurred, _same),
    "turn": (turned, _turned),
}
