"""The verbs that make a model: recipes, train, tidy, export, export-onnx."""

from dataclasses import replace
from pathlib import Path

import soundspot
from soundspot.cli.options import Device, Out, say


def recipes(name: str | None = None, /) -> None:
    """List the recipes that ship with soundspot, or print one.

    Args:
        name: A name from the list.
    """
    from soundspot.training.recipe import find_recipe, shipped_recipes, title_of

    if name is not None:
        say(find_recipe(name).read_text(encoding="utf-8").rstrip())
        return
    for path in shipped_recipes().values():
        say(f"{path.stem:<24} {title_of(path)}")


def train(recipe: str, /, *settings: str, out: Out = None, device: Device = "auto") -> None:
    """Train a recipe, or resume its interrupted run.

    Args:
        recipe: A YAML file, or a name from `soundspot recipes`.
        settings: Overrides such as train.epochs=3 or model.pcm=true.
        out: Folder of the run. Default: runs/ plus the recipe's name.
    """
    soundspot.train(recipe, settings, out=out, device=device)


def tidy(*runs: Path) -> None:
    """Delete the files needed only for resuming from finished runs, usually 200 MB each.

    The best weights, the log and the results stay. A tidied run cannot be trained further.

    Args:
        runs: Folders of training runs; unfinished ones are left as they are.
    """
    from soundspot.training.run_folder import drop_state

    for run in runs:
        freed = drop_state(run)
        say(f"{run}: " + ("not finished" if freed is None else f"{freed / 1e6:.1f} MB freed"))


def export(
    source: Path,
    target: Path,
    /,
    *,
    calibrate: Path | None = None,
    zoom: float | None = None,
    device: Device = "auto",
) -> None:
    """Write a checkpoint for inference only: half precision, without what only training needs.

    Args:
        source: Folder of a training run, or a checkpoint.
        target: The .safetensors file to write; a copy of its card is written beside it.
        calibrate: Pair set whose val split sets the score from which a source counts as visible.
        zoom: Share of the frame: where a map has a smaller hot part, the model zooms in on
            it. Default: as in the checkpoint, or never.
    """
    from soundspot.model import checkpoint

    calibration = None
    if calibrate is not None:
        from soundspot.data.pair_set import PairSet
        from soundspot.evaluation.source_detection import calibrate as choose_threshold
        from soundspot.inference.models import open_model

        model = open_model(source, device)
        if zoom is not None:
            card = replace(model.card, zoom=zoom)
            model = replace(model, learned=replace(model.learned, card=card))
        calibration = choose_threshold(model, PairSet.open(calibrate))
    checkpoint.export(source, target, calibration, zoom)
    say(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


def export_onnx(model: str, target: Path, /) -> None:
    """Write a model with its encoders as one ONNX file: frame and waveform -> map and verdict.

    The file is run with onnxruntime and compared with the model before it is kept.

    Args:
        model: Name of a model, .safetensors checkpoint or folder of a training run.
        target: The .onnx file to write.
    """
    from soundspot.inference.outputs import check_onnx

    check_onnx(target)  # before torch is imported
    from soundspot.inference.models import load
    from soundspot.inference.onnx_export import TOLERANCE, write_answer_graph

    difference = max(write_answer_graph(load(model, "cpu"), target).values())
    say(f"{target}: {target.stat().st_size / 1e6:.1f} MB")
    say(f"largest difference from PyTorch: {difference:.1e} (at most {TOLERANCE:g} is accepted)")
