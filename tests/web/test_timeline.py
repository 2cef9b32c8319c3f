"""The timeline: the waveform, the events, the marks."""

import re
from pathlib import Path

import numpy as np
from soundspot.inference.named_events import NamedEvent

from soundspot.media import clips as media
from soundspot.web.timeline import (
    COLUMNS,
    LANES,
    Timeline,
    read_columns,
    read_timeline,
    timeline_html,
)
from web_media import quick_model

WAVE = np.array([[-0.5, 0.5], [0, 0]], np.float32)


def test_the_waveform_shows_where_it_is_loud(tmp_path: Path):
    sound = np.zeros(48_000, np.float32)
    sound[24_000:] = np.tile(np.array([-0.25, 0.5], np.float32), 12_000)
    media.write_flac(tmp_path / "s.flac", sound)
    columns = read_columns(tmp_path / "s.flac", 3.0)
    assert columns.shape == (COLUMNS, 2)
    np.testing.assert_allclose(columns[: COLUMNS // 2], 0)
    np.testing.assert_allclose(columns[COLUMNS // 2 :], [[-0.25, 0.5]] * 120, atol=1e-4)


def test_a_sound_is_read_with_its_events(tmp_path: Path):
    noise = np.random.default_rng(0).normal(0, 0.2, 24_000)
    tone = 0.2 * np.sin(2 * np.pi * 300 * np.arange(24_000) / 16_000)
    media.write_flac(tmp_path / "s.flac", np.concatenate([noise, tone]).astype(np.float32))
    steps = []
    timeline = read_timeline(
        tmp_path / "s.flac", 3.0, quick_model("m"), lambda share, words: steps.append(share)
    )
    assert [event.name for event in timeline.events] == ["Dog", "Vehicle horn"]
    assert timeline.events[0].end == timeline.events[1].start == 1.5
    assert steps == sorted(steps) and steps[-1] < 1


def test_the_timeline_marks_what_is_heard():
    html = timeline_html(Timeline(12.0, WAVE, ()), 6.0)
    assert 'class="heard" style="left:37.50%;width:25.00%"' in html  # 4.5 to 7.5 s of 12
    assert 'class="moment" style="left:50.00%"' in html and "M0.0 0.0h500.0v64.0" in html
    assert 'aria-valuenow="6.00"' in html and "<audio" not in html
    short = timeline_html(Timeline(2.0, WAVE, ()), 1.0, 'a"b.flac')
    assert 'class="heard" style="left:0.00%;width:100.00%"' in short
    assert 'src="a&quot;b.flac"' in short


def test_names_that_would_overlap_get_rows_of_their_own():
    events = [NamedEvent(k, k + 0.5, k + 0.25, f"<{k}>") for k in (0.0, 0.5, 1.0, 1.5, 9.5)]
    html = timeline_html(Timeline(10.0, WAVE, tuple(events)), 5.0)
    names = re.findall(r'left:([\d.]+)%;width:([\d.]+)%;--lane:(\d)">&lt;([\d.]+)&gt;', html)
    assert [name for *_, name in names] == ["0.0", "0.5", "1.0", "9.5"]  # no room for the fourth
    assert [int(lane) for _, _, lane, _ in names] == [0, 1, 2, 0]
    assert f"--lanes:{LANES}" in html
    assert names[-1][:2] == ("80.00", "20.00")  # wide enough to be read, within the timeline
