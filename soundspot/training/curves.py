"""The log of a run -> a chart of its losses and validation scores."""

from pathlib import Path

from soundspot.common.files import atomic_write
from soundspot.training.run_log import read_log


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
