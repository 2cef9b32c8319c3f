"""Pictures inside the HTML report: line charts as SVG, and pairs as JPEG data.

Axes: h w pixels of a frame, gh gw the grid of a map.
"""

import base64
import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

from soundspot.data.manifest import Box
from soundspot.evaluation.metrics import SIZE, THRESHOLDS, box_pixels, success_curve
from soundspot.evaluation.protocols import evaluation_maps
from soundspot.evaluation.rows import MAIN, Contender
from soundspot.evaluation.trivial import ORACLE
from soundspot.inference.figures import GREEN, overlay


def success_chart(contenders: Sequence[Contender]) -> str | None:
    """Success by threshold as SVG inside a URL, baselines dashed; None without matplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="cIoU threshold", ylabel="success ratio, %")
    for contender in contenders:
        if contender.name != ORACLE:
            style = "--" if contender.kind == "trivial" else ".-"
            success = 100 * success_curve(contender.scores[MAIN])
            axes.plot(THRESHOLDS, success, style, label=contender.name)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    drawn = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "success"}):  # the same ids every time
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
