"""Pictures for the report, drawn into the page: line charts as SVG, pairs as JPEG data.

Axes: h w pixels of a frame, gh gw the grid of a map.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

from soundspot.data.manifest import Box
from soundspot.evaluation.metrics import SIZE, box_pixels
from soundspot.evaluation.protocols import evaluation_maps
from soundspot.inference.figures import GREEN, overlay

# Colours that people with any colour vision can tell apart; baselines are grey and dashed.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
GREYS = ("#444444", "#777777", "#999999", "#aaaaaa")
DASHES = ("6 4", "2 3", "9 3 2 3", "1 4")
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 12, 46


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        name: Stands in the legend.
        x: Where its points are.
        y: Fractions of 0..1.
        baseline: Whether it steps back behind the models.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    baseline: bool = False


def line_chart(
    series: Sequence[Series], x_label: str, y_label: str, *, from_zero: bool = True
) -> str:
    """A chart as SVG with its legend as HTML below: it scales to any screen.

    Args:
        series: The lines.
        x_label: Under the x axis.
        y_label: Beside the y axis, whose numbers are in %.
        from_zero: Whether the y axis runs from 0 to 100 %, or just around the values.
    """
    xs = [x for one in series for x in one.x]
    ys = [y for one in series for y in one.y]
    x_ticks = _ticks(min(xs), max(xs))
    y_ticks = _ticks(0.0, 1.0) if from_zero else _ticks(min(ys), max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        )

    parts = []
    for tick in y_ticks:
        x, y = place(x_ticks[0], tick)
        end = WIDTH - RIGHT
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{y:.1f}" x2="{end}" y2="{y:.1f}"/>')
        parts.append(
            f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{_percent(tick)}</text>'
        )
    for tick in x_ticks:
        x, y = place(tick, y_ticks[0])
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{tick:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'
    )
    height = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text transform="translate(14 {height}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    styles = _styles(series)
    # Baselines first: the models' lines lie on top.
    order = sorted(range(len(series)), key=lambda i: not series[i].baseline)
    for i in order:
        points = [place(x, y) for x, y in zip(series[i].x, series[i].y, strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" {styles[i]}/>')
        if len(points) <= 12:
            colour = styles[i].split('"')[1]
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points
            ]
    legend = "".join(
        f'<li><svg viewBox="0 0 32 10" class="key"><polyline points="1,5 31,5" {style}/></svg>'
        f"{escape(one.name)}</li>"
        for one, style in zip(series, styles, strict=True)
    )
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(y_label)} against {escape(x_label)}">{"".join(parts)}</svg>'
        f'<ul class="legend">{legend}</ul>'
    )


def _styles(series: Sequence[Series]) -> list[str]:
    styles, models, baselines = [], 0, 0
    for one in series:
        if one.baseline:
            grey, dash = GREYS[baselines % len(GREYS)], DASHES[baselines % len(DASHES)]
            styles.append(f'stroke="{grey}" stroke-width="2" stroke-dasharray="{dash}" fill="none"')
            baselines += 1
        else:
            colour = COLOURS[models % len(COLOURS)]
            styles.append(f'stroke="{colour}" stroke-width="2.5" fill="none"')
            models += 1
    return styles


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from at or below the lowest to at or above the highest value."""
    span = max(high - low, 1e-6)
    rough = span / 6
    magnitude = 10.0 ** np.floor(np.log10(rough))
    step = float(next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= rough * 0.999))
    first, last = np.floor(low / step + 1e-9), np.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return [round(float(k * step), 10) for k in np.arange(first, last + 1)]


def _percent(value: float) -> str:
    return f"{100 * value:.4g}"


def pair_picture(
    frame: UInt8[np.ndarray, "h w 3"],
    map: Float[np.ndarray, "gh gw"],
    boxes: Sequence[Box],
    side: int = SIZE,
) -> str:
    """A frame with its map, the contour of the predicted region (white) and the truth (green).

    Args:
        frame: RGB; it is squashed to a square, as the evaluation does.
        map: As the model made it.
        boxes: The truth, in 0..1 of the frame.
        side: Of the picture, in pixels.

    Returns:
        The address of an <img>: the JPEG itself.
    """
    small = np.asarray(Image.fromarray(frame).resize((side, side), Image.Resampling.BICUBIC))
    heat = evaluation_maps(map[None], side)[0]
    image = Image.fromarray(overlay(small, heat))
    draw = ImageDraw.Draw(image)
    for box in boxes:
        x1, y1, x2, y2 = box_pixels(box, side)
        if x1 < x2 and y1 < y2:
            draw.rectangle((x1, y1, x2 - 1, y2 - 1), outline=GREEN, width=max(1, side // 100))
    data = io.BytesIO()
    image.save(data, format="JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}"
