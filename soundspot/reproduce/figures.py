"""The figure of a table, by matplotlib: curves of its numbers."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from soundspot.common.errors import install_advice
from soundspot.common.files import atomic_write
from soundspot.evaluation.metrics import THRESHOLDS
from soundspot.reproduce.records import Results, TableLine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = {"success": (6, 4), "iterations": (6, 4), "steps": (9, 6)}  # inches

log = logging.getLogger(__name__)


def draw_curves(results: Results, path: Path) -> Path | None:
    """Draw the curves of a table, if its figure has any, as SVG; None without matplotlib."""
    if results.figure not in SIZES:
        return None
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        log.warning("no figure: matplotlib is not installed (%s)", install_advice("plots"))
        return None

    figure = Figure(figsize=SIZES[results.figure], layout="constrained")
    draw = {"success": _success, "iterations": _iterations, "steps": _steps}[results.figure]
    draw(figure, results.lines)
    figure.suptitle(f"{results.title} ({results.data})", fontsize="medium")
    # With the table's name as salt, the ids inside the SVG are the same every time.
    with atomic_write(path) as part, matplotlib.rc_context({"svg.hashsalt": results.table}):
        figure.savefig(part, format="svg", metadata={"Date": None})
    return path


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
            curves = [seed.validations for seed in line.seeds if name in (seed.validations or {})]
            for k, curve in enumerate(filter(None, curves)):
                shown = line.label if k == 0 else None
                axes.plot(curve["step"], curve[name], color=f"C{number}", alpha=0.8, label=shown)
        axes.set_title(label, fontsize="small")
        axes.grid(alpha=0.3)
    for axes in grid[1]:
        axes.set_xlabel("optimizer steps")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
