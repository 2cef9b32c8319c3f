"""What made a result: command, commit, seed, data. Stored in every checkpoint and result file."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from soundspot import __version__
from soundspot.data.pair_set import PairSet
from soundspot.features.cache import AnyCache
from soundspot.training.recipe import Recipe


def provenance(recipe: Recipe, pairs: PairSet, cache: AnyCache) -> dict[str, Any]:
    """What is needed to make the same checkpoint again."""
    return {
        "command": " ".join(["soundspot", *sys.argv[1:]]),
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
