"""The verbs that make a model: train, export."""

from pathlib import Path

import soundspot
from soundspot.cli.options import Out, say


def train(recipe: Path, /, *settings: str, out: Out = None) -> None:
    """Train a recipe, or resume its interrupted run.

    Args:
        recipe: A YAML file such as those in recipes/.
        settings: Overrides such as train.epochs=3 or model.pcm=true.
        out: Folder of the run. Default: runs/ plus the recipe's name.
    """
    soundspot.train(recipe, settings, out=out)


def export(source: Path, target: Path, /, *, calibrate: Path | None = None) -> None:
    """Write a checkpoint for inference only: half precision, without what only training needs.

    Args:
        source: Folder of a training run, or a checkpoint.
        target: The .safetensors file to write; a copy of its card is written beside it.
        calibrate: Pair set whose val split sets the score from which a source counts as visible.
    """
    from soundspot.model import checkpoint

    calibration = None
    if calibrate is not None:
        from soundspot.data.pair_set import PairSet
        from soundspot.evaluation.predictions import open_model
        from soundspot.evaluation.source_detection import calibrate as choose_threshold

        calibration = choose_threshold(open_model(source), PairSet.open(calibrate))
    checkpoint.export(source, target, calibration)
    say(f"{target}: {target.stat().st_size / 1e6:.1f} MB")
