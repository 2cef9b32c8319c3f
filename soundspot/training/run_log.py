"""The log of a run: one line of JSON per validation, and a chart of it."""

from pathlib import Path
from typing import Any

from soundspot.common.config import parse_json, read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write

LOG = "log.jsonl"


def read_log(run: Path, count: int | None = None) -> list[dict[str, Any]]:
    """The lines of a run's log; only the first `count`, which must all be there, if given."""
    path = run / LOG
    try:
        rows = read_bytes(path).decode().splitlines() if path.exists() else []
        lines = [parse_json(row) for row in rows[:count]]
        if not all(isinstance(line, dict) and "epoch" in line for line in lines):
            raise ValueError("a line is not that of a validation")
        if len(lines) < (count or 0):
            raise ValueError(f"it has {len(lines)} lines, but there were {count} validations")
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} is damaged ({error}); delete {run} to start again") from error
    return lines


def training_curves(run: Path) -> None:
    """Plot the losses and scores of a run into its curves.png, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    lines = read_log(run)
    epochs = [line["epoch"] for line in lines]
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, prefix in zip(figure.subplots(1, 2), ("train_", "val_"), strict=True):
        for name in (key for key in lines[0] if key.startswith(prefix)):
            axes.plot(epochs, [line.get(name) for line in lines], label=name, marker=".")
        axes.set_xlabel("epoch")
        axes.legend()
    with atomic_write(run / "curves.png") as part:
        figure.savefig(part, format="png")
