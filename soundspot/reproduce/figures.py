"""The figure of a table, by matplotlib: curves of its numbers, or examples of its maps.

Axes: n pairs, l lines.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from soundspot.common.errors import install_advice
from soundspot.common.files import atomic_write
from soundspot.evaluation.metrics import THRESHOLDS
from soundspot.evaluation.report.html import pair_picture
from soundspot.evaluation.rows import MAIN
from soundspot.reproduce.experiments import find_table, lines_for
from soundspot.reproduce.records import Results, TableLine
from soundspot.reproduce.runs import ReproductionPlan, own_contender

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 8  # pairs of a sheet of examples
SIDE = 160  # pixels of a picture
SIZES = {"success": (6, 4), "iterations": (6, 4), "steps": (9, 6)}  # inches

log = logging.getLogger(__name__)


def draw_curves(results: Results, path: Path) -> Path | None:
    """Draw the curves of a table, if its figure has any, as SVG; None without matplotlib."""
    if results.figure not in SIZES or not has_matplotlib():
        return None
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZES[results.figure], layout="constrained")
    draw = {"success": _success, "iterations": _iterations, "steps": _steps}[results.figure]
    draw(figure, results.lines)
    figure.suptitle(f"{results.title} ({results.data})", fontsize="medium")
    # With the table's name as salt, the ids inside the SVG are the same every time.
    with atomic_write(path) as part, matplotlib.rc_context({"svg.hashsalt": results.table}):
        figure.savefig(part, format="svg", metadata={"Date": None})
    return path


def has_matplotlib() -> bool:
    """Whether figures can be drawn; says what to install if they cannot."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        log.warning("no figure: matplotlib is not installed (%s)", install_advice("plots"))
        return False
    return True


def _success(figure: "Figure", lines: Sequence[TableLine]) -> None:
    """Success by threshold (Fig. 4)."""
    axes = figure.add_subplot(xlabel="cIoU threshold", ylabel="success ratio")
    for line in lines:
        axes.plot(THRESHOLDS, line.curve or (), label=line.label)
    axes.grid(alpha=0.3)
    axes.legend()


def _iterations(figure: "Figure", lines: Sequence[TableLine]) -> None:
    """CIoU and AUC by passes of the PCM (Fig. 6)."""
    axes = figure.add_subplot(xlabel="passes t of the PCM while testing", ylabel="cIoU, AUC")
    for line in lines:
        for name, values in (line.passes or {}).items():
            label = f"{line.label}, {'AUC' if name == 'auc' else 'cIoU'}"
            axes.plot(range(1, len(values) + 1), values, "o-", label=label)
    axes.grid(alpha=0.3)
    axes.legend()


def _steps(figure: "Figure", lines: Sequence[TableLine]) -> None:
    """Validation scores and the spread of z by optimizer steps, one curve per seed."""
    panels = {"ciou": "cIoU on val", "auc": "AUC on val", "duets": "duets on val", "z_std": "z_std"}
    grid = figure.subplots(2, 2, sharex=True)
    for axes, (name, label) in zip(grid.flat, panels.items(), strict=True):
        for number, line in enumerate(lines):
            curves = [seed.get("validations", {}) for seed in line.seeds]
            for k, curve in enumerate(curve for curve in curves if name in curve):
                shown = line.label if k == 0 else None
                axes.plot(curve["step"], curve[name], color=f"C{number}", alpha=0.8, label=shown)
        axes.set_title(label, fontsize="small")
        axes.grid(alpha=0.3)
    for axes in grid[1]:
        axes.set_xlabel("optimizer steps")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)


def draw_examples(results: Results, plan: ReproductionPlan, path: Path) -> Path | None:
    """Draw the same pairs under every line that has a run on this machine (Figs. 2, 5, S2, S3)."""
    lines = lines_for(find_table(plan.name), plan.data)
    finished = ((line, plan.finished(line, 0)) for line in lines)
    shown = [(line, folder) for line, folder in finished if folder is not None]
    if plan.media is None or not shown or not has_matplotlib():
        return None
    from matplotlib.figure import Figure

    # Every line's maps of all pairs, and the pairs to show.
    columns = []
    for line, folder in shown:
        result, *_ = plan.media.evaluate([folder], line.guidance, plan.device).results
        columns.append(own_contender(result, line.guidance))
    chosen = choose_pairs(np.stack([column.scores[MAIN] for column in columns]), SHOWN)
    # One row per pair: the frame with the truth, then the map of every line with its score.
    size = 1.7 * (len(columns) + 1), 2 * len(chosen) + 0.7
    figure = Figure(figsize=size, dpi=SIDE / 1.6, layout="constrained")
    figure.suptitle(results.title, fontsize="medium")
    grid = figure.subplots(len(chosen), len(columns) + 1, squeeze=False)
    for axes, i in zip(grid, chosen, strict=True):
        scene = result.scenes[i]
        frame = plan.media.test_on.frame(scene.frame)
        boxes = [box for annotator in scene.boxes for box in annotator]
        captions = (scene.cls or "", *(f"{column.scores[MAIN][i]:.2f}" for column in columns))
        maps = (None, *(None if column.maps is None else column.maps[i] for column in columns))
        for place, caption, map in zip(axes, captions, maps, strict=True):
            place.imshow(pair_picture(frame, map, boxes, SIDE))
            place.set(xticks=[], yticks=[])
            place.set_xlabel(caption, fontsize="small")
    for place, label in zip(grid[0], ("frame", *(line.label for line, _ in shown)), strict=True):
        place.set_title(label, fontsize="small", wrap=True)
    with atomic_write(path) as part:
        figure.savefig(part, format="png")
    return path


def choose_pairs(scores: Float[np.ndarray, "l n"], count: int) -> list[int]:
    """Pairs at evenly spaced quantiles of the mean score over all lines, so as to favor none."""
    order = np.argsort(-scores.mean(axis=0), kind="stable")
    count = min(count, len(order))
    places = (np.arange(count) + 0.5) / count * len(order)
    return [int(i) for i in order[places.astype(int)]]
