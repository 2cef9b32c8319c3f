"""What a run needs to resume with exactly the same numbers: state.pt in its folder."""

import math
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write
from soundspot.training.average import WeightAverage


@dataclass
class TrainState:
    """How far a run has come; saved with the weights and the optimiser.

    Attributes:
        step: Optimiser steps taken.
        validations: How often the model was validated, which is the number of lines in the log.
        best_validation: Which of them scored best; 0 before the first.
        best_step: After how many steps that was.
        best_score: Its score.
        seconds: Training time since the last validation.
        totals: Sums of the reported numbers since the last validation.
        counted: Over how many steps they were summed.
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
    """Write everything in one step."""
    stored = {
        "method": method.state_dict(),
        "average": average.state,
        "optimiser": optimiser.state_dict(),
        "progress": vars(state),
    }
    with atomic_write(path) as part:
        torch.save(stored, part)


def load_state(
    path: Path,
    method: nn.Module,
    average: WeightAverage,
    optimiser: Optimizer,
    device: torch.device,
    steps_per_epoch: int,
) -> TrainState:
    """Put a saved state into the given parts, and say how far the run had come."""
    try:
        stored = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise SoundspotError(f"{path} is damaged; delete {path.parent} to start again") from error
    method.load_state_dict(stored["method"])
    average.state = stored["average"]
    optimiser.load_state_dict(stored["optimiser"])
    return _read_progress(stored["progress"], steps_per_epoch)


def _read_progress(stored: dict[str, Any], steps_per_epoch: int) -> TrainState:
    """The state of a run; runs begun before steps were counted stored epochs done."""
    if "epoch" not in stored:
        return TrainState(**stored)
    epochs, best_epoch = stored["epoch"], stored["best_epoch"]
    return TrainState(
        step=epochs * steps_per_epoch + stored["step"],
        validations=epochs,
        best_validation=best_epoch,
        best_step=best_epoch * steps_per_epoch,
        best_score=stored["best_score"],
        seconds=stored["seconds"],
        totals=stored["totals"],
        counted=stored["step"],
    )
