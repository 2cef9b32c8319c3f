"""A video's pictures look like `figures.overlay`, with a coarser layer of heat."""

import numpy as np
import pytest

from soundspot.inference import figures
from soundspot.inference.maps import map_heat, resize_map
from soundspot.inference.video import draw

MAP = np.random.default_rng(3).random((5, 7), dtype=np.float32)


def picture(height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    return (255 * np.stack([x, 1 - y, 0.5 + 0.5 * np.sin(3 * (x + y))], -1)).astype(np.uint8)


@pytest.mark.parametrize("strength", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("shape", [(96, 152), (600, 960), (479, 271)])
def test_a_picture_looks_like_an_overlay(shape: tuple[int, int], strength: float):
    frame = picture(*shape)
    heat = map_heat(resize_map(MAP, *shape))
    strip = figures.caption_strip(*shape, ("heard: dog", ""))
    wanted = np.vstack([figures.overlay(frame, heat, None, strength), strip])
    found = draw(frame, MAP, strength, ("heard: dog", ""), trained=True)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted.astype(float)).mean() < 2.5


def test_without_a_map_the_picture_is_only_muted():
    frame = picture(46, 62)
    cold = figures.overlay(frame, np.zeros((46, 62), np.float32))
    assert (draw(frame, None, 1.0, ("",), trained=True)[:46] == cold).all()


def test_an_untrained_model_is_stamped():
    stamped = draw(picture(120, 400), MAP, 1.0, ("heard: dog",), trained=False).astype(float)
    red = np.abs(stamped - figures.RED).max(axis=2) < 12
    assert red[94:120].mean() > 0.5 and not red[:94].any() and not red[120:].any()
    tiny = draw(picture(10, 14), MAP, 1.0, ("",), trained=False).astype(float)
    assert (np.abs(tiny[:10] - figures.RED).max(axis=2) < 12).mean() > 0.5
