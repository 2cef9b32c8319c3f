"""A video's pictures look like `figures.overlay`, which draws in RGB."""

from pathlib import Path

import numpy as np
import pytest

from soundspot.inference import figures
from soundspot.inference.maps import map_heat, resize_map
from soundspot.inference.video import LAYER, draw
from soundspot.media import decoding
from soundspot.media.planes import at_most, from_rgb, to_frame

MAP = np.random.default_rng(3).random((5, 7), dtype=np.float32)


def picture(height: int, width: int) -> np.ndarray:
    """Colors that change slowly, as color is stored for four pixels at once."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    return (255 * np.stack([x, 1 - y, 0.5 + 0.5 * np.sin(3 * (x + y))], -1)).astype(np.uint8)


def drawn(frame: np.ndarray, similarity, strength=1.0, lines=("heard: dog", ""), trained=True):
    planes = draw(from_rgb(frame), similarity, strength, lines, trained)
    return decoding.to_rgb(Path("v.mp4"), to_frame(planes)).astype(float)


@pytest.mark.parametrize("strength", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("shape", [(96, 152), (600, 960), (480, 270)])
def test_a_picture_looks_like_an_overlay(shape: tuple[int, int], strength: float):
    frame = picture(*shape)
    heat = map_heat(resize_map(MAP, *at_most(LAYER, *shape)))
    strip = figures.caption_strip(shape[0], shape[1], ("heard: dog", ""))
    wanted = np.vstack([figures.overlay(frame, heat, None, strength), strip])
    found = drawn(frame, MAP, strength)
    assert len(found) - len(wanted) in (0, 1)  # an even height
    difference = found[: len(wanted)] - wanted
    assert np.abs(difference).mean() < 2.5
    assert np.abs(difference @ figures.LUMA).max() < 8  # only color is coarser


def test_without_a_map_the_picture_is_only_muted():
    frame = picture(46, 62)
    cold = figures.overlay(frame, np.zeros((46, 62), np.float32))
    assert np.abs(drawn(frame, None)[:46] - cold).max() <= 6


def test_an_untrained_model_is_stamped():
    stamped = drawn(picture(120, 400), MAP, trained=False)
    red = np.abs(stamped - figures.RED).max(axis=2) < 12
    assert red[94:120].mean() > 0.5 and not red[:94].any() and not red[120:].any()
    tiny = drawn(picture(10, 14), MAP, trained=False)
    assert (np.abs(tiny[:10] - figures.RED).max(axis=2) < 12).mean() > 0.5
