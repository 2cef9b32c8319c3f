"""soundspot: a frame and its sound go in, a map of where the sound comes from goes out.

import soundspot

result = soundspot.localize("clip.mp4")
print(result.describe())
result.save("where.png")
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from soundspot.common.errors import SoundspotError

if TYPE_CHECKING:
    from soundspot.evaluation.evaluate import evaluate
    from soundspot.inference.batch import localize_files
    from soundspot.inference.files import localize, localize_sources, localize_timeline
    from soundspot.inference.localizer import Localizer
    from soundspot.inference.models import load, model_names
    from soundspot.inference.result import Localization
    from soundspot.inference.video import render_video

__version__ = "0.2.0"
__all__ = [
    "Localization",
    "Localizer",
    "SoundspotError",
    "evaluate",
    "load",
    "localize",
    "localize_files",
    "localize_sources",
    "localize_timeline",
    "model_names",
    "render_video",
    "train",
]

# What needs torch is imported on first use, so that `import soundspot` is quick.
_LAZY = {
    "Localization": "soundspot.inference.result",
    "Localizer": "soundspot.inference.localizer",
    "evaluate": "soundspot.evaluation.evaluate",
    "load": "soundspot.inference.models",
    "localize": "soundspot.inference.files",
    "localize_files": "soundspot.inference.batch",
    "localize_sources": "soundspot.inference.files",
    "localize_timeline": "soundspot.inference.files",
    "model_names": "soundspot.inference.models",
    "render_video": "soundspot.inference.video",
}


def train(
    recipe: str | Path,
    settings: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    device: str = "auto",
) -> Path:
    """Train a recipe, or resume its interrupted run, like `soundspot train`.

    Args:
        recipe: A YAML file, or the name of one that ships, such as "escvoc_sspl".
        settings: Overrides such as "train.epochs=3".
        out: Folder of the run. Default: runs/ plus the recipe's name.
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda" or "mps".

    Returns:
        The folder of the run, which `load` and `evaluate` accept.

    Example:
        >>> run = soundspot.train("recipe.yaml", ["train.epochs=1"], out="runs/first")
        >>> soundspot.load(run).card.epoch
        1
    """
    import shlex
    from functools import partial

    from soundspot.evaluation.predictions import validate
    from soundspot.inference.teacher import teacher_maps
    from soundspot.training.loop import train as train_recipe
    from soundspot.training.recipe import find_recipe, read_recipe
    from soundspot.training.run_folder import training_curves

    path = find_recipe(recipe)
    run = Path("runs") / path.stem if out is None else Path(out)
    command = shlex.join(["soundspot", "train", str(recipe), *settings, "--out", str(run)])
    made = read_recipe(path, settings)
    teach = partial(teacher_maps, made.teacher, device=device) if made.teacher else None
    train_recipe(made, run, validate, training_curves, device=device, command=command, teach=teach)
    return run


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", *__all__]
