"""Train the runs a table lacks, reuse the others, and score every run on the test set.

A run's folder is named after its recipe, so tables share their runs, and an interrupted table
resumes.

Axes: n pairs, m duets, h w the map at the resolution of the model.
"""

import hashlib
import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from soundspot.common.config import from_dict, non_defaults, read_typed
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import Benchmark, find_benchmark
from soundspot.evaluation.guidance import guide
from soundspot.evaluation.listening import mean_of_group, peak_on_side
from soundspot.evaluation.metrics import Truths
from soundspot.evaluation.predictions import Features, Localizer
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN
from soundspot.evaluation.scenes import find_scenes
from soundspot.evaluation.source_detection import ALL, WITH_MADE_NEGATIVES, score_escvoc
from soundspot.evaluation.validation import validate
from soundspot.features.cache import open_encoded
from soundspot.features.encoding import encode_with_bar
from soundspot.model.methods import METHODS
from soundspot.parallel.devices import AUTO
from soundspot.reproduce.experiments import Experiment
from soundspot.training.curves import training_curves
from soundspot.training.loop import train
from soundspot.training.provenance import git_commit
from soundspot.training.recipe import Recipe
from soundspot.training.state import RESULT

DUETS = "duets"
MUSIC = "music"
FORMAT = 2
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
        benchmarks: One benchmark, then its duets if it has any; none if there are no boxes, and
            only the likeness of maps can be told.
        pairs: Their media.
        annotations: Folder of their annotation files, if the pair set has none.
    """

    benchmarks: tuple[Benchmark, ...]
    pairs: PairSet
    annotations: Path | None = None


@dataclass(frozen=True)
class ReproductionPlan:
    """What to reproduce.

    Attributes:
        name: The table or figure.
        pairs: The training set.
        test_set: The test set.
        seeds: How many, counted from 0.
        quick: Fewer epochs; one seed unless more are asked for.
        runs: Folder of all runs.
        device: Where to compute, as `soundspot.load` takes it.
        records: Folder of the records of runs; None: `records` in that of the runs.
        no_training: Leave out the runs that are neither finished nor recorded.
        lines: Labels of the lines that may be trained; none: all of them.
    """

    name: str
    pairs: PairSet
    test_set: TestSet
    seeds: int
    quick: bool
    runs: Path
    device: str = AUTO
    records: Path | None = None
    no_training: bool = False
    lines: tuple[str, ...] = ()

    def for_line(self, label: str) -> "ReproductionPlan":
        """The plan for one line, which is not trained if others were asked for."""
        wanted = not self.lines or label in self.lines
        return self if wanted else replace(self, no_training=True)


@dataclass(frozen=True)
class RunResult:
    """What tables need of a run's result.json; `epochs` is its log."""

    provenance: dict[str, Any]
    recipe: dict[str, Any]
    steps: int
    best_step: int
    epochs: tuple[dict[str, Any], ...]

    def __post_init__(self) -> None:
        """Refuse a log without what tables read in it."""
        numbers = all(isinstance(v, (int, float)) for line in self.epochs for v in line.values())
        whole = all({"step", "seconds", "best"} <= set(line) for line in self.epochs)
        if not (numbers and whole and any(line["best"] for line in self.epochs)):
            raise ValueError("expected numbers, and a best step, in `epochs`")
        if not {"commit", "data_fingerprint"} <= set(self.provenance):
            raise ValueError("expected `commit` and `data_fingerprint` in `provenance`")


@dataclass(frozen=True, eq=False)
class RunScores:
    """The scores of a run on the test set.

    Attributes:
        by_protocol: cIoU of each pair, by protocol.
        no_source_f1: F1 of noticing that no source is visible; None without made negatives.
        ms: CPU time of a map, in milliseconds, without the encoders.
        duets: Per duet, the share of its two sounds whose peak is on the sounding side.
        by_cycle: cIoU of each pair after each pass of a PCM.
        inverted: cIoU of each pair with the map upside down, which is high for a model that avoids
            the object.
    """

    by_protocol: dict[str, Float[np.ndarray, "n"]]
    ms: float
    no_source_f1: float | None = None
    duets: Float[np.ndarray, "m"] | None = None
    by_cycle: tuple[Float[np.ndarray, "n"], ...] = ()
    inverted: Float[np.ndarray, "n"] | None = None

    @property
    def ciou(self) -> Float[np.ndarray, "n"]:
        """Of each pair, by the paper's protocol."""
        return self.by_protocol[MAIN]


def choose_test_set(
    train_on: PairSet,
    test: Path | None,
    benchmarks: Sequence[str],
    annotations: Path | None,
    experiment: Experiment | None = None,
) -> TestSet:
    """The test set for a training set; ESC-VOC includes its own.

    A figure of examples (`experiment`) can do without boxes if pairs with classes are held out.
    """
    if train_on.name == MUSIC and test is None and not benchmarks:
        if experiment is None or experiment.figure != "examples":
            raise SoundspotError(f"{train_on.name} has no boxes: only false-negatives can use it")
        return TestSet((), train_on)
    wanted = tuple(benchmarks) or DEFAULT_BENCHMARKS.get(train_on.name)
    if wanted is None or (test is None and train_on.name != "escvoc"):
        raise SoundspotError(
            f"a table of {train_on.name} needs a test set: give --benchmark, --test (the pair set "
            "of its media) and --annotations"
        )
    if DUETS in wanted[0] or len(wanted) > 2 or any(DUETS not in name for name in wanted[1:]):
        raise SoundspotError(f"expected one benchmark and, after it, its duets, got {list(wanted)}")
    pairs = train_on if test is None else PairSet.open(test)
    return TestSet(tuple(find_benchmark(name) for name in wanted), pairs, annotations)


def describe(plan: ReproductionPlan, experiment: Experiment) -> dict[str, Any]:
    """What every table of results says of itself."""
    return {
        "format": FORMAT,
        "table": plan.name,
        "title": experiment.title,
        "note": experiment.note,
        "figure": experiment.figure,
        "command": " ".join(["soundspot", *sys.argv[1:]]),
        "commit": git_commit(),
        "data": plan.pairs.name,
        "data_fingerprint": plan.pairs.fingerprint()[:16],
        "quick": plan.quick,
    }


def run_folder(root: Path, recipe: Recipe, pairs: PairSet) -> Path:
    """The folder of a recipe's run, the same for every table."""
    model = non_defaults(from_dict(METHODS[recipe.method].config, recipe.model))
    content = non_defaults(recipe) | {"pairs": pairs.fingerprint(), "model": model}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return root / f"{recipe.method}-{digest[:10]}"


def is_finished(folder: Path) -> bool:
    """Whether a run was trained to its end."""
    return (folder / RESULT).exists()


def check_some(entries: Sequence[object], plan: ReproductionPlan) -> None:
    """Refuse a table without lines, which only a plan without training can have."""
    if not entries:
        raise SoundspotError(
            f"no line of {plan.name} has a finished run in {plan.runs} or a record: leave out "
            "--no-training to train them"
        )


def train_missing(
    recipe: Recipe, folder: Path, say: Callable[[str], None], device: str = AUTO
) -> RunResult:
    """Train a recipe unless its run is complete, and return its result."""
    result = folder / RESULT
    if not is_finished(folder):
        pairs = PairSet.open(recipe.pairs)
        try:
            open_encoded(pairs, recipe.features)
        except SoundspotError as error:  # if it is stale or damaged, encoding says so and stops
            log.info("%s", error)
            encode_with_bar(pairs, recipe.features, say, device=device)
        train(recipe, folder, validate, training_curves, device=device)
    return read_typed(result, RunResult, f"delete {folder} to train it again", _used)


def _used(result: dict[str, Any]) -> dict[str, Any]:
    return {field.name: result[field.name] for field in fields(RunResult)}


def score_run(
    folder: Path,
    test_set: TestSet,
    guidance: float = 0.0,
    passes: bool = False,
    bench: bool = False,
    device: str = AUTO,
    inverted: bool = False,
) -> RunScores:
    """Score the best step of a run (chosen on validation data) on the test set.

    `passes` asks for the scores after each pass of a PCM too, and a few more than in training;
    `bench` for how well the model notices that no source is visible; `inverted` for the scores of
    the maps upside down.
    """
    model = predictions.open_model(folder, device)
    first, *others = test_set.benchmarks
    scenes, truths = scenes_of(first, test_set)
    traced: Sequence[Float[np.ndarray, "n h w"]] = ()
    if passes and model.trained_cycles is not None:
        inputs = features_of(model, test_set, scenes)
        traced = list(predictions.maps_by_cycle(model, *inputs, model.trained_cycles + MORE_CYCLES))
    began = time.process_time()
    maps = maps_of(model, test_set, scenes, guidance)
    taken = time.process_time() - began
    by_protocol = score(maps, truths)
    scores = RunScores(
        by_protocol=by_protocol,
        ms=1000 * taken / len(scenes),
        no_source_f1=_no_source_f1(model, test_set, scenes, maps, by_protocol[MAIN])
        if bench
        else None,
        by_cycle=tuple(score(maps, truths)[MAIN] for maps in traced),
        inverted=score(-maps, truths)[MAIN] if inverted else None,
    )
    for benchmark in others:
        scenes, _ = scenes_of(benchmark, test_set)
        sides = [scene.side for scene in scenes if scene.side is not None]
        groups = [scene.group for scene in scenes if scene.group is not None]
        peaks = peak_on_side(maps_of(model, test_set, scenes, guidance), sides)
        scores = replace(scores, duets=mean_of_group(peaks, groups))
    return scores


def _no_source_f1(
    model: Localizer,
    test_set: TestSet,
    scenes: Sequence[BenchmarkItem],
    maps: Float[np.ndarray, "n h w"],
    ciou: Float[np.ndarray, "n"],
) -> float | None:
    if test_set.benchmarks[0].name not in WITH_MADE_NEGATIVES:
        return None
    features = features_of(model, test_set, scenes)[0]
    detections = score_escvoc(model, features, test_set.pairs, scenes, maps, ciou, cycles=None)
    return next(detection.f1 for detection in detections if detection.negatives == ALL)


def scenes_of(benchmark: Benchmark, test_set: TestSet) -> tuple[list[BenchmarkItem], Truths]:
    """The pairs of a benchmark that have media and a visible source, and their truth."""
    scenes, _ = find_scenes(benchmark, test_set.pairs, test_set.annotations)
    scenes = [scene for scene in scenes if scene.visible]
    if not scenes:
        raise SoundspotError(f"{test_set.pairs.root} has none of the pairs of {benchmark.name}")
    return scenes, benchmark.truths(scenes)


def coverage(test_set: TestSet) -> str | None:
    """How much of each benchmark can be tested; None if it is all of it."""
    parts = []
    for benchmark in test_set.benchmarks:
        count = len(find_scenes(benchmark, test_set.pairs, test_set.annotations)[0])
        if count < benchmark.count:
            parts.append(
                f"{count:,} of the {benchmark.count:,} {benchmark.unit} of {benchmark.name}"
            )
    return " and ".join(parts) or None


def maps_of(
    model: Localizer, test_set: TestSet, scenes: Sequence[BenchmarkItem], guidance: float = 0.0
) -> Float[np.ndarray, "n h w"]:
    """The maps of a model, with object guidance if its weight is not 0."""
    features, frames, heard = features_of(model, test_set, scenes)
    maps: Float[np.ndarray, "n h w"] = predictions.maps_of(model, features, frames, heard)
    if not guidance:
        return maps
    return guide(maps, predictions.saliency_maps(features, frames), guidance)


def features_of(
    model: Localizer, test_set: TestSet, scenes: Sequence[BenchmarkItem]
) -> tuple[Features, list[str], Tensor]:
    """The features, the names of the frames, and the embeddings of their sounds."""
    frames, sounds = [scene.frame for scene in scenes], [scene.audio for scene in scenes]
    features = predictions.open_features(model, test_set.pairs, frames, sounds)
    if features.lost:
        raise SoundspotError(
            f"{len(features.lost)} files of {test_set.pairs.root} cannot be read: "
            f"see `soundspot pairs check {test_set.pairs.root}`"
        )
    return features, frames, features.sound(sounds)
