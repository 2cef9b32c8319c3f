"""escvoc_hard.py: what is degraded, how the boxes follow, and that a seed gives the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.data.corpora import escvoc_hard
from soundspot.data.corpora.escvoc_hard import changed, prepare
from soundspot.data.manifest import Pair
from soundspot.data.pair_set import PairSet
from soundspot.data.writer import PairWriter

SPEECH = np.sin(np.arange(64_000) / 11).astype(np.float32)
BOX = (0.25, 0.5, 0.5, 1.0)
GROUND = 90


def marked() -> np.ndarray:
    """A picture that is bright inside BOX."""
    frame = np.full((256, 256, 3), 40, np.uint8)
    frame[128:, 64:128] = 250
    return frame


def small_set(root: Path) -> Path:
    """Three dogs and a cat in each split; the cat, an even gray, stands beside a dog in a duet."""
    writer = PairWriter(root, "escvoc", "class", {})
    pairs = []
    with writer.locked():
        for split in ("val", "test"):
            for k, cls in enumerate(("dog", "dog", "dog", "cat")):
                name = f"{split}{k}"
                wave = (0.2 * np.sin(np.arange(48_000) / (5 + k))).astype(np.float32)
                shown = marked() if cls == "dog" else np.full((256, 256, 3), GROUND, np.uint8)
                frame = writer.add_frame(name, lambda shown=shown: shown)
                sound = writer.add_sound(name, lambda wave=wave: wave)
                made = Pair(name, frame, sound, split, cls, ((BOX,),), source=f"photograph {name}")
                pairs.append(made)
            for pair in pairs[-2:]:
                side = replace(pair, id=f"duet-{pair.id}", split=f"duets-{split}", group=split)
                pairs.append(side)
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
    monkeypatch.setattr(escvoc_hard, "PAIRS", 3)
    source = small_set(tmp_path / "escvoc")
    made = prepare(source, tmp_path / "hard", SPEECH).pairset
    assert len(made.select("test")) == len(made.select("val")) == 3 * len(escvoc_hard.KINDS)
    dogs = [pair for pair in made.select("test") if pair.cls == "dog"]
    for pair in dogs:
        inside, outside = inside_and_outside(made, pair)
        assert inside > outside + 80, pair.id
    by_kind = {pair.id.rsplit("-", 1)[0]: pair for pair in dogs}
    small = made.frame(by_kind["half-size"])
    assert abs(np.median(small[..., 0]) - GROUND) < 5, "on a photograph of another class"
    clean = made.waveform(by_kind["clean"])
    assert np.array_equal(made.waveform(by_kind["turn"]), clean)
    assert not np.array_equal(made.waveform(by_kind["noise"]), clean)
    again = prepare(source, tmp_path / "again", SPEECH).pairset
    assert again.fingerprint() == made.fingerprint()
    assert again.read(by_kind["noise"].audio) == made.read(by_kind["noise"].audio)


def test_pictures_by_hand() -> None:
    frame, ground = marked(), np.full((256, 256, 3), GROUND, np.uint8)
    turned = changed("turn", frame, ground, (0, 0))
    assert (turned[7, 200] == frame[200, 255 - 7]).all()
    assert (turned[160, 200] == 250).all()
    small = changed("half-size", frame, ground, (128, 64))
    assert (small[180, 170] == 250).all() and (small[:, :128] == GROUND).all()
    noise = np.random.default_rng(0).integers(0, 256, frame.shape, np.uint8)
    packed = changed("jpeg", noise, ground, (0, 0))
    assert packed.shape == noise.shape and packed.std() < 0.7 * noise.std()


def test_a_class_without_a_duet_is_named(tmp_path: Path) -> None:
    source = small_set(tmp_path / "escvoc")
    kept = [line for line in (source / "pairs.jsonl").read_text().split("\n") if "duet" not in line]
    (source / "pairs.jsonl").write_text("\n".join(kept))
    with pytest.raises(SoundspotError):
        prepare(source, tmp_path / "hard", SPEECH)
