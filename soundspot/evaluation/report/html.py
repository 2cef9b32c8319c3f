"""The report as one self-contained HTML page: no script, no request, for any screen.

Axes: n pairs, k pairs that are shown, h w the map as a model made it.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image, ImageDraw

from soundspot.data.manifest import Box
from soundspot.data.pair_set import ItemError
from soundspot.evaluation.metrics import SIZE, THRESHOLDS, box_pixels, success_curve
from soundspot.evaluation.protocols import evaluation_maps
from soundspot.evaluation.report.tables import detail_tables, headline_tables, percent
from soundspot.evaluation.rows import MAIN, Contender
from soundspot.evaluation.runner import Evaluation, Result
from soundspot.evaluation.trivial import ORACLE
from soundspot.inference.figures import GREEN, overlay

SHOWN = 4  # pairs of each kind
LISTED = 200  # missing ids on the page; report.json has them all


Picture = dict[str, str | None]
"""Source of an image and its caption; without a source, the caption says why."""


def html_page(evaluation: Evaluation, facts: Mapping[str, Any]) -> str:
    """The whole page; `facts` say how the evaluation was made."""
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        names=", ".join(result.benchmark.name for result in evaluation.results),
        protocol=MAIN,
        sections=[_section(result) for result in evaluation.results],
        facts={key: value for key, value in facts.items() if not isinstance(value, dict | list)},
    )


def _section(result: Result) -> dict[str, Any]:
    own = [contender for contender in result.contenders if contender.kind != "trivial"]
    listed = list(result.missing.items())[:LISTED]
    return {
        "result": result,
        "missing": listed,
        "unlisted": result.lost - len(listed),
        "headline_tables": headline_tables(result),
        "detail_tables": detail_tables(result),
        "success_chart": success_chart(result.contenders),
        "examples": {c.name: grids for c in own if (grids := _examples(c, result))},
    }


def _examples(contender: Contender, result: Result) -> dict[str, list[Picture]]:
    """The best, median and worst pairs; nothing without pictures."""
    if contender.maps is None or result.pairs is None:
        return {}
    scores = contender.scores[MAIN]
    captions = [
        f"{percent(score)} · {scene.cls or ''} · {scene.id}"
        for score, scene in zip(scores, result.scenes, strict=True)
    ]
    return {
        kind: [_picture(result, i, contender.maps[i], captions[i]) for i in chosen.tolist()]
        for kind, chosen in extremes(scores, SHOWN).items()
    }


def extremes(scores: Float[np.ndarray, "n"], count: int) -> dict[str, Int[np.ndarray, "k"]]:
    """The indices of the best, median and worst pairs; few pairs are not repeated."""
    order = np.argsort(-scores, kind="stable")
    count = max(1, min(count, len(order) // 3))
    middle = (len(order) - count) // 2
    parts = (order[:count], order[middle : middle + count], order[::-1][:count])
    return dict(zip(("Best", "Median", "Worst"), parts, strict=True))


def _picture(result: Result, i: int, map: Float[np.ndarray, "h w"], caption: str) -> Picture:
    scene = result.scenes[i]
    assert result.pairs is not None  # callers have checked
    boxes = [box for annotator in scene.boxes for box in annotator]
    try:
        picture = pair_picture(result.pairs.frame(scene.frame), map, boxes)
    except ItemError as error:  # cached features may outlive their frame
        return {"source": None, "caption": str(error)}
    return {"source": as_data_url(picture), "caption": caption}


# --- pictures ---


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
