"""HTML and SVG of the page."""

from pathlib import Path

import numpy as np

from soundspot.media import clips as media
from soundspot.web.markup import note_html, result_html
from soundspot.web.waveform import COLUMNS, read_columns, waveform_svg
from web_media import result


def test_the_waveform_shows_where_it_is_loud(tmp_path: Path):
    sound = np.zeros(48_000, np.float32)
    sound[24_000:] = np.tile(np.array([-0.25, 0.5], np.float32), 12_000)
    media.write_flac(tmp_path / "s.flac", sound)
    columns = read_columns(tmp_path / "s.flac", 3.0)
    assert columns.shape == (COLUMNS, 2)
    np.testing.assert_allclose(columns[: COLUMNS // 2], 0)
    np.testing.assert_allclose(columns[COLUMNS // 2 :], [[-0.25, 0.5]] * 120, atol=1e-4)


def test_what_visitors_write_is_no_html():
    assert note_html("error", "a<b>.mp4 is empty") == (
        '<div class="note error" role="alert">a&lt;b&gt;.mp4 is empty.</div>'
    )
    assert note_html("hint", "now wait!") == '<div class="note hint" role="status">Now wait!</div>'
    shown = result_html("<i>.wav", result([[0, 1]]))
    assert "&lt;i&gt;.wav" in shown and "Dog &lt;b&gt;" in shown and "width:25%" in shown


def test_the_waveform_marks_what_is_heard():
    columns = np.array([[-0.5, 0.5], [0, 0]], np.float32)
    svg = waveform_svg(columns, 12.0, 6.0)
    assert 'x="375.0" y="0" width="250.0"' in svg  # 4.5 to 7.5 s of 12
    assert "M500.0 0V64" in svg and "M0.0 0.0h500.0v64.0" in svg
    assert 'x="0.0" y="0" width="1000.0"' in waveform_svg(columns, 2.0, 1.0)  # all of a short one
