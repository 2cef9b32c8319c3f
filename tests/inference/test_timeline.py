import csv
import json
from pathlib import Path

import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.inference.result import Localization
from soundspot.inference.timeline import write_timeline


def at(span: tuple[float, float], row: int, column: int, threshold: float = 0.5) -> Localization:
    s = np.zeros((10, 10), np.float32)
    s[row, column] = 1
    return Localization(s, [("Dog", 0.9)], "m", threshold=threshold, span=span, size=(100, 200))


FOUND = [at((0.5, 61.25), 1, 1), at((3600.0, 3601.5), 8, 8), at((3602.0, 3603.0), 5, 5, 2.0)]


def test_captions_stand_beside_what_sounds(tmp_path: Path):
    write_timeline(tmp_path / "t.vtt", FOUND)
    head, *cues = (tmp_path / "t.vtt").read_text().strip().split("\n\n")
    assert head == "WEBVTT" and len(cues) == 3
    times, text = cues[0].split("\n")
    assert times.startswith("00:00:00.500 --> 00:01:01.250 ") and "Dog" in text
    x1, _, _, y2 = FOUND[0].box
    assert f"position:{x1 // 2}%,line-left align:start line:{y2}%" in times  # 200 wide, 100 high
    assert "line-right align:end" in cues[1] and cues[1].startswith("01:00:00.000")
    line = int(cues[1].split("line:")[1].split("%")[0])
    assert line < FOUND[1].box[1], "no room below it"
    assert "line:" not in cues[2], "nothing in the picture sounds"


def test_the_other_formats_say_the_same(tmp_path: Path):
    for name in ("t.srt", "t.csv", "t.json"):
        write_timeline(tmp_path / name, FOUND)
    assert (tmp_path / "t.srt").read_text().startswith("1\n00:00:00,500 --> 00:01:01,250\nDog")
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert [row["start"] for row in rows] == ["0.50", "3600.00", "3602.00"]
    assert [row["visible"] for row in rows] == ["visible", "visible", "not visible"]
    assert int(rows[0]["x2"]) == FOUND[0].box[2] and rows[2]["x1"] == ""
    stored = json.loads((tmp_path / "t.json").read_text())
    assert [one["span"] for one in stored] == [list(one.span) for one in FOUND]


def test_another_ending_is_refused(tmp_path: Path):
    with pytest.raises(SoundspotError):
        write_timeline(tmp_path / "t.txt", FOUND)
