"""Where a run's log goes besides log.jsonl: TensorBoard, and what installed packages add.

A package adds a logger through an entry point of the group "soundspot.loggers": a function that
takes the run's folder and its recipe, and returns a function that takes each line of the log.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from soundspot.common.config import NamedTable, to_dict
from soundspot.common.errors import SoundspotError, install_advice
from soundspot.training.recipe import Recipe

Line = Mapping[str, Any]  # "step", "epoch", "train_loss", "val_ciou", ...
Log = Callable[[Line], None]
Start = Callable[[Path, dict[str, Any]], Log]


def _read(_name: str, found: object) -> Start:
    if not callable(found):
        raise TypeError(f"{found!r} is not a function")
    return found


LOGGERS = NamedTable("logger", {}, _read)


def open_loggers(run: Path, recipe: Recipe, console: Console) -> Log:
    """One function that hands a line to TensorBoard, if asked, and to all installed loggers."""
    start: dict[str, Start] = {name: LOGGERS[name] for name in LOGGERS}
    if recipe.train.tensorboard:
        start["tensorboard"] = tensorboard
    logs = {name: begin(run, to_dict(recipe)) for name, begin in start.items()}

    def log(line: Line) -> None:
        for name in list(logs):
            try:
                logs[name](line)
            except Exception as error:  # a day's training does not end with somebody's server
                console.print(f"the logger {name} failed and is left out from now on: {error}")
                del logs[name]

    return log


def tensorboard(run: Path, recipe: dict[str, Any]) -> Log:
    """Scalars in the run's folder: `tensorboard --logdir runs`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        advice = install_advice("tensorboard")
        raise SoundspotError(
            f"train.tensorboard needs TensorBoard ({error}): {advice}", "not-installed"
        ) from error
    writer = SummaryWriter(str(run))

    def log(line: Line) -> None:
        for name, value in line.items():
            if isinstance(value, int | float) and name != "step":
                writer.add_scalar(name.replace("_", "/", 1), value, line["step"])
        writer.flush()

    return log
