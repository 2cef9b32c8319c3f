"""Train the runs that a table lacks, take the others from their records, and score them.

A run's folder is named after its recipe, so tables share their runs, and an interrupted table
resumes.

Axes: n pairs, h w the map at the resolution of the model.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from soundspot.common.config import from_dict, read_typed, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import Benchmark, find_benchmark, find_scenes
from soundspot.evaluation.listening import mean_of_group, peak_on_side
from soundspot.evaluation.metrics import PerPair, RawMaps, Truths
from soundspot.evaluation.predictions import Features, Localizer
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN
from soundspot.evaluation.source_detection import ALL, WITH_MADE_NEGATIVES, score_escvoc
from soundspot.evaluation.trivial import baselines, guide
from soundspot.evaluation.validation import validate
from soundspot.features.cache import AnyCache, open_encoded
from soundspot.features.encoding import encode_with_bar
from soundspot.features.spec import FeatureSpec
from soundspot.parallel.devices import AUTO
from soundspot.reproduce import records
from soundspot.reproduce.experiments import Line, TrainingSet, published_key, recipe_of
from soundspot.reproduce.records import Record, Scores, TestedOn, Training, cut
from soundspot.training.data import check_batch
from soundspot.training.loop import train
from soundspot.training.recipe import Recipe
from soundspot.training.run_folder import RESULT, git_commit, training_curves

DUETS = "duets"
MORE_CYCLES = 2  # passes that are scored beyond the trained T
DEFAULT_BENCHMARKS = {
    "escvoc": ("escvoc", "escvoc-duets"),
    "flickr": ("flickr249",),
    "vggsound": ("vggss4692",),
}

log = logging.getLogger(__name__)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Media:
    """The data to train and test on; without them a table is made from records alone.

    Attributes:
        train_on: The training set.
        test_on: The media of the benchmarks.
        benchmarks: One benchmark, then its duets if it has any.
        annotations: Folder of their annotation files, if the pair set has none.
    """

    train_on: PairSet
    test_on: PairSet
    benchmarks: tuple[Benchmark, ...]
    annotations: Path | None = None

    def scenes(self, benchmark: Benchmark) -> tuple[list[BenchmarkItem], Truths]:
        """The pairs of a benchmark that have media and a visible source, and their truth."""
        scenes, _ = find_scenes(benchmark, self.test_on, self.annotations)
        scenes = [scene for scene in scenes if scene.visible]
        if not scenes:
            raise SoundspotError(f"{self.test_on.root} has none of the pairs of {benchmark.name}")
        return scenes, benchmark.truths(scenes)

    def coverage(self) -> str | None:
        """How much of each benchmark can be tested; None if it is all of it."""
        parts = []
        for benchmark in self.benchmarks:
            count = len(find_scenes(benchmark, self.test_on, self.annotations)[0])
            if count < benchmark.count:
                whole = f"{benchmark.count:,} {benchmark.unit} of {benchmark.name}"
                parts.append(f"{count:,} of the {whole}")
        return " and ".join(parts) or None

    def tested_on(self) -> TestedOn:
        """What tells the test set from others; it must hold pairs of every benchmark."""
        counts = [len(self.scenes(benchmark)[0]) for benchmark in self.benchmarks]
        names = tuple(benchmark.name for benchmark in self.benchmarks)
        return TestedOn(names, self.test_on.fingerprint()[:16], self.coverage(), counts[0])


@dataclass(frozen=True)
class ReproductionPlan:
    """What to reproduce.

    Attributes:
        name: The table or figure.
        data: The training set.
        tested_on: The test set.
        media: Both of them, to train and score what has no record; None: leave it out.
        seeds: How many, counted from 0.
        quick: Fewer steps.
        runs: Folder of all runs.
        records: File of the records of runs.
        device: Where to compute, as `soundspot.load` takes it.
        lines: Labels of the lines that may be trained; none: all of them.
    """

    name: str
    data: TrainingSet
    tested_on: TestedOn
    media: Media | None
    seeds: int
    quick: bool
    runs: Path
    records: Path
    device: str = AUTO
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScoredRun:
    """A run as a table takes it."""

    recipe: Recipe
    training: Training
    scores: Scores
    folder: Path | None = None  # if it was trained on this machine


def find_media(
    data: Path, test: Path | None, benchmarks: Sequence[str], annotations: Path | None
) -> Media:
    """Open the training and test sets; ESC-VOC includes its own test set."""
    train_on = PairSet.open(data)
    names = choose_benchmarks(train_on.name, benchmarks)
    if test is None and train_on.name != "escvoc":
        raise SoundspotError(
            f"a table of {train_on.name} needs a test set: give --test (the pair set of its "
            "media) and --annotations"
        )
    test_on = train_on if test is None else PairSet.open(test)
    return Media(train_on, test_on, tuple(map(find_benchmark, names)), annotations)


def choose_benchmarks(data: str, asked: Sequence[str]) -> tuple[str, ...]:
    """One benchmark, then its duets: those asked for, or the training set's own."""
    names = tuple(asked) or DEFAULT_BENCHMARKS.get(data)
    if names is None:
        raise SoundspotError(f"{data} has no test set of its own: give --benchmark and --test")
    if DUETS in names[0] or len(names) > 2 or any(DUETS not in name for name in names[1:]):
        raise SoundspotError(f"expected one benchmark and, after it, its duets, got {list(names)}")
    return names


def describe(media: Media) -> tuple[TrainingSet, TestedOn]:
    """What tells the training set and the test set from others."""
    pairs = media.train_on
    return TrainingSet(pairs.name, pairs.root, pairs.fingerprint()[:16]), media.tested_on()


def find_recorded(
    path: Path, data: Path, benchmarks: Sequence[str]
) -> tuple[TrainingSet, TestedOn]:
    """The training set of a name and its test set, as the records tell them."""
    wanted = choose_benchmarks(data.name, benchmarks)
    found = {
        (record.training.provenance["data_fingerprint"], scores.tested_on)
        for record in records.read_records(path)
        if record.training and record.training.provenance["data"] == data.name
        for scores in record.scores
        if scores.tested_on.benchmarks == wanted
    }
    if len(found) != 1:
        count = "no run" if not found else f"runs of {len(found)} versions"
        raise SoundspotError(f"{path} has {count} of {data.name}, tested on {' and '.join(wanted)}")
    fingerprint, tested_on = found.pop()
    return TrainingSet(data.name, data, fingerprint), tested_on


def run_folder(root: Path, recipe: Recipe, pairs: PairSet) -> Path:
    """The folder of a recipe's run, the same for every table."""
    content = records.settings_of(recipe) | {"pairs": pairs.fingerprint()}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return root / f"{recipe.method}-{digest[:10]}"


def take_run(
    plan: ReproductionPlan,
    known: Sequence[Record],
    line: Line,
    seed: int,
    say: Say,
    needs_folder: bool = False,
) -> ScoredRun | None:
    """A run with its scores; None if it would have to be trained and the plan forbids that.

    Args:
        plan: What to reproduce.
        known: The records of runs.
        line: Its line of the table.
        seed: Its seed.
        say: Receives progress messages.
        needs_folder: Whether its scores are not enough, if it may be trained.
    """
    recipe = recipe_of(line, plan.data, seed, plan.quick)
    run = plan.data.fingerprint, records.settings_of(recipe)
    record = next((record for record in known if record.run == run), None)
    scores = record.find(plan.tested_on, line.guidance) if record else None
    media = plan.media if not plan.lines or line.label in plan.lines else None
    folder = None if media is None else run_folder(plan.runs, recipe, media.train_on)
    finished = folder is not None and (folder / RESULT).exists()
    # A record is enough, unless the run itself is needed and can be had.
    if record and record.training and scores and (finished or not needs_folder or media is None):
        say(f"{line.label}, seed {seed}: recorded")
        return ScoredRun(recipe, record.training, scores, folder if finished else None)
    if media is None or folder is None:
        say(f"{line.label}, seed {seed}: not run")
        return None
    say(f"{line.label}, seed {seed}: {folder}")
    training = train_missing(recipe, folder, say, plan.device)
    scores = score_run(folder, media, line.guidance, plan.device)
    records.add_record(plan.records, Record(recipe.method, training, (scores,)))
    return ScoredRun(recipe, training, scores, folder)


def train_missing(recipe: Recipe, folder: Path, say: Say, device: str = AUTO) -> Training:
    """Train a recipe unless its run is complete, and return its result."""
    result = folder / RESULT
    if not result.exists():
        pairs = PairSet.open(recipe.pairs)
        check_batch(pairs, recipe.train.batch, advice="give a larger set with --data")
        try:
            open_encoded(pairs, recipe.features)
        except SoundspotError as error:  # if it is stale or damaged, encoding says so and stops
            log.info("%s", error)
            encode_with_bar(pairs, recipe.features, say, device=device)
        command = f"soundspot train {folder / 'recipe.json'}"
        train(recipe, folder, validate, training_curves, device=device, command=command)
    used = Training.__dataclass_fields__
    training = read_typed(
        *(result, Training, f"delete {folder} to train it again"),
        lambda values: {name: values[name] for name in used},
    )
    return replace(training, epochs=tuple(cut(training.epochs)))


def score_run(folder: Path, media: Media, guidance: float = 0.0, device: str = AUTO) -> Scores:
    """Score the best step of a run (chosen on validation data) on the test set."""
    model = predictions.open_model(folder, device)
    first, *others = media.benchmarks
    scenes, truths = media.scenes(first)
    seen = features_of(model, media, scenes)
    began = time.process_time()
    maps = maps_of(model, seen, scenes, guidance)
    taken = time.process_time() - began
    by_protocol = score(maps, truths)
    # What only some tables show: more and fewer passes, missing sources, inverted maps, duets.
    passes: Sequence[RawMaps] = ()
    if model.trained_cycles is not None:
        inputs = seen, [scene.frame for scene in scenes], _sounds(seen, scenes)
        passes = list(predictions.maps_by_cycle(model, *inputs, model.trained_cycles + MORE_CYCLES))
    f1 = None
    if first.name in WITH_MADE_NEGATIVES:
        about = media.test_on, scenes, maps, by_protocol[MAIN]
        found = score_escvoc(model, seen, *about, cycles=None)
        f1 = next(detection.f1 for detection in found if detection.negatives == ALL)
    duets = None
    for benchmark in others:
        pictures, _ = media.scenes(benchmark)
        sides = [scene.side for scene in pictures if scene.side is not None]
        groups = [scene.group for scene in pictures if scene.group is not None]
        both = maps_of(model, features_of(model, media, pictures), pictures, guidance)
        duets = mean_of_group(peak_on_side(both, sides), groups)
    values = {
        "guidance": guidance,
        "ms": 1000 * taken / len(scenes),
        "no_source_f1": f1,
        "duets": duets,
        "by_cycle": [score(passed, truths)[MAIN] for passed in passes],
        "inverted": score(-maps, truths)[MAIN],
        "published": published_key(media.train_on, first.name),
    }
    return _as_scores(media, by_protocol, values)


def score_baselines(media: Media, folder: Path | None) -> list[Record]:
    """Score what needs no model; image saliency needs cached features, or a run's encoder."""
    scenes, truths = media.scenes(media.benchmarks[0])
    frames = [scene.frame for scene in scenes]
    seen: Features | AnyCache | None
    seen = predictions.open_cache(media.test_on, FeatureSpec(), frames)
    if seen is None and folder is not None:
        seen = features_of(predictions.open_model(folder), media, scenes)
    salient = None if seen is None else predictions.saliency_maps(seen, frames)
    return [
        Record(baseline.name, scores=(_as_scores(media, baseline.scores, {}),))
        for baseline in baselines(truths, salient)
    ]


def _as_scores(
    media: Media, by_protocol: Mapping[str, PerPair], values: Mapping[str, Any]
) -> Scores:
    plain = cut({"by_protocol": dict(by_protocol), **values})
    about = {"tested_on": to_dict(media.tested_on()), "commit": git_commit()}
    return from_dict(Scores, about | plain)


def features_of(model: Localizer, media: Media, scenes: Sequence[BenchmarkItem]) -> Features:
    """The features of scenes for a model."""
    frames, sounds = [scene.frame for scene in scenes], [scene.audio for scene in scenes]
    features = predictions.open_features(model, media.test_on, frames, sounds)
    if features.lost:
        raise SoundspotError(
            f"{len(features.lost)} files of {media.test_on.root} cannot be read: "
            f"see `soundspot pairs check {media.test_on.root}`"
        )
    return features


def maps_of(
    model: Localizer, seen: Features, scenes: Sequence[BenchmarkItem], guidance: float = 0.0
) -> Float[np.ndarray, "n h w"]:
    """The maps of a model, with object guidance if its weight is not 0."""
    frames = [scene.frame for scene in scenes]
    maps: RawMaps = predictions.maps_of(model, seen, frames, _sounds(seen, scenes))
    if not guidance:
        return maps
    return guide(maps, predictions.saliency_maps(seen, frames), guidance)


def _sounds(seen: Features, scenes: Sequence[BenchmarkItem]) -> Float[Tensor, "n p a"]:
    return seen.sound([scene.audio for scene in scenes])
