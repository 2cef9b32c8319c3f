"""Train the runs that a table lacks, take the others from their records, and score them.

A run's folder is named after its recipe, so tables share their runs, and an interrupted table
resumes.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from soundspot.common.config import from_dict, read_typed
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.benchmarks import Benchmark, find_benchmark, find_scenes
from soundspot.evaluation.evaluate import evaluate
from soundspot.evaluation.listening import mean_of_group, peak_on_side
from soundspot.evaluation.metrics import PerPair
from soundspot.evaluation.predictions import validate
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN, Contender
from soundspot.evaluation.runner import Evaluation, Result
from soundspot.evaluation.source_detection import ALL
from soundspot.features.cache import open_encoded, sound_shape
from soundspot.features.encoding import encode_with_bar
from soundspot.inference.localizer import Localizer, Part
from soundspot.parallel.devices import AUTO
from soundspot.reproduce import records
from soundspot.reproduce.experiments import Line, TrainingSet, published_key, recipe_of
from soundspot.reproduce.records import Scores, TestSet, cut
from soundspot.training.data import check_batch
from soundspot.training.loop import train
from soundspot.training.recipe import Recipe
from soundspot.training.run_folder import RESULT, git_commit, training_curves

DUETS = "duets"
MORE_CYCLES = 2  # passes that are scored beyond the trained T
TIMED = 32  # maps, to say how long one takes
DEFAULT_BENCHMARKS = {
    "escvoc": ("escvoc", "escvoc-duets"),
    "flickr": ("flickr249",),
    "vggsound": ("vggss4692",),
}
TRAINING = ("recipe", "provenance", "steps", "best_step", "epochs")  # of a run's result.json

log = logging.getLogger(__name__)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Media:
    """The data to train and test on; without them a table is made from records alone.

    The benchmarks are one and then its duets, if it has any.
    """

    train_on: PairSet
    test_on: PairSet
    benchmarks: tuple[Benchmark, ...]
    annotations: Path | None = None

    def tested_on(self) -> TestSet:
        """What tells the test set from others, and how much of it there is."""
        counts, parts = [], []
        for benchmark in self.benchmarks:
            scenes, _ = find_scenes(benchmark, self.test_on, self.annotations)
            counts.append(sum(scene.visible for scene in scenes))
            if not counts[-1]:
                raise SoundspotError(f"{self.test_on.root} has no pair of {benchmark.name}")
            if len(scenes) < benchmark.count:
                whole = f"{benchmark.count:,} {benchmark.unit} of {benchmark.name}"
                parts.append(f"{len(scenes):,} of the {whole}")
        names = tuple(benchmark.name for benchmark in self.benchmarks)
        coverage = " and ".join(parts) or None
        return TestSet(names, self.test_on.fingerprint()[:16], coverage, counts[0])

    def evaluate(
        self, models: Sequence[Path], guidance: float = 0.0, device: str = AUTO
    ) -> Evaluation:
        """What runs score on every benchmark."""
        return evaluate(
            models,
            [benchmark.name for benchmark in self.benchmarks],
            data=self.test_on.root,
            annotations=self.annotations,
            guidance=guidance,
            device=device,
        )


@dataclass(frozen=True)
class ReproductionPlan:
    """What to reproduce.

    Attributes:
        media: The data, to train and score what has no record; None: leave it out.
        lines: Labels of the lines that may be trained; none: all of them.
    """

    name: str
    data: TrainingSet
    tested_on: TestSet
    media: Media | None
    seeds: int
    quick: bool
    runs: Path
    records: Path
    device: str = AUTO
    lines: tuple[str, ...] = ()

    def folder(self, line: Line, seed: int) -> Path | None:
        """The folder of a line's run on this machine; None if it may not be trained."""
        if self.media is None or (self.lines and line.label not in self.lines):
            return None
        recipe = recipe_of(line, self.data, seed, self.quick)
        return run_folder(self.runs, recipe, self.media.train_on)

    def finished(self, line: Line, seed: int) -> Path | None:
        """The same; None too if the run is not complete."""
        folder = self.folder(line, seed)
        return folder if folder and (folder / RESULT).exists() else None


def find_media(
    data: Path, test: Path | None, benchmarks: Sequence[str], annotations: Path | None
) -> Media:
    """Open the training and test sets; ESC-VOC includes its own test set."""
    train_on = PairSet.open(data)
    names = choose_benchmarks(train_on.name, benchmarks)
    if test is None and train_on.name != "escvoc":
        raise SoundspotError(f"{train_on.name} has no test set of its own: give --test")
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


def describe(media: Media) -> tuple[TrainingSet, TestSet]:
    """What tells the training set and the test set from others."""
    pairs = media.train_on
    return TrainingSet(pairs.name, pairs.root, pairs.fingerprint()[:16]), media.tested_on()


def find_recorded(path: Path, data: Path, benchmarks: Sequence[str]) -> tuple[TrainingSet, TestSet]:
    """The training set of a name and its test set, as the records tell them."""
    wanted = choose_benchmarks(data.name, benchmarks)
    found = {
        (scores.provenance["data_fingerprint"], scores.place[0])
        for scores in records.read_records(path)
        if scores.provenance.get("data") == data.name and scores.benchmarks == wanted
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
    known: Sequence[Scores],
    line: Line,
    seed: int,
    say: Say,
    needs_folder: bool = False,
) -> Scores | None:
    """The scores of a run; None if it would have to be trained and the plan forbids that.

    `known` are the records of runs; with `needs_folder` they are not enough if it may be trained.
    """
    recipe = recipe_of(line, plan.data, seed, plan.quick)
    asked = records.name_run(plan.data.fingerprint, recipe), (plan.tested_on, line.guidance)
    scores = next((each for each in known if (each.run, each.place) == asked), None)
    folder = plan.folder(line, seed)
    # A record is enough, unless the run itself is needed and can be had.
    if scores and (not needs_folder or folder is None or plan.finished(line, seed)):
        say(f"{line.label}, seed {seed}: recorded")
        return scores
    if plan.media is None or folder is None:
        say(f"{line.label}, seed {seed}: not run")
        return None
    say(f"{line.label}, seed {seed}: {folder}")
    train_missing(recipe, folder, say, plan.device)
    scores = score_run(folder, plan.media, line.guidance, plan.device)
    records.add_record(plan.records, scores)
    return scores


def train_missing(recipe: Recipe, folder: Path, say: Say, device: str = AUTO) -> None:
    """Train a recipe unless its run is complete."""
    if (folder / RESULT).exists():
        return
    pairs = PairSet.open(recipe.pairs)
    check_batch(pairs, recipe.train.batch, advice="give a larger set with --data")
    try:
        open_encoded(pairs, recipe.features)
    except SoundspotError as error:  # if it is stale or damaged, encoding says so and stops
        log.info("%s", error)
        encode_with_bar(pairs, recipe.features, say, device=device)
    command = f"soundspot train {folder / 'recipe.json'}"
    train(recipe, folder, validate, training_curves, device=device, command=command)


def score_run(folder: Path, media: Media, guidance: float = 0.0, device: str = AUTO) -> Scores:
    """Score the best step of a run (chosen on validation data) on the test set."""
    evaluation = media.evaluate([folder], guidance, device)
    result, *others = evaluation.results
    tested = own_contender(result, guidance)
    assert tested.maps is not None  # only baselines may lack them
    # What only some tables show: duets, and noticing that no source is visible.
    duets = None
    for other in others:
        sides = [scene.side for scene in other.scenes if scene.side is not None]
        groups = [scene.group for scene in other.scenes if scene.group is not None]
        maps = own_contender(other, guidance).maps
        duets = None if maps is None else mean_of_group(peak_on_side(maps, sides), groups)
    made = [x for x in result.source_detections if x.negatives == ALL]
    values = {
        "guidance": guidance,
        "ms": _milliseconds(evaluation.models[0].learned),
        "no_source_f1": made[0].f1 if made else None,
        "duets": duets,
        "by_cycle": _score_passes(evaluation.models[0], media, result),
        "inverted": score(-tested.maps, result.truths, [MAIN])[MAIN],
        "published": published_key(media.train_on, media.benchmarks[0].name),
    }

    def with_training(stored: dict[str, Any]) -> dict[str, Any]:
        training = {name: stored[name] for name in TRAINING}
        training["epochs"] = cut(training["epochs"])
        return _as_scores(media, stored["recipe"]["method"], tested, values) | training

    return read_typed(folder / RESULT, Scores, f"delete {folder} to train again", with_training)


def own_contender(result: Result, guidance: float) -> Contender:
    """The only model of a result, which comes first, or what object guidance makes of it."""
    return result.contenders[1 if guidance else 0]


def _score_passes(model: Localizer, media: Media, result: Result) -> list[PerPair]:
    """What a model with a PCM scores after each of its passes, and after a few more."""
    if model.trained_cycles is None:
        return []
    frames = [scene.frame for scene in result.scenes]
    sounds = [scene.audio for scene in result.scenes]
    seen = predictions.open_features(model, media.test_on, frames, sounds)
    inputs = model, seen, frames, seen.sound(sounds), model.trained_cycles + MORE_CYCLES
    return [score(maps, result.truths, [MAIN])[MAIN] for maps in predictions.maps_by_cycle(*inputs)]


def _milliseconds(part: Part) -> float:
    """CPU time of a map, without the encoders."""
    spec = part.card.features
    f_v = torch.rand(TIMED, spec.c_v, spec.grid, spec.grid, device=part.device)
    f_a = torch.rand(TIMED, *sound_shape(spec), device=part.device)
    began = time.process_time()
    with torch.inference_mode():
        part.method.maps(f_v, f_a)
    return 1000 * (time.process_time() - began) / TIMED


def score_baselines(media: Media, folders: Sequence[Path]) -> list[Scores]:
    """Score what needs no model; image saliency needs cached features, or a run's encoder."""
    (result, *_) = media.evaluate(folders).results
    trivial = [contender for contender in result.contenders if contender.kind == "trivial"]
    return [from_dict(Scores, _as_scores(media, each.name, each, {})) for each in trivial]


def _as_scores(
    media: Media, label: str, contender: Contender, values: Mapping[str, Any]
) -> dict[str, Any]:
    about = {"label": label, "commit": git_commit(), **media.tested_on()._asdict()}
    plain: dict[str, Any] = cut({"by_protocol": dict(contender.scores), **values})
    return about | plain
