"""escvoc_mix.py: both sounds at once, a silent third thing, and boxes that follow."""

from pathlib import Path

import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.data.corpora.escvoc_mix import prepare, stacked
from soundspot.data.manifest import Pair
from soundspot.data.pair_set import PairSet
from soundspot.data.writer import PairWriter
from soundspot.evaluation.benchmarks import find_benchmark, find_scenes

LOW, HIGH = (np.sin(np.arange(48_000) / k).astype(np.float32) / 4 for k in (31, 5))


def duets(root: Path) -> Path:
    """Two duets of a dog and a cat; a cow stands beside each of them in a third."""
    writer, pairs = PairWriter(root, "escvoc", "class", {}), []
    with writer.locked():
        low, high = writer.add_sound("low", lambda: LOW), writer.add_sound("high", lambda: HIGH)
        for shade, cls in enumerate(("dog", "cat", "cow")):
            pixels = np.full((256, 256, 3), 100 * shade, np.uint8)
            frame = writer.add_frame(cls, lambda pixels=pixels: pixels)
            pairs.append(Pair(cls, frame, low, "val", cls, (((0.0, 0.0, 1.0, 1.0),),), source=cls))
        for number, both in enumerate(("dog cat", "cat dog", "dog cow", "cow cat")):
            for side, cls, sound in zip((0, 1), both.split(), (low, high), strict=True):
                box = (side / 2, 0.5, side / 2 + 0.5, 1.0)
                name, group = f"d{number}-{side}", f"d{number}"
                args = name, f"frames/{cls}.jpg", sound, "duets-val", cls, ((box,),)
                pairs.append(Pair(*args, group=group, source=cls))
        writer.finish(pairs, [], [])
    return root


def test_both_sounds_are_heard_and_every_other_picture_has_a_third_thing(tmp_path: Path):
    made = prepare(duets(tmp_path / "escvoc"), tmp_path / "mix").pairset
    pairs = made.select("val")
    assert [pair.id.partition("-")[0] for pair in pairs] == ["two"] * 2 + ["three"] * 2 + (
        ["two"] * 2 + ["three"] * 2
    )
    for left, right in zip(pairs[::2], pairs[1::2], strict=True):
        assert (left.frame, left.audio, left.group) == (right.frame, right.audio, right.group)
        heard = made.waveform(left.audio)
        for alone in (LOW, HIGH):
            assert np.corrcoef(heard, alone)[0, 1] == pytest.approx(2**-0.5, abs=0.02)
    ((box,),) = pairs[2].boxes  # the cow is silent, above or below
    assert box[1] in (0.25, 0.75) and box[3] == box[1] + 0.25 and box[2] == 0.5
    frame = made.frame(pairs[2])
    silent = frame[:128] if box[1] > 0.5 else frame[128:]
    assert abs(silent.mean() - 200) < 3 and abs(frame.mean() - 150) < 60
    again = prepare(tmp_path / "escvoc", tmp_path / "again").pairset
    assert again.fingerprint() == made.fingerprint()


def test_the_silent_thing_takes_the_other_half():
    duet, silent = np.zeros((256, 256, 3), np.uint8), np.full((256, 256, 3), 9, np.uint8)
    assert stacked(duet, None, True) is duet
    lower, upper = stacked(duet, silent, True), stacked(duet, silent, False)
    assert (lower[:128] == 9).all() and (lower[128:] == 0).all()
    assert (upper[128:] == 9).all() and (upper[:128] == 0).all()


def test_a_set_without_duets_has_no_mixtures(tmp_path: Path):
    made = prepare(duets(tmp_path / "escvoc"), tmp_path / "mix").pairset
    with pytest.raises(SoundspotError):
        prepare(made.root, tmp_path / "again")
    mixed = find_benchmark("escvoc-mix-val")
    assert len(find_scenes(mixed, made, None)[0]) == 8
    with pytest.raises(SoundspotError):
        find_scenes(mixed, PairSet.open(tmp_path / "escvoc"), None)
