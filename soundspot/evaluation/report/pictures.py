"""Pictures inside the HTML report: the geometry of line charts, and pairs as JPEG data.

Charts are SVG from our own template, since matplotlib is an optional extra.

Axes: h w pixels of a frame, gh gw the grid of a map.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

from soundspot.data.manifest import Box
from soundspot.evaluation.metrics import SIZE, box_pixels
from soundspot.evaluation.protocols import evaluation_maps
from soundspot.inference.figures import GREEN, overlay

# Colors that are easy to tell apart with any color vision; baselines are gray and dashed.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
GRAYS = ("#444444", "#777777", "#999999", "#aaaaaa")
DASHES = ("6 4", "2 3", "9 3 2 3", "1 4")
SOLID = "none"
LEFT, RIGHT, TOP, BOTTOM = 54, 626, 12, 314  # of the axes, in a drawing of 640 x 360


@dataclass(frozen=True)
class Series:
    """A line of a chart; y are fractions, and baselines are drawn behind models."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    baseline: bool = False


def line_chart(
    series: Sequence[Series], x_label: str, y_label: str, *, from_zero: bool = True
) -> dict[str, Any]:
    """Lay out a line chart for templates/chart.html.

    The y axis runs from 0 to 100 %, or without `from_zero` just around the values.
    """
    xs = round_ticks([x for line in series for x in line.x])
    ys = round_ticks([0.0, 1.0] if from_zero else [y for line in series for y in line.y])

    def across(x: float) -> float:
        return round(LEFT + (x - xs[0]) / (xs[-1] - xs[0]) * (RIGHT - LEFT), 1)

    def down(y: float) -> float:
        return round(BOTTOM - (y - ys[0]) / (ys[-1] - ys[0]) * (BOTTOM - TOP), 1)

    colors, grays = cycle(COLORS), cycle(zip(GRAYS, DASHES, strict=True))
    lines = []
    for line in series:
        points = [(across(x), down(y)) for x, y in zip(line.x, line.y, strict=True)]
        color, dashes = next(grays) if line.baseline else (next(colors), SOLID)
        lines.append({"name": line.name, "points": points, "color": color, "dashes": dashes})
    return {
        "x_label": x_label,
        "y_label": y_label,
        "x_ticks": [(across(x), f"{x:g}") for x in xs],
        "y_ticks": [(down(y), f"{100 * y:.4g}") for y in ys],
        "legend": lines,
        "drawn": sorted(lines, key=lambda line: line["dashes"] == SOLID),  # models over baselines
        "frame": {"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM},
    }


def round_ticks(values: Sequence[float]) -> list[float]:
    """Round numbers from at or below the lowest to at or above the highest value."""
    low, high = min(values), max(values)
    rough = max(high - low, 1e-6) / 6
    magnitude = 10.0 ** np.floor(np.log10(rough))
    step = float(next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= rough * 0.999))
    first, last = np.floor(low / step + 1e-9), np.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return [round(float(k * step), 10) for k in np.arange(first, last + 1)]


def pair_picture(
    frame: UInt8[np.ndarray, "h w 3"],
    map: Float[np.ndarray, "gh gw"] | None,
    boxes: Sequence[Box],
    side: int = SIZE,
) -> Image.Image:
    """A frame with its map, the contour of the predicted region (white) and the truth (green).

    The frame is squashed to a square, as in the evaluation.
    """
    image = Image.fromarray(frame).resize((side, side), Image.Resampling.BICUBIC)
    if map is not None:
        image = Image.fromarray(overlay(np.asarray(image), evaluation_maps(map[None], side)[0]))
    draw = ImageDraw.Draw(image)
    for box in boxes:
        x1, y1, x2, y2 = box_pixels(box, side)
        if x1 < x2 and y1 < y2:
            draw.rectangle((x1, y1, x2 - 1, y2 - 1), outline=GREEN, width=max(1, side // 100))
    return image


def as_data_url(image: Image.Image) -> str:
    """A picture as a JPEG inside a URL, for pages that are one file."""
    data = io.BytesIO()
    image.save(data, format="JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}"
