"""anysound.py: a made copy of the benchmark's layout."""

import json
from pathlib import Path

import numpy as np
import pytest

from made_files import tone
from soundspot.common.errors import SoundspotError
from soundspot.data.corpora.anysound import prepare
from soundspot.media import clips as media


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    root = tmp_path / "anysound"
    images, sounds = [], []
    for cls, split, count in (("clock", "dev", 2), ("fire", "dev", 5), ("fire", "heldout", 1)):
        for k in range(count):
            name = f"{cls}_{split}_{k}.jpg"
            media.write_jpeg(_made(root / "images" / name), np.full((41, 59, 3), 40 * k, np.uint8))
            images.append(
                {"file": name, "cls": cls, "split": split, "width": 59, "height": 41,
                 "boxes": [[0.1, 0.2, 0.5, 0.6]], "source": "made", "orig": name, "licence": "CC0"}
            )  # fmt: skip
        for k in range(4 if cls == "clock" else 2):
            name = f"{cls}-{split}-{k}.flac"
            _made(root / "sounds" / name).write_bytes(media.flac_bytes(tone(300.0 + k, 4)))
            row = {"file": name, "cls": cls, "split": split, "licence": "CC0"}
            sounds.append(row | {"author": "me", "url": ""})
    (root / "images.json").write_text(json.dumps(images))
    (root / "sounds.json").write_text(json.dumps(sounds))
    return root


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_every_photograph_is_one_pair_with_a_sound_of_its_class(benchmark: Path, tmp_path: Path):
    pairs = prepare(benchmark, tmp_path / "pairs").pairset
    assert {split: len(pairs.select(split)) for split in pairs.splits()} == {"val": 7, "test": 1}
    by_id = {pair.id: pair for pair in pairs.pairs}
    assert by_id["clock_dev_1"].audio == "sounds/clock-dev-2.flac"
    assert [by_id[f"fire_dev_{k}"].audio[-6] for k in range(5)] == ["0", "0", "0", "1", "1"]
    assert by_id["fire_heldout_0"].boxes == (((0.1, 0.2, 0.5, 0.6),),)


def test_what_is_missing_is_told(benchmark: Path, tmp_path: Path):
    (benchmark / "images" / "fire_dev_3.jpg").unlink()
    summary = prepare(benchmark, tmp_path / "pairs")
    assert len(summary.pairset.select("val")) == 6
    assert any("fire_dev_3" in entry.item for entry in summary.losses)
    (benchmark / "sounds.json").write_text("[]")
    with pytest.raises(SoundspotError):
        prepare(benchmark, tmp_path / "more")
    with pytest.raises(SoundspotError):
        prepare(tmp_path / "nothing", tmp_path / "none")
