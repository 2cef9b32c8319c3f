from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from soundspot.common.errors import SoundspotError
from soundspot.inference import figures, outputs
from soundspot.inference.figures import ANCHORS, colors

TONE = np.sin(np.arange(48_000) / 7).astype(np.float32)


def ramp(height: int, width: int) -> np.ndarray:
    return np.tile(np.linspace(0, 1, width, dtype=np.float32), (height, 1))


def gray(height: int, width: int, value: int = 100) -> np.ndarray:
    return np.full((height, width, 3), value, np.uint8)


def test_colors_run_from_dark_to_light_and_stop_at_the_ends():
    values = np.linspace(-0.5, 1.5, 201, dtype=np.float32)[None]
    colored = colors(values)[0]
    assert tuple(colored[0]) == tuple(colored[50]) == ANCHORS[0]
    assert tuple(colored[-1]) == tuple(colored[150]) == ANCHORS[-1]
    lightness = colored @ np.array(figures.LUMA)
    assert (np.diff(lightness[50:151]) > 0).all()


def test_overlay_mutes_what_is_cold_and_colors_what_is_hot():
    heat = np.zeros((31, 37), np.float32)
    heat[10:20, 10:20] = 1
    picture = figures.overlay(gray(31, 37), heat)
    assert tuple(picture[2, 2]) == (75, 75, 75)  # 0.4 * 100 + 0.35 * 100
    hot = 0.25 * 75 + 0.75 * np.array(ANCHORS[-1])
    assert np.abs(picture[15, 15] - hot).max() <= 0.5


def test_strength_takes_heat_and_contour_back():
    frame, heat = gray(31, 37), ramp(31, 37)
    muted = figures.overlay(frame, np.zeros_like(heat))
    full = figures.overlay(frame, heat).astype(float)
    half = figures.overlay(frame, heat, strength=0.5)
    assert (figures.overlay(frame, heat, strength=0.0) == muted).all()
    assert np.abs(half - (full + muted) / 2).max() <= 2


def test_contour_lies_where_the_map_is_one_half():
    picture = figures.overlay(gray(41, 101, 0), ramp(41, 101)).sum(axis=2)
    assert (picture[:, 30:71].argmax(axis=1) == 20).all()


def test_the_box_ends_just_inside_x2_and_y2():
    picture = figures.overlay(gray(31, 37), np.zeros((31, 37), np.float32), (3, 5, 23, 19))
    ys, xs = np.nonzero((picture == figures.GREEN).all(axis=2))
    assert (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1) == (3, 5, 23, 19)
    assert tuple(picture[10, 10]) == (75, 75, 75)


@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (2, 701), (300, 4000), (4000, 300), (223, 397)])
@pytest.mark.parametrize("labels", [[], [("Dog", 0.93), ("a very long name " * 9, 1.7)]])
def test_triptych_of_any_shape(shape, labels):
    height, width = shape
    box = (0, 0, width, height)
    page = figures.triptych(gray(*shape), ramp(*shape), TONE, box=box, labels=labels, footer="x")
    assert 700 < page.width < 1500 and 350 < page.height < 600


@pytest.mark.parametrize("ending", outputs.PICTURE_FORMATS)
def test_the_ending_names_the_format(tmp_path: Path, ending: str):
    path = tmp_path / f"p{ending.upper()}"
    path.write_text("old")
    figures.write_picture(path, Image.new("RGB", (5, 3)))
    assert Image.open(path).format == outputs.PICTURE_FORMATS[ending]
    assert list(tmp_path.iterdir()) == [path]


def test_what_no_picture_can_be_written_to(tmp_path: Path):
    for path in (tmp_path / "p.txt", tmp_path / "absent" / "p.png", tmp_path):
        with pytest.raises(SoundspotError):
            outputs.check_picture(path)
    with pytest.raises(SoundspotError):
        outputs.check_file(tmp_path)


def test_an_input_is_not_written_over_even_through_a_link(tmp_path: Path):
    source, link = tmp_path / "clip.png", tmp_path / "link.png"
    source.write_text("precious")
    link.symlink_to(source)
    with pytest.raises(SoundspotError):
        outputs.check_picture(link, [tmp_path / "other.png", source])
    outputs.check_picture(link, [tmp_path / "other.png"])


def test_the_axis_of_the_sound_shows_the_seconds_that_were_heard():
    first, again, other = (
        np.asarray(figures.triptych(gray(31, 37), ramp(31, 37), TONE, heard=heard))
        for heard in ((7.0, 10.0), (7.0, 10.0), (8.0, 11.0))
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
