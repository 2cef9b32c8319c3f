"""escvoc_hard.py: what is degraded, how the boxes follow, and that a seed gives the same."""

from pathlib import Path

import numpy as np

from soundspot.data.corpora import escvoc_hard
from soundspot.data.corpora.escvoc_hard import half_size, prepare, turned
from soundspot.data.manifest import Pair
from soundspot.data.pair_set import PairSet
from soundspot.data.writer import PairWriter

SPEECH = np.sin(np.arange(64_000) / 11).astype(np.float32)
BOX = (0.25, 0.5, 0.5, 1.0)


def marked() -> np.ndarray:
    """A picture that is bright inside BOX."""
    frame = np.full((256, 256, 3), 40, np.uint8)
    frame[128:, 64:128] = 250
    return frame


def small_set(root: Path) -> Path:
    writer = PairWriter(root, "escvoc", "class", {})
    pairs = []
    with writer.locked():
        for split in ("val", "test"):
            for k in range(3):
                name = f"{split}{k}"
                wave = (0.2 * np.sin(np.arange(48_000) / (5 + k))).astype(np.float32)
                frame = writer.add_frame(name, marked)
                sound = writer.add_sound(name, lambda wave=wave: wave)
                pairs.append(Pair(name, frame, sound, split, "dog", ((BOX,),)))
        writer.finish(pairs, [], [])
    return root


def inside_and_outside(pairs: PairSet, pair: Pair) -> tuple[float, float]:
    frame = pairs.frame(pair).mean(axis=2)
    ((box,),) = pair.boxes
    x1, y1, x2, y2 = (round(256 * v) for v in box)
    mask = np.zeros(frame.shape, bool)
    mask[y1 + 3 : y2 - 3, x1 + 3 : x2 - 3] = True
    return frame[mask].mean(), frame[~mask].mean()


def test_every_drawn_pair_is_spoilt_in_every_way(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(escvoc_hard, "PAIRS", 2)
    source = small_set(tmp_path / "escvoc")
    made = prepare(source, tmp_path / "hard", SPEECH).pairset
    assert len(made.select("test")) == len(made.select("val")) == 2 * len(escvoc_hard.KINDS)
    for pair in made.select("test"):
        inside, outside = inside_and_outside(made, pair)
        assert inside > outside + 80, pair.id
    by_kind = {pair.id.rsplit("-", 1)[0]: pair for pair in made.select("test")}
    clean = made.waveform(by_kind["clean"])
    assert np.array_equal(made.waveform(by_kind["turn"]), clean)
    assert not np.array_equal(made.waveform(by_kind["noise"]), clean)
    again = prepare(source, tmp_path / "again", SPEECH).pairset
    assert again.fingerprint() == made.fingerprint()
    assert again.read(by_kind["noise"].audio) == made.read(by_kind["noise"].audio)


def test_pictures_by_hand() -> None:
    frame = marked()
    assert (turned(frame, ())[7, 200] == frame[200, 255 - 7]).all()
    assert (turned(frame, ())[160, 200] == 250).all()
    small = half_size(frame, (128, 128))
    assert (small[250, 170] == 250).all() and (small[:100] == small[0, 0]).all()
