"""The paper's figures: curves as SVG, examples as a grid of pictures.

Axes: n pairs, h w the map as a model made it.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

from soundspot.common.files import atomic_write
from soundspot.evaluation.metrics import SIZE, box_pixels
from soundspot.evaluation.predictions import open_model
from soundspot.evaluation.protocols import evaluation_maps
from soundspot.inference.figures import GREEN, overlay, write_picture
from soundspot.reproduce.runs import maps_of, scenes_of
from soundspot.reproduce.table import Plan

EXAMPLES = 8
CAPTION = 22

log = logging.getLogger(__name__)


def draw(found: Mapping[str, Any], plan: Plan, folder: Path) -> Path | None:
    """Draw the figure of a table into a folder, if it has one and it can be drawn."""
    if found["figure"] == "examples":
        return _examples(found, plan, folder / f"{found['table']}.png")
    if found["figure"] is not None:
        return curves(found, folder / f"{found['table']}.svg")
    return None


def curves(found: Mapping[str, Any], path: Path) -> Path | None:
    """Success by threshold (Fig. 4), or cIoU and AUC by passes of the PCM (Fig. 6)."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        log.warning("no figure: matplotlib is not installed (pip install 'soundspot[plots]')")
        return None
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for line in found["lines"]:
        if found["figure"] == "success":
            axes.plot(line["curve"]["x"], line["curve"]["y"], label=line["label"])
        else:
            for name in ("ciou", "auc"):
                measure = {"ciou": "cIoU", "auc": "AUC"}[name]
                label = f"{line['label']}, {measure}"
                axes.plot(line["passes"]["x"], line["passes"][name], "o-", label=label)
    success = found["figure"] == "success"
    axes.set_xlabel("cIoU threshold" if success else "passes t of the PCM while testing")
    axes.set_ylabel("success ratio" if success else "cIoU, AUC")
    axes.set_title(f"{found['title']} ({found['data']})")
    axes.grid(alpha=0.3)
    axes.legend()
    # Named after the table, the picture's inner ids are the same whenever it is drawn.
    with atomic_write(path) as part, matplotlib.rc_context({"svg.hashsalt": found["table"]}):
        figure.savefig(part, format="svg", metadata={"Date": None})
    return path


def _examples(found: Mapping[str, Any], plan: Plan, path: Path) -> Path:
    """Test pairs of different classes, one a row: the truth, then the map of every line."""
    scenes, _ = scenes_of(plan.exam.benchmarks[0], plan.exam)
    first = {scene.item.cls: i for i, scene in reversed(list(enumerate(scenes)))}
    chosen = [scenes[i] for i in sorted(first.values())][:EXAMPLES]
    columns = []
    for line in found["lines"]:
        model = open_model(plan.runs / line["seeds"][0]["run"])
        columns.append(maps_of(model, plan.exam, chosen, line["guidance"]))
    labels = ["truth", *(line["label"] for line in found["lines"])]
    width, height = SIZE * len(labels), SIZE * len(chosen) + CAPTION
    sheet = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(sheet)
    for column, label in enumerate(labels):
        pen.text((SIZE * column + 6, 5), label, fill="black")
    for row, scene in enumerate(chosen):
        assert scene.frame is not None
        frame = plan.exam.pairs.frame(scene.frame)
        square = np.asarray(Image.fromarray(frame).resize((SIZE, SIZE)))
        pictures = [square, *(_over(square, maps[row]) for maps in columns)]
        for column, picture in enumerate(pictures):
            sheet.paste(Image.fromarray(picture), (SIZE * column, SIZE * row + CAPTION))
        for annotator in scene.item.boxes or ():
            for box in annotator:
                x1, y1, x2, y2 = box_pixels(box, SIZE)
                corner = SIZE * row + CAPTION
                pen.rectangle((x1, y1 + corner, x2, y2 + corner), outline=GREEN, width=2)
    write_picture(path, sheet)
    return path


def _over(
    frame: UInt8[np.ndarray, "s s 3"], one: Float[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "s s 3"]:
    return overlay(frame, evaluation_maps(one[None], SIZE)[0])
