"""boxed.py: clips with boxes, pictures with boxes by class, and lists that are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from soundspot.common.errors import SoundspotError
from soundspot.data.corpora.boxed import Sounds, prepare
from soundspot.media.clips import write_video
from tests.made_files import tone


def folder(root: Path, rows: Any) -> Path:
    root.mkdir()
    Image.fromarray(np.full((31, 37, 3), 90, np.uint8)).save(root / "still.png")
    frames = [np.full((48, 64, 3), 10 * k, np.uint8) for k in range(20)]
    write_video(root / "clip.mp4", frames, tone(440, 4.0), 5.0)
    (root / "clips.json").write_text(json.dumps(rows))
    return root


def test_a_clip_becomes_a_pair_with_its_film(tmp_path: Path) -> None:
    rows = [
        {"file": "clip.mp4", "at": 2.0, "boxes": [[0, 0.25, 0.5, 1]], "kind": "tool"},
        {"file": "clip.mp4", "boxes": [], "visible": False},
    ]
    pairs = prepare(folder(tmp_path / "in", rows[:1]), tmp_path / "out").pairset
    (pair,) = pairs.select("val")
    assert pair.boxes == (((0.0, 0.25, 0.5, 1.0),),) and pair.cls == "tool"
    film = pairs.film(pair.frame)
    assert film is not None and film.shape[1:] == (64, 64)
    assert film[0].mean() < film[-1].mean()  # the pictures grow brighter
    pairs = prepare(folder(tmp_path / "in2", rows[1:]), tmp_path / "out2", split="test").pairset
    (pair,) = pairs.select("test")
    assert pair.boxes == () and pair.cls is None


def test_boxes_by_class_take_the_sounds_of_a_pair_set_in_turn(tmp_path, tiny_pairs):
    classes = sorted({pair.cls for pair in tiny_pairs.select("val") if pair.cls})
    boxes = {cls: [[0, 0, 0.5, 0.5]] for cls in classes}
    source = folder(tmp_path / "in", [{"file": "still.png", "boxes": boxes}])
    with pytest.raises(SoundspotError):
        prepare(source, tmp_path / "none")
    pairs = prepare(source, tmp_path / "out", Sounds(tiny_pairs, "val")).pairset
    made = pairs.select("val")
    assert [pair.cls for pair in made] == classes
    assert len({pair.frame for pair in made}) == 1 and pairs.film(made[0].frame) is None
    assert {pair.group for pair in made} == ({"still"} if len(classes) > 1 else {None})


@pytest.mark.parametrize(
    "rows",
    [
        {},
        [{"file": "clip.mp4"}],
        [{"file": "clip.mp4", "boxes": [[0, 0, 2, 1]]}],
        [{"file": "clip.mp4", "boxes": [], "visible": True}],
        [{"file": "clip.mp4", "boxes": [], "at": "noon"}],
        [{"file": "absent.mp4", "boxes": []}],
    ],
)
def test_a_bad_list_is_refused(tmp_path: Path, rows: Any) -> None:
    with pytest.raises(SoundspotError):
        prepare(folder(tmp_path / "in", rows), tmp_path / "out")
