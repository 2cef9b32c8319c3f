"""Duets of ESC-VOC with both sounds at once -> a pair set: who sounds where in a mixture?

Every duet is a picture of two things with both of their sounds, mixed at 0 dB. In every other one
the two share the frame with a third thing that is silent, so that the picture alone cannot tell
what sounds. Both pairs of a picture have the same frame and sound, and each has its own boxes.
"""

from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from soundspot.common.errors import SoundspotError
from soundspot.common.progress import progress
from soundspot.data.corpora.escvoc_hard import Frame, grounds_of
from soundspot.data.manifest import Box, Pair
from soundspot.data.pair_set import FRAME_SIZE, PairSet
from soundspot.data.writer import LedgerEntry, PairWriter, Summary
from soundspot.media.resizing import resize_frame
from soundspot.media.sound import mix

SEED = 0
HALF = FRAME_SIZE // 2


def prepare(source: Path, out: Path) -> Summary:
    """Mix the duets of the prepared ESC-VOC."""
    pairs = PairSet.open(source)
    if not {"duets-val", "duets-test"} & {*pairs.splits()}:
        raise SoundspotError(f"{source} has no duets: is it the pair set of ESC-VOC?")
    rules = {"corpus": "escvoc-mix", "seed": SEED, "source": pairs.fingerprint()}
    writer = PairWriter(out, "escvoc-mix", "class", rules)
    made: list[Pair] = []
    with writer.locked():
        for split in ("val", "test"):
            if f"duets-{split}" not in pairs.splits():
                continue
            grounds = grounds_of(pairs, split)
            duets = groupby(pairs.select(f"duets-{split}"), lambda pair: pair.group)
            for number, (_, both) in enumerate(progress(duets, f"mixing duets of {split}")):
                left, right = both
                free = sorted({*grounds[left.cls]} & {*grounds[right.cls]}) if number % 2 else []
                made += _mixed(writer, pairs, (left, right), free, number)
        return writer.finish(made, [], [LedgerEntry(pair.id, "done") for pair in made])


def _mixed(
    writer: PairWriter, pairs: PairSet, duet: tuple[Pair, Pair], free: list[str], number: int
) -> list[Pair]:
    """A duet under both sounds; with `free`, above or below one of these pictures."""
    left, right = duet
    if left.audio is None or right.audio is None:
        raise SoundspotError(f"pair {left.id!r} of {pairs.root} has no sound")
    key, rng = f"mix-{left.group}", np.random.default_rng([SEED, number])
    lower = bool(rng.integers(2))
    silent = pairs.frame(free[int(rng.integers(len(free)))]) if free else None
    waves = pairs.waveform(left), pairs.waveform(right)
    frame = writer.add_frame(key, lambda: stacked(pairs.frame(left), silent, lower))
    audio = writer.add_sound(key, partial(mix, *waves))
    split, kind = left.split.removeprefix("duets-"), "two" if silent is None else "three"
    return [
        replace(
            pair,
            id=f"{kind}-{pair.id}",
            frame=frame,
            audio=audio,
            split=split,
            group=key,
            boxes=tuple(
                tuple(box if silent is None else halved(box, lower) for box in boxes)
                for boxes in pair.boxes or ()
            ),
        )
        for pair in duet
    ]


def stacked(duet: Frame, silent: Frame | None, lower: bool) -> Frame:
    """A duet in the lower or upper half of the frame, and a silent thing in the other."""
    if silent is None:
        return duet
    halves = [resize_frame(part, HALF, FRAME_SIZE) for part in (duet, silent)]
    return np.concatenate(halves[::-1] if lower else halves)


def halved(box: Box, lower: bool) -> Box:
    """Where a box is after that."""
    x1, y1, x2, y2 = box
    return x1, y1 / 2 + lower / 2, x2, y2 / 2 + lower / 2
