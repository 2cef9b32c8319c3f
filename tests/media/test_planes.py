"""Planes of luma and color, against the RGB that FFmpeg makes of the same frame."""

from pathlib import Path

import av
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Colorspace

from soundspot.media import decoding
from soundspot.media.planes import Planes, at_most, from_rgb, to_frame, to_planes

PATH = Path("v.mp4")
COLORS = [(0, 0, 0), (255, 255, 255), (200, 24, 36), (20, 180, 60), (30, 60, 220), (90, 90, 90)]


def patches(side: int = 16) -> np.ndarray:
    """Six colors side by side, each as large as its codec's blocks."""
    return np.repeat(np.repeat(np.array([COLORS], np.uint8), side, axis=0), side, axis=1)


def shown(planes: Planes) -> np.ndarray:
    return decoding.to_rgb(PATH, to_frame(planes)).astype(int)


def middles(picture: np.ndarray, side: int = 16) -> np.ndarray:
    """The scaler mixes colors at the edges of the patches."""
    return picture[side // 2, side // 2 :: side]


@pytest.mark.parametrize("matrix", [2, 1, 9])
def test_colors_are_those_of_the_scaler(matrix: int):
    planes = from_rgb(patches(), matrix)
    assert planes.luma.shape == (16, 96) and planes.blue.shape == planes.red.shape == (8, 48)
    assert np.abs(middles(shown(planes)) - COLORS).max() <= 3


@pytest.mark.parametrize(
    ("kind", "options", "matrix"),
    [
        ("rgb24", {}, 2),
        ("yuv420p", {}, 2),
        ("yuv444p", {"dst_colorspace": Colorspace.ITU709}, 1),
        ("yuv420p10le", {"dst_colorspace": Colorspace.BT2020}, 9),
        ("yuvj420p", {"dst_color_range": ColorRange.JPEG}, 2),
        ("yuv420p", {"dst_colorspace": Colorspace.SMPTE240M}, 2),
    ],
)
def test_a_frame_keeps_its_colors(kind: str, options: dict, matrix: int):
    frame = av.VideoFrame.from_ndarray(patches(), "rgb24").reformat(format=kind, **options)
    planes = to_planes(PATH, frame, 960)
    assert planes.matrix == matrix
    assert np.abs(middles(shown(planes)) - COLORS).max() <= 6  # three conversions of whole numbers


def test_an_odd_side_repeats_its_last_line():
    picture = np.random.default_rng(0).integers(0, 256, (7, 13, 3), dtype=np.uint8)
    luma, blue, red, _ = to_planes(PATH, av.VideoFrame.from_ndarray(picture, "rgb24"), 960)
    assert luma.shape == (8, 14) and blue.shape == red.shape == (4, 7)
    assert (luma[7] == luma[6]).all() and (luma[:, 13] == luma[:, 12]).all()


def test_a_large_frame_is_made_smaller():
    frame = av.VideoFrame.from_ndarray(patches(200), "rgb24")  # 200 x 1200
    planes = to_planes(PATH, frame, 600)
    assert planes.luma.shape == (100, 600)
    assert np.abs(middles(shown(planes), 100) - COLORS).max() <= 3
    assert at_most(960, 1080, 1920) == (540, 960) and at_most(960, 5, 3) == (5, 3)
    assert at_most(960, 1, 4000) == (1, 960)
