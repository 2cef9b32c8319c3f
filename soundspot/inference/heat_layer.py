"""How heat looks: its colors, how opaque it is, and its contour at one half.

The layer is computed in any linear color space, RGB for pictures and YUV for videos, and is
premultiplied: a color times its opacity, which adds up and is enlarged without fringes.

Axes: height width cells of the heat map; channels of the colors, then the opacity.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float32, UInt8

from soundspot.inference.maps import CONTOUR_LEVEL

Heat = Float32[np.ndarray, "height width"]  # 0..1
Matrix = tuple[tuple[float, float, float], ...]  # rows: an RGB color -> the channels of a space

HEAT_OPACITY = 0.75
# The frame below is muted, half way to gray and darker, so that its colors are not mistaken for
# heat: a pixel keeps this much of its luma and of its color.
LUMA_KEPT, COLOR_KEPT = 0.75, 0.4
# Dark violet through red to pale yellow: equal steps of value look like equal steps of lightness.
ANCHORS = (
    (0, 0, 4), (31, 12, 72), (85, 15, 109), (136, 34, 106), (186, 54, 85),
    (227, 89, 51), (249, 140, 10), (249, 201, 50), (252, 255, 164),
)  # fmt: skip
STEPS = 1024
IN_RGB: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
# Brightness, width in units of `thickness`, and opacity of the contour's two lines.
LINES = ((0, 2.4, 0.4), (255, 1.0, 0.95))


def colors(values: Float32[np.ndarray, "height width"]) -> UInt8[np.ndarray, "height width 3"]:
    """Color values of 0..1, dark to light; values outside take the color of the nearest end."""
    return np.asarray(_color_table()[_steps(values)])


def heat_layer(heat: Heat, space: Matrix = IN_RGB) -> Float32[np.ndarray, "channels height width"]:
    """Heat and contour, premultiplied; the last channel is the opacity, 0..1."""
    table, white = _layer_table(space)
    steps = _steps(heat).ravel()
    layer = np.stack([channel.take(steps) for channel in table])
    width, distance = thickness(heat.shape), _from_contour(heat).ravel()
    near = np.flatnonzero(distance < (max(wide for _, wide, _ in LINES) * width + 1) / 2)
    close = layer[:, near]
    for gray, wide, opacity in LINES:
        # How much of each pixel a line along the contour covers.
        line = opacity * np.clip((wide * width + 1) / 2 - distance[near], 0, 1)
        paint = white[:, None] * np.array([[gray / 255]] * (len(white) - 1) + [[1]], np.float32)
        close = (1 - line) * close + line * paint
    layer[:, near] = close
    return layer.reshape(-1, *heat.shape)


def thickness(shape: Sequence[int]) -> float:
    """Pixels of a line that can be seen on a picture of this height and width."""
    return max(1.0, min(shape[:2]) / 180)


def _steps(values: Float32[np.ndarray, "height width"]) -> np.ndarray:
    return np.clip(values * STEPS + 0.5, 0, STEPS).astype(np.int32)


@lru_cache
def _color_table() -> UInt8[np.ndarray, "steps 3"]:
    stops, fine = np.linspace(0, 1, len(ANCHORS)), np.linspace(0, 1, STEPS + 1)
    channels = [np.interp(fine, stops, channel) for channel in zip(*ANCHORS, strict=True)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


@lru_cache
def _layer_table(
    space: Matrix,
) -> tuple[Float32[np.ndarray, "channels steps"], Float32[np.ndarray, " channels"]]:
    """The premultiplied color of every step of heat, and opaque white."""
    into = np.array(space)
    opacity = HEAT_OPACITY * np.linspace(0, 1, STEPS + 1)
    table = np.vstack([into @ _color_table().T * opacity, opacity])
    return table.astype(np.float32), np.append(into.sum(axis=1) * 255, 1).astype(np.float32)


def _from_contour(heat: Heat) -> Heat:
    """The distance of each pixel from the contour."""
    if min(heat.shape) < 2:
        return np.full_like(heat, np.inf)
    # The height above the level divided by the slope is, to first order, the distance in pixels.
    down, right = np.gradient(heat)
    slope = np.sqrt(down * down + right * right)
    return np.asarray(np.abs(heat - CONTOUR_LEVEL) / np.maximum(slope, 1e-6))
