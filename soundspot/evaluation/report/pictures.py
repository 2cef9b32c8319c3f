"""Pictures inside the HTML report: line charts as SVG, and pairs as JPEG data.

Axes: h w pixels of a frame, gh gw the grid of a map.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

from soundspot.data.manifest import Box
from soundspot.evaluation.metrics import SIZE, box_pixels
from soundspot.evaluation.protocols import evaluation_maps
from soundspot.inference.figures import GREEN, overlay


@dataclass(frozen=True)
class Series:
    """A line of a chart; y are fractions, and baselines are dashed."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    baseline: bool = False


def line_chart(series: Sequence[Series], x_label: str, y_label: str) -> str | None:
    """A line chart as SVG inside a URL; None without matplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel=x_label, ylabel=y_label)
    for line in series:
        style = "--" if line.baseline else ".-"
        axes.plot(line.x, [100 * y for y in line.y], style, label=line.name)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    drawn = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": x_label}):  # the same ids every time
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return _data_url(drawn, "svg+xml")


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
    return _data_url(data, "jpeg")


def _data_url(data: io.BytesIO, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}"
