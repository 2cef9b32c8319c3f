"""Train what a table lacks, reuse what is there, and score every run on the test set.

A run's folder is named after its recipe, so tables share their runs, and a table that was
interrupted goes on where it stopped.

Axes: n pairs, m duets, h w the map as a model made it.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from soundspot.common.config import from_dict, non_defaults
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.benchmarks import Benchmark
from soundspot.evaluation.benchmarks import find as find_benchmark
from soundspot.evaluation.guidance import guide
from soundspot.evaluation.listening import mean_of_group, peak_on_side
from soundspot.evaluation.metrics import Truths
from soundspot.evaluation.predictions import Encoded, Features, Scene
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN
from soundspot.evaluation.validation import validate
from soundspot.features.cache import FeatureCache, cache_folder
from soundspot.features.encoding import encode_with_bar
from soundspot.inference.localizer import Localizer, load
from soundspot.model.methods import METHODS
from soundspot.training.curves import training_curves
from soundspot.training.loop import train
from soundspot.training.recipe import Recipe

RESULT = "result.json"
DUETS = "duets"
MORE_CYCLES = 2
DEFAULT_BENCHMARKS = {
    "escvoc": ("escvoc", "escvoc-duets"),
    "flickr": ("flickr249",),
    "vggsound": ("vggss4692",),
}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TestSet:
    """What every run of a table is tested on.

    Attributes:
        benchmarks: One, and after it its duets, if it has some.
        pairs: Their media.
        annotations: Folder of their annotation files, where they are not in the pair set.
    """

    benchmarks: tuple[Benchmark, ...]
    pairs: PairSet
    annotations: Path | None = None


@dataclass(frozen=True, eq=False)
class Scored:
    """A run on the test set.

    Attributes:
        ciou: Of each pair, protocol `sspl`.
        duets: Share of each duet's two sounds whose peak is on the sounding side.
        by_cycle: cIoU of each pair after each pass of a PCM.
    """

    ciou: Float[np.ndarray, "n"]
    duets: Float[np.ndarray, "m"] | None = None
    by_cycle: tuple[Float[np.ndarray, "n"], ...] = ()


def set_exam(
    train_on: PairSet, test: Path | None, benchmarks: Sequence[str], annotations: Path | None
) -> TestSet:
    """The test set of a training set; ESC-VOC brings its own."""
    wanted = tuple(benchmarks) or DEFAULT_BENCHMARKS.get(train_on.name)
    if wanted is None or (test is None and train_on.name != "escvoc"):
        raise SoundspotError(
            f"a table of {train_on.name} needs something to be tested on: name --benchmark, "
            "--test (the pair set of its media) and --annotations"
        )
    if DUETS in wanted[0] or len(wanted) > 2 or any(DUETS not in name for name in wanted[1:]):
        raise SoundspotError(
            f"a table is tested on one benchmark and, after it, its duets: not on {list(wanted)}"
        )
    pairs = train_on if test is None else PairSet.open(test)
    return TestSet(tuple(find_benchmark(name) for name in wanted), pairs, annotations)


def run_folder(root: Path, recipe: Recipe, pairs: PairSet) -> Path:
    """Where a recipe's run is: the same for whatever table asks for it."""
    model = non_defaults(from_dict(METHODS[recipe.method].config, recipe.model))
    content = non_defaults(recipe) | {"pairs": pairs.fingerprint(), "model": model}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return root / f"{recipe.method}-{digest[:10]}"


def train_missing(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Train a recipe unless its run is complete; returns what the run says of itself."""
    result = folder / RESULT
    if not result.exists():
        pairs = PairSet.open(recipe.pairs)
        _encode_missing(pairs, recipe, say)
        train(recipe, folder, validate, training_curves)
    try:
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{result} is damaged; delete {folder} to train it again") from error
    return found


def _encode_missing(pairs: PairSet, recipe: Recipe, say: Callable[[str], None]) -> None:
    """A stale or damaged cache is left as it is, for `train` to complain of."""
    folder = cache_folder(pairs, recipe.features)
    try:
        FeatureCache.open(folder, pairs, recipe.features)
    except SoundspotError as error:
        log.info("%s", error)
        encode_with_bar(pairs, recipe.features, say)


def score_run(folder: Path, exam: TestSet, guidance: float = 0.0, passes: bool = False) -> Scored:
    """Judge the best epoch of a run (chosen on validation data) on the test set.

    Args:
        folder: The run.
        exam: The test set.
        guidance: Weight of object guidance.
        passes: Whether to judge each pass of a PCM too.
    """
    model = load(folder)
    first, *others = exam.benchmarks
    scenes, truths = scenes_of(first, exam)
    traced = _traced(model, exam, scenes) if passes else ()
    scored = Scored(
        ciou=score(maps_of(model, exam, scenes, guidance), truths)[MAIN],
        by_cycle=tuple(score(one, truths)[MAIN] for one in traced),
    )
    for benchmark in others:
        scenes, _ = scenes_of(benchmark, exam)
        sides = [scene.item.side for scene in scenes if scene.item.side is not None]
        groups = [scene.item.group for scene in scenes if scene.item.group is not None]
        peaks = peak_on_side(maps_of(model, exam, scenes, guidance), sides)
        scored = replace(scored, duets=mean_of_group(peaks, groups))
    return scored


def scenes_of(benchmark: Benchmark, exam: TestSet) -> tuple[list[Scene], Truths]:
    """The pairs of a benchmark with a visible source whose media are there, and their truth."""
    scenes, missing = predictions.find_scenes(benchmark, exam.pairs, exam.annotations)
    scenes = [scene for scene in scenes if scene.item.visible]
    if missing:
        log.warning("%d pairs of %s have no media", len(missing), benchmark.name)
    if not scenes:
        raise SoundspotError(f"{exam.pairs.root} has none of the pairs of {benchmark.name}")
    return scenes, benchmark.truths([scene.item for scene in scenes])


def maps_of(
    model: Localizer, exam: TestSet, scenes: Sequence[Scene], guidance: float = 0.0
) -> Float[np.ndarray, "n h w"]:
    """The maps of a model, with object guidance if it has a weight."""
    features, frames, sounds = _features(model, exam, scenes)
    maps = predictions.model_maps(model, features, frames, features.sound(sounds))
    if not guidance:
        return maps
    return guide(maps, predictions.saliency_maps(features, frames), guidance)


def _traced(
    model: Localizer, exam: TestSet, scenes: Sequence[Scene]
) -> Sequence[Float[np.ndarray, "n h w"]]:
    """The maps after each pass of a PCM, a few more than it was trained with; else nothing."""
    cycles = predictions.cycles_of(model)
    if cycles is None:
        return ()
    features, frames, sounds = _features(model, exam, scenes)
    heard = features.sound(sounds)
    return list(predictions.maps_by_cycle(model, features, frames, heard, cycles + MORE_CYCLES))


def _features(
    model: Localizer, exam: TestSet, scenes: Sequence[Scene]
) -> tuple[Features, list[str], list[str]]:
    frames = [scene.frame for scene in scenes if scene.frame is not None]
    sounds = [scene.audio for scene in scenes if scene.audio is not None]
    features = predictions.open_features(model, exam.pairs, frames, sounds)
    if isinstance(features, Encoded) and features.lost:
        raise SoundspotError(
            f"{len(features.lost)} files of {exam.pairs.root} cannot be read: "
            f"see `soundspot pairs check {exam.pairs.root}`"
        )
    return features, frames, sounds
