"""A decoded picture as its planes of luma and color, and back, without a detour through RGB.

Videos store a luma for every pixel and two color differences for every four. Drawing on these
planes takes less than half the time of converting each picture to RGB, drawing, and converting
it back, and keeps the colors as they were.

Axes: h w pixels of the luma, both even; h2 w2 half as many.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, Interpolation
from jaxtyping import UInt8

from soundspot.media import decoding
from soundspot.media.decoding import AnyPicture

Plane = UInt8[np.ndarray, "_h _w"]

BLACK, GRAY = 16, 128  # luma without light, color difference of grays
_WHITE = 235
_UNSPECIFIED, _RGB = 2, 0  # FFmpeg's numbers of matrices
# Shares of red and blue in the luma, and the name for the scaler, by FFmpeg's number.
_MATRICES = {
    1: (0.2126, 0.0722, Colorspace.ITU709),
    9: (0.2627, 0.0593, Colorspace.BT2020),
}
_OLD_MATRIX = (0.299, 0.114, Colorspace.ITU601)  # BT.601, also of files that do not say
_OLD_NUMBERS = {_UNSPECIFIED, _RGB, 5, 6}


class Planes(NamedTuple):
    """A picture of limited range (16..235), with even sides.

    Attributes:
        luma: One value a pixel.
        blue: How blue 2 x 2 pixels are; 128 is neither blue nor yellow.
        red: How red they are.
        matrix: FFmpeg's number of how they came from RGB; 2 if the file does not say.
    """

    luma: UInt8[np.ndarray, "h w"]
    blue: UInt8[np.ndarray, "h2 w2"]
    red: UInt8[np.ndarray, "h2 w2"]
    matrix: int = _UNSPECIFIED


@lru_cache
def from_rgb_matrix(matrix: int) -> tuple[tuple[float, float, float], ...]:
    """Rows that turn RGB of 0..255 into luma above BLACK and color differences from GRAY."""
    red, blue, _ = _MATRICES.get(matrix, _OLD_MATRIX)
    luma = np.array([red, 1 - red - blue, blue])
    by_blue = (np.array([0, 0, 1]) - luma) / (1 - blue)
    by_red = (np.array([1, 0, 0]) - luma) / (1 - red)
    rows = np.stack([(_WHITE - BLACK) * luma, 112 * by_blue, 112 * by_red]) / 255
    first, second, third = (tuple(row) for row in rows.tolist())
    return first, second, third


def from_rgb(picture: AnyPicture, matrix: int = _UNSPECIFIED) -> Planes:
    """The planes of an RGB picture with even sides."""
    values = picture.astype(np.float32) @ np.array(from_rgb_matrix(matrix), np.float32).T
    height, width, _ = picture.shape
    fours = values[..., 1:].reshape(height // 2, 2, width // 2, 2, 2).mean(axis=(1, 3)) + GRAY
    luma = values[..., 0] + BLACK
    color = np.rint(fours).astype(np.uint8)
    return Planes(np.rint(luma).astype(np.uint8), color[..., 0], color[..., 1], matrix)


def to_planes(path: Path, frame: av.VideoFrame, largest: int) -> Planes:
    """A frame as it is displayed, made smaller if a side has more than `largest` pixels.

    An odd side is made even by repeating its last line.
    """
    height, width = at_most(largest, frame.height, frame.width)
    number = int(frame.colorspace)
    matrix = number if number in _MATRICES else _UNSPECIFIED
    stored = _MATRICES.get(number, _OLD_MATRIX)[2]
    with decoding.explain(f"{path} has pictures that cannot be shown"):
        scaled = frame.reformat(
            width,
            height,
            "yuv420p",
            # The matrix stays as it is, unless it is one of those that nobody uses.
            src_colorspace=stored if number in _MATRICES or number in _OLD_NUMBERS else None,
            dst_colorspace=stored,
            interpolation=Interpolation.AREA,
            dst_color_range=ColorRange.MPEG,
        )
    luma, blue, red = (decoding.turned(frame, _view(plane)) for plane in scaled.planes)
    height, width = luma.shape
    if height % 2 or width % 2:
        luma = np.pad(luma, [(0, height % 2), (0, width % 2)], "edge")
    return Planes(luma, blue, red, matrix)


def to_frame(planes: Planes) -> av.VideoFrame:
    """A frame for the encoder."""
    height, width = planes.luma.shape
    flat = np.concatenate([plane.ravel() for plane in planes[:3]])
    frame = av.VideoFrame.from_ndarray(flat.reshape(height * 3 // 2, width), "yuv420p")
    frame.colorspace, frame.color_range = planes.matrix, ColorRange.MPEG
    return frame


def at_most(side: int, height: int, width: int) -> tuple[int, int]:
    """Height and width of a picture whose longer side may not exceed `side`."""
    shrink = min(1.0, side / max(height, width))
    return max(1, round(height * shrink)), max(1, round(width * shrink))


def _view(plane: Any) -> Plane:
    rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
    return rows[: plane.height, : plane.width]
