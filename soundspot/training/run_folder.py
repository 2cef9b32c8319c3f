"""What a run's folder holds: the state from which it resumes with the same numbers, and its log.

state.pt has the weights, the optimizer and the progress; log.jsonl one line of JSON per validation.
"""

import io
import math
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import nn
from torch.optim import Optimizer

from soundspot import __version__
from soundspot.common.config import Count, Range, from_dict, parse_json, read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write, write_bytes
from soundspot.data.pair_set import PairSet
from soundspot.features.cache import AnyCache
from soundspot.training.optimizer import WeightAverage
from soundspot.training.recipe import Recipe

AnyFloat = Annotated[float, Range(-math.inf)]  # NaN and infinities too
LOG = "log.jsonl"
STATE = "state.pt"
RESULT = "result.json"  # a run that has it is finished


@dataclass
class TrainState:
    """The progress of a run; saved with the weights and the optimizer.

    `totals` are the sums of what was reported in the `counted` steps since the last validation.
    """

    step: Count = 0
    validations: Count = 0
    best_validation: Count = 0
    best_step: Count = 0
    best_score: AnyFloat = -math.inf
    seconds: float = 0.0
    totals: dict[str, AnyFloat] = field(default_factory=dict)
    counted: Count = 0


def save_state(
    path: Path, state: TrainState, method: nn.Module, average: WeightAverage, optimizer: Optimizer
) -> None:
    """Write everything that a run needs to resume."""
    stored = {
        "method": method.state_dict(),
        "average": average.state,
        "optimizer": optimizer.state_dict(),
        "progress": vars(state),
    }
    # Through memory: PyTorch's own writer does not say that a disk is full.
    memory = io.BytesIO()
    torch.save(stored, memory)
    write_bytes(path, memory.getbuffer())


def drop_state(run: Path) -> int | None:
    """Remove what only resuming needs from a finished run.

    Returns:
        The bytes that were freed; None if the run is not finished.
    """
    if not run.is_dir():
        raise SoundspotError(f"no training run at {run}")
    if not (run / RESULT).exists():
        return None
    files = [file for file in (run / STATE, *run.glob("last.*")) if file.exists()]
    freed = sum(file.stat().st_size for file in files)
    for file in files:
        file.unlink()
    return freed


def load_state(
    path: Path,
    method: nn.Module,
    average: WeightAverage,
    optimizer: Optimizer,
    device: torch.device,
    steps_per_epoch: int,
) -> TrainState:
    """Load a saved state into the given parts, and return the progress of the run."""
    try:
        stored = torch.load(path, map_location=device, weights_only=True)
        _check_parts(stored, method, average, optimizer)
        progress = _current(dict(stored["progress"]), steps_per_epoch)
        state = from_dict(TrainState, progress)
    except Exception as error:  # torch reports a broken file as almost anything
        reason = (str(error) or repr(error)).splitlines()[0][:200]
        raise SoundspotError(f"{path} is damaged ({reason}); delete {path.parent}") from error
    method.load_state_dict(stored["method"])
    average.state = stored["average"]
    # The recipe has the settings of the groups; only the moments come from the file.
    optimizer.load_state_dict({**optimizer.state_dict(), "state": stored["optimizer"]["state"]})
    return state


def _current(progress: dict[str, Any], steps_per_epoch: int) -> dict[str, Any]:
    """The progress of an old run, which counted epochs and steps within an epoch, as of today."""
    if "epoch" in progress:
        epochs, best_epoch = progress.pop("epoch"), progress.pop("best_epoch")
        progress |= {
            "step": epochs * steps_per_epoch + progress["step"],
            "validations": epochs,
            "best_validation": best_epoch,
            "best_step": best_epoch * steps_per_epoch,
            "counted": progress["step"],
        }
    return progress


def _check_parts(
    stored: Any, method: nn.Module, average: WeightAverage, optimizer: Optimizer
) -> None:
    """Refuse a state that is not of this method, average and optimizer."""
    own, moments = optimizer.state_dict(), stored["optimizer"]["state"]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    expected = {
        place: {"step": torch.zeros(())}
        | dict.fromkeys(("exp_avg", "exp_avg_sq"), parameters[place])
        for place in moments
    }
    for given, wanted in (
        (stored["method"], method.state_dict()),
        (stored["average"], average.state),
        (moments, expected),
        (stored["optimizer"]["param_groups"], own["param_groups"]),
    ):
        if _outline(given) != _outline(wanted):
            raise ValueError("it is that of another method or optimizer")


def _outline(value: Any) -> Any:
    """Keys, and the shapes and types of tensors, whose numbers must be finite."""
    if isinstance(value, dict):
        return {key: _outline(item) for key, item in value.items()}
    if isinstance(value, list):  # groups of the optimizer, whose settings the recipe has
        return [group["params"] for group in value]
    if not value.isfinite().all():
        raise ValueError("it has numbers that are not finite")
    return value.shape, value.dtype


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


def provenance(recipe: Recipe, pairs: PairSet, cache: AnyCache, command: str) -> dict[str, Any]:
    """What is needed to make the same checkpoint again; it is in every checkpoint and result."""
    return {
        "command": command,
        "commit": git_commit(),
        "version": __version__,
        "torch": torch.__version__,
        "seed": recipe.train.seed,
        "data": pairs.name,
        "data_fingerprint": pairs.fingerprint()[:16],
        "encoder_weights": cache.weights,
    }


def git_commit() -> str:
    """The commit of the source tree, marked if it has changes; "unknown" outside of git."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
