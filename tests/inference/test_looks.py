"""looks.py: which parts of pictures are seen, at which size, and where their maps lie."""

import numpy as np
import pytest
from PIL import Image, ImageFilter

from made_pictures import tiles
from soundspot.inference.first_look import Sight
from soundspot.inference.looks import look, place


def slope(peak: float, side: int) -> np.ndarray:
    """A map that rises from 0 in the first row to its peak in the last: half of it is hot."""
    return np.linspace(0, peak, side, dtype=np.float32)[:, None].repeat(side, axis=1)


def test_every_picture_is_seen_as_it_needs_and_under_its_own_sound():
    usual, inner = tiles(128, 128), tiles(64, 64)
    framed = np.zeros((128, 128, 3), np.uint8)
    framed[64:, :64] = inner
    blurred = np.asarray(Image.fromarray(usual).filter(ImageFilter.GaussianBlur(6)))
    asked = []

    def whole(rows):
        asked.append(("whole", list(rows)))
        return np.stack([slope(row + 1, 14) for row in rows])

    def maps_of(parts, rows, shrink):
        asked.append(([part.shape[:2] for part in parts], list(rows), shrink))
        return np.stack([slope(row + 1, 14 // shrink) for row in rows])

    maps = look([blurred, framed, usual, blurred], 0.1, 14, whole, maps_of)
    assert asked == [
        ("whole", [2]),
        ([(64, 64)], [1], 1),
        ([(128, 128), (128, 128)], [0, 3], 2),
    ]
    assert maps.shape == (4, 28, 28)
    assert maps.max(axis=(1, 2)) == pytest.approx([1, 2, 3, 4], abs=0.05)
    assert maps[1, -1, :14] == pytest.approx(2, abs=0.05)
    assert (maps[1, :14] == 0).all(), "above the inner picture"
    assert (maps[1, :, 14:] == 0).all(), "to its right"


def test_small_hot_parts_are_seen_again_within_the_borders():
    framed = np.zeros((128, 128, 3), np.uint8)
    framed[64:, :64] = tiles(64, 64)
    spot = np.zeros((1, 7, 7), np.float32)
    spot[0, 0, 0] = 1
    asked = []

    def maps_of(parts, rows, shrink):
        asked.append(([part.shape[:2] for part in parts], list(rows), shrink))
        return spot

    def whole(rows):
        raise AssertionError("the whole frame is not needed")

    look([framed], 0.1, 7, whole, maps_of)
    assert asked == [([(64, 64)], [0], 1), ([(32, 32)], [0], 1)]


def test_a_second_look_hears_the_sound_of_its_own_picture():
    usual = tiles(128, 128)
    blurred = np.asarray(Image.fromarray(usual).filter(ImageFilter.GaussianBlur(6)))
    spot = np.zeros((14, 14), np.float32)
    spot[3, 3] = 1
    asked = []

    def maps_of(parts, rows, shrink):
        asked.append((list(rows), shrink))
        return np.stack([spot] * len(parts))

    look([blurred, usual], 0.1, 14, lambda rows: np.stack([spot] * len(rows)), maps_of)
    assert asked == [([1], 1), ([0], 2)]


@pytest.mark.parametrize("side", [7, 10])
def test_grids_that_cannot_be_halved_are_kept(side):
    blurred = np.asarray(Image.fromarray(tiles(128, 128)).filter(ImageFilter.GaussianBlur(6)))

    def maps_of(parts, rows, shrink):
        raise AssertionError("half of this grid is nothing that every method takes")

    maps = look([blurred], 0.1, side, lambda rows: slope(1, side)[None], maps_of)
    assert maps.shape == (1, 2 * side, 2 * side)


def test_a_map_lies_where_its_part_of_the_picture_does():
    s = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
    placed = place(s, Sight(slice(50, 100), slice(0, 25), False), (100, 100))
    assert (placed[:2] == 1).all() and (placed[:, 1:] == 1).all()
    assert placed[2:, 0] == pytest.approx([1, 16]), "from the lowest to the highest value"
    everything = Sight(slice(0, 100), slice(0, 100), False)
    np.testing.assert_array_equal(place(s, everything, (100, 100)), s)
    speck = place(s, Sight(slice(99, 100), slice(99, 100), False), (100, 100))
    assert speck.max() == 16
    assert (speck != 1).sum() == 1, "at least one cell"
    one_hot = np.zeros((28, 28), np.float32)
    one_hot[5, 9] = 0.7
    small = place(one_hot, Sight(slice(96, 128), slice(96, 128), False), (256, 256))
    assert small.max() == pytest.approx(0.7), "a peak is not lost between cells"
