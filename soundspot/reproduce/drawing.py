"""The paper's figures: curves as SVG, examples as a grid of pictures."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from soundspot.common.errors import install_advice
from soundspot.common.files import atomic_write
from soundspot.evaluation.metrics import SIZE, box_pixels
from soundspot.evaluation.predictions import open_model
from soundspot.evaluation.protocols import evaluation_maps
from soundspot.inference.figures import GREEN, overlay, write_picture
from soundspot.reproduce.runs import ReproductionPlan, maps_of, scenes_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLES = 8
CAPTION = 22

log = logging.getLogger(__name__)


def draw_figure(results: Mapping[str, Any], plan: ReproductionPlan, folder: Path) -> Path | None:
    """Draw the figure of a table into a folder; None if it has none or matplotlib is missing."""
    if results["figure"] == "examples":
        return _examples(results, plan, folder / f"{results['table']}.png")
    if results["figure"] is not None:
        return draw_curves(results, folder / f"{results['table']}.svg")
    return None


def draw_curves(results: Mapping[str, Any], path: Path) -> Path | None:
    """Draw the curves of a table that has any: its `figure` says which."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        log.warning("no figure: matplotlib is not installed (%s)", install_advice("plots"))
        return None
    figure = Figure(figsize=CURVES[results["figure"]].size, layout="constrained")
    CURVES[results["figure"]].draw(figure, results["lines"])
    figure.suptitle(f"{results['title']} ({results['data']})", fontsize="medium")
    # With the table's name as salt, the ids inside the SVG are the same every time.
    with atomic_write(path) as part, matplotlib.rc_context({"svg.hashsalt": results["table"]}):
        figure.savefig(part, format="svg", metadata={"Date": None})
    return path


def _success(figure: "Figure", lines: Sequence[Mapping[str, Any]]) -> None:
    """Success by threshold (Fig. 4)."""
    axes = figure.add_subplot(xlabel="cIoU threshold", ylabel="success ratio")
    for line in lines:
        axes.plot(line["curve"]["x"], line["curve"]["y"], label=line["label"])
    axes.grid(alpha=0.3)
    axes.legend()


def _iterations(figure: "Figure", lines: Sequence[Mapping[str, Any]]) -> None:
    """CIoU and AUC by passes of the PCM (Fig. 6)."""
    axes = figure.add_subplot(xlabel="passes t of the PCM while testing", ylabel="cIoU, AUC")
    for line in lines:
        for name, measure in (("ciou", "cIoU"), ("auc", "AUC")):
            label = f"{line['label']}, {measure}"
            axes.plot(line["passes"]["x"], line["passes"][name], "o-", label=label)
    axes.grid(alpha=0.3)
    axes.legend()


def _steps(figure: "Figure", lines: Sequence[Mapping[str, Any]]) -> None:
    """Validation scores and the spread of z by optimiser steps, one curve per seed."""
    panels = {"ciou": "cIoU on val", "auc": "AUC on val", "duets": "duets on val", "z_std": "z_std"}
    grid = figure.subplots(2, 2, sharex=True)
    for axes, (name, label) in zip(grid.flat, panels.items(), strict=True):
        for number, line in enumerate(lines):
            curves = [seed["validations"] for seed in line["seeds"] if name in seed["validations"]]
            for k, curve in enumerate(curves):
                shown = line["label"] if k == 0 else None
                axes.plot(curve["step"], curve[name], color=f"C{number}", alpha=0.8, label=shown)
        axes.set_title(label, fontsize="small")
        axes.grid(alpha=0.3)
    for axes in grid[1]:
        axes.set_xlabel("optimiser steps")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)


class _Curves(NamedTuple):
    size: tuple[float, float]
    draw: Callable[["Figure", Sequence[Mapping[str, Any]]], None]


CURVES = {
    "success": _Curves((6, 4), _success),
    "iterations": _Curves((6, 4), _iterations),
    "steps": _Curves((9, 6), _steps),
}


def _examples(results: Mapping[str, Any], plan: ReproductionPlan, path: Path) -> Path:
    """Test pairs of different classes, one per row: the truth, then the map of every line."""
    scenes, _ = scenes_of(plan.test_set.benchmarks[0], plan.test_set)
    first = {scene.cls: i for i, scene in reversed(list(enumerate(scenes)))}
    chosen = [scenes[i] for i in sorted(first.values())][:EXAMPLES]
    columns = []
    for line in results["lines"]:
        model = open_model(plan.runs / line["seeds"][0]["run"])
        columns.append(maps_of(model, plan.test_set, chosen, line["guidance"]))
    labels = ["truth", *(line["label"] for line in results["lines"])]
    width, height = SIZE * len(labels), SIZE * len(chosen) + CAPTION
    sheet = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(sheet)
    for column, label in enumerate(labels):
        pen.text((SIZE * column + 6, 5), label, fill="black")
    for row, scene in enumerate(chosen):
        frame = plan.test_set.pairs.frame(scene.frame)
        square = np.asarray(Image.fromarray(frame).resize((SIZE, SIZE)))
        heats = (evaluation_maps(maps[row : row + 1], SIZE)[0] for maps in columns)
        pictures = [square, *(overlay(square, heat) for heat in heats)]
        for column, picture in enumerate(pictures):
            sheet.paste(Image.fromarray(picture), (SIZE * column, SIZE * row + CAPTION))
        for annotator in scene.boxes or ():
            for box in annotator:
                x1, y1, x2, y2 = box_pixels(box, SIZE)
                corner = SIZE * row + CAPTION
                pen.rectangle((x1, y1 + corner, x2, y2 + corner), outline=GREEN, width=2)
    write_picture(path, sheet)
    return path
