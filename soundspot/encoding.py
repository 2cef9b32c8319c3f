"""`soundspot encode`: what will be computed, how big it will be, and a bar while it goes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from soundspot.config import build, override, plain
from soundspot.features import (
    FeatureSpec,
    cache_folder,
    encode,
    plan,
    size_on_disk,
    views_and_sounds,
)
from soundspot.pairs import PairSet
from soundspot.training.recipe import read_recipe


def run(
    folder: Path, recipe: Path | None, settings: Sequence[str], say: Callable[[str], None]
) -> None:
    """Encode a pair set under a progress bar.

    Args:
        folder: The pair set.
        recipe: Whose encoders and views to take; default: the default features.
        settings: Overrides of single features settings.
        say: Told what happens, a line at a time.
    """
    base = FeatureSpec() if recipe is None else read_recipe(recipe).features
    spec = build(FeatureSpec, override(plain(base), settings), "features")
    pairs = PairSet.open(folder)
    todo, place = plan(pairs), cache_folder(pairs, spec)
    total = views_and_sounds(spec, todo)
    say(f"{total} views and sounds, {size_on_disk(spec, todo) / 1e9:.2f} GB, into {place}")
    console = Console(stderr=True)
    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=total)
        encode(pairs, place, spec, advance=lambda done: bar.advance(task, done))
    say(f"complete: {place}")
