"""first_look.py: plain borders are left out, blurred pictures are told from sharp ones."""

import numpy as np
import pytest
from PIL import Image, ImageFilter

from made_pictures import tiles
from soundspot.inference.first_look import content, sharpness, sight_of


def on_ground(picture: np.ndarray, height: int, width: int, top: int, left: int) -> np.ndarray:
    """A picture on a ground of one colour."""
    ground = np.full((height, width, 3), (90, 10, 200), np.uint8)
    ground[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return ground


def test_the_content_is_what_lies_within_the_borders():
    framed = on_ground(tiles(127, 101), 251, 241, 31, 97)
    assert content(framed) == (slice(31, 158), slice(97, 198))
    rows, columns, blurred = sight_of(framed)
    assert (rows, columns) == (slice(31, 158), slice(97, 198))
    assert not blurred
    np.testing.assert_array_equal(sight_of(framed).part(framed), tiles(127, 101))


def test_borders_of_compressed_pictures_are_plain():
    rng = np.random.default_rng(1)
    framed = on_ground(tiles(127, 101), 251, 241, 31, 97).astype(int)
    noisy = (framed + rng.integers(-4, 5, framed.shape)).clip(0, 255).astype(np.uint8)
    assert content(noisy) == (slice(31, 158), slice(97, 198))


@pytest.mark.parametrize(
    "picture",
    [
        tiles(251, 241),
        np.zeros((251, 241, 3), np.uint8),
        on_ground(tiles(20, 120), 251, 241, 100, 60),  # a speck: lower than an eighth
        on_ground(tiles(120, 20), 251, 241, 100, 60),
        on_ground(tiles(200, 200), 251, 241, 20, 20),  # more than half of the frame
        np.zeros((1, 1, 3), np.uint8),
        tiles(1, 300),
    ],
    ids=["full", "plain", "low", "narrow", "large", "pixel", "line"],
)
def test_other_pictures_are_seen_whole(picture):
    sight = sight_of(picture)
    assert sight.part(picture).shape == picture.shape
    assert not sight.blurred


def test_a_border_ends_where_its_colour_changes():
    picture = on_ground(tiles(127, 101), 251, 241, 31, 97)
    picture[:11] = 255
    rows, _ = content(picture)
    assert rows == slice(11, 158), "the second plain stripe is no border of the first's colour"


def test_black_bars_of_a_large_frame_are_found_in_its_own_pixels():
    upright = np.zeros((720, 1280, 3), np.uint8)
    upright[:, 480:800] = tiles(720, 320)
    sight = sight_of(upright)
    assert sight.rows == slice(0, 720)
    assert abs(sight.columns.start - 480) <= 5
    assert abs(sight.columns.stop - 800) <= 5


def test_blur_is_told_from_sharpness_at_any_size():
    sharp = Image.fromarray(tiles(256, 256))
    for size in (256, 2048):
        large = sharp.resize((size, size), Image.Resampling.BICUBIC)
        blurred = large.filter(ImageFilter.GaussianBlur(4 * size / 256))
        assert not sight_of(np.asarray(large)).blurred
        assert sight_of(np.asarray(blurred)).blurred


def test_what_is_lost_at_half_the_size_by_hand():
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 200  # of one pixel: at half the size everything is grey
    assert sharpness(stripes) == pytest.approx(1, abs=0.05)
    ramp = np.linspace(0, 200, 64).astype(np.uint8)[:, None, None].repeat(64, 1).repeat(3, 2)
    assert sharpness(ramp) < 0.01
    assert sharpness(np.zeros((5, 7, 3), np.uint8)) == 1
