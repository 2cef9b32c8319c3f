"""What a run needs to resume with exactly the same numbers: state.pt in its folder."""

import math
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write
from soundspot.training.average import WeightAverage

STATE = "state.pt"
RESULT = "result.json"  # a run that has it is finished


@dataclass
class TrainState:
    """The progress of a run; saved with the weights and the optimiser.

    Attributes:
        step: Optimiser steps done.
        validations: Validations done: the number of lines in the log.
        best_validation: Number of the best validation; 0 before the first.
        best_step: Step of the best validation.
        best_score: Score of the best validation.
        seconds: Training time since the last validation.
        totals: Sums of the reported values since the last validation.
        counted: Number of steps in these sums.
    """

    step: int = 0
    validations: int = 0
    best_validation: int = 0
    best_step: int = 0
    best_score: float = -math.inf
    seconds: float = 0.0
    totals: dict[str, float] = field(default_factory=dict)
    counted: int = 0


def save_state(
    path: Path, state: TrainState, method: nn.Module, average: WeightAverage, optimiser: Optimizer
) -> None:
    """Write everything that a run needs to resume."""
    stored = {
        "method": method.state_dict(),
        "average": average.state,
        "optimiser": optimiser.state_dict(),
        "progress": vars(state),
    }
    with atomic_write(path) as part:
        torch.save(stored, part)


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
    optimiser: Optimizer,
    device: torch.device,
    steps_per_epoch: int,
) -> TrainState:
    """Load a saved state into the given parts, and return the progress of the run."""
    try:
        stored = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise SoundspotError(f"{path} is damaged; delete {path.parent} to start again") from error
    method.load_state_dict(stored["method"])
    average.state = stored["average"]
    optimiser.load_state_dict(stored["optimiser"])
    progress = stored["progress"]
    if "epoch" in progress:  # old runs counted epochs, and steps within an epoch
        epochs, best_epoch = progress.pop("epoch"), progress.pop("best_epoch")
        progress |= {
            "step": epochs * steps_per_epoch + progress["step"],
            "validations": epochs,
            "best_validation": best_epoch,
            "best_step": best_epoch * steps_per_epoch,
            "counted": progress["step"],
        }
    return TrainState(**progress)
