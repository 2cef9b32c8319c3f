"""Models x benchmarks -> rows: every contender and every baseline, judged on the same pairs.

A pair that one contender cannot be judged on (its picture, sound or map is missing) is left out for
all of them, listed and counted: numbers in one table are always of the same pairs.

Axes: n pairs, m groups (duets), h w the map as a model made it, t passes of a PCM.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import absence, predictions, rows
from soundspot.evaluation.absence import Absence
from soundspot.evaluation.benchmarks import BENCHMARKS, Benchmark, Flaws, find, flaws
from soundspot.evaluation.guidance import check_weight, guide
from soundspot.evaluation.metrics import Truths
from soundspot.evaluation.predictions import Encoded, Features, SavedMaps, Scene
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN, Comparison, Contender, Row
from soundspot.features.spec import FeatureSpec
from soundspot.inference.localizer import Localizer, load

ESCVOC = Path("data/escvoc")
WITH_MADE_NEGATIVES = ("escvoc", "escvoc-val")
MORE_CYCLES = 2  # passes that the figures show beyond the trained T


@dataclass(frozen=True)
class Job:
    """What to evaluate on what.

    Attributes:
        benchmarks: Names.
        models: Shipped names, checkpoints or run folders; without them only the baselines count.
        data: A pair set; default for ESC-VOC: data/escvoc, if it is there.
        annotations: Folder of the benchmark's own files.
        maps: Folders of maps that other codebases saved.
        cycles: T of PCM models, if not the one they were trained with.
        guidance: Weight of object guidance: every model stands in the tables with it too.
    """

    benchmarks: tuple[str, ...]
    models: tuple[str, ...] = ()
    data: Path | None = None
    annotations: Path | None = None
    maps: tuple[Path, ...] = ()
    cycles: int | None = None
    guidance: float = 0.0


@dataclass(frozen=True, eq=False)
class Result:
    """All that was found on one benchmark.

    Attributes:
        benchmark: Which.
        scenes: The evaluated pairs with a visible source.
        missing: id -> reason, as far as ids are known.
        evaluated: How many pairs were evaluated, with and without a visible source.
        flaws: Of the annotations.
        truths: Consensus maps of the scenes.
        contenders: Models, saved maps, baselines, in this order.
        rows: Contenders x protocols.
        comparisons: Paired tests.
        absences: Who can tell that no source is visible.
        pairs: Where the frames are, if anywhere.
    """

    benchmark: Benchmark
    scenes: tuple[Scene, ...]
    missing: Mapping[str, str]
    evaluated: int
    flaws: Flaws
    truths: Truths
    contenders: tuple[Contender, ...]
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]
    absences: tuple[Absence, ...]
    pairs: PairSet | None

    @property
    def lost(self) -> int:
        """Pairs of the benchmark that were not evaluated."""
        return self.benchmark.count - self.evaluated

    @property
    def coverage(self) -> str:
        """How much of the benchmark the numbers speak of."""
        return f"evaluated {self.evaluated:,} of {self.benchmark.count:,} {self.benchmark.unit}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of a job, and the cards of its models by name."""

    job: Job
    results: tuple[Result, ...]
    models: tuple[Localizer, ...]


def evaluate(job: Job) -> Evaluation:
    """Run a job; bad names and folders are refused before any model is loaded."""
    chosen = list({find(name).name: find(name) for name in job.benchmarks}.values())
    if not chosen:
        raise SoundspotError(f"name a benchmark: {', '.join(BENCHMARKS)}")
    check_weight(job.guidance)
    if job.guidance and not job.models:
        raise SoundspotError("object guidance needs a model whose maps it can guide")
    saved = [SavedMaps(folder) for folder in dict.fromkeys(job.maps)]
    places = {b.name: pair_set(b, job) for b in chosen}
    models = [load(name) for name in dict.fromkeys(job.models)]
    if job.cycles is not None:
        if job.cycles < 1:
            raise SoundspotError(f"the PCM needs at least one pass, not --cycles {job.cycles}")
        if not any(predictions.cycles_of(model) for model in models):
            raise SoundspotError(
                f"--cycles {job.cycles} needs a model with a PCM, but none has one"
            )
    results = [run(b, places[b.name], job, models, saved) for b in chosen]
    return Evaluation(job, tuple(results), tuple(models))


def pair_set(benchmark: Benchmark, job: Job) -> PairSet | None:
    """The pair set with a benchmark's media, or None where none is needed."""
    own = benchmark.name in predictions.ESCVOC_SPLITS
    if job.data is not None:
        return PairSet.open(job.data)
    if own and ESCVOC.is_dir():
        return PairSet.open(ESCVOC)
    if job.models:
        raise SoundspotError(
            f"a model needs the pictures and sounds of {benchmark.name}: "
            "name their pair set with --data"
        )
    return None


def run(
    benchmark: Benchmark,
    pairs: PairSet | None,
    job: Job,
    models: Sequence[Localizer],
    saved: Sequence[SavedMaps],
) -> Result:
    """Judge every contender and the baselines on one benchmark."""
    scenes, missing = predictions.find_scenes(benchmark, pairs, job.annotations)
    features = {} if pairs is None else _features(models, pairs, scenes)
    scenes, gone = _available(scenes, features, saved)
    missing |= gone
    if not scenes:
        reason = next(iter(missing.values()), predictions.LOST)
        raise SoundspotError(
            f"none of the {benchmark.count:,} {benchmark.unit} of {benchmark.name} can be "
            f"evaluated; the first of them: {reason}"
        )
    visible = [scene for scene in scenes if scene.item.visible]
    items = [scene.item for scene in visible]
    truths = benchmark.truths(items)

    is_visible = np.array([scene.item.visible for scene in scenes])

    made: list[Contender] = []
    absences: list[Absence] = []
    for model in models:
        assert pairs is not None  # `pair_set` refuses models without one
        known = features[model.name]
        passes = _passes(model, known, scenes, job.cycles)
        maps = passes.maps
        scores = score(maps[is_visible], truths)
        one = Contender(model.name, "model", scores, maps[is_visible])
        if passes.by_cycle is not None:
            traced = passes.by_cycle[:, is_visible]
            by_pass = tuple(score(passed, truths)[MAIN] for passed in traced)
            one = replace(one, by_cycle=traced, cycle_scores=by_pass)
        made.append(one)
        if job.guidance:
            stands_out = predictions.saliency_maps(known, _frames(visible))
            guided = guide(maps[is_visible], stands_out, job.guidance)
            name = f"{model.name} + guidance {job.guidance:g}"
            made.append(Contender(name, "model", score(guided, truths), guided))
        if not is_visible.all():
            absences.append(absence.of_extended(model.name, maps, is_visible, scores[MAIN]))
        elif benchmark.name in WITH_MADE_NEGATIVES:
            cycles = _cycles(model, job.cycles)
            absences += absence.of_escvoc(model, known, pairs, scenes, maps, scores[MAIN], cycles)
    for folder in saved:
        maps = folder.read([scene.item.id for scene in scenes])
        scores = score(maps[is_visible], truths)
        made.append(Contender(str(folder.folder), "maps", scores, maps[is_visible]))
        if not is_visible.all():
            absences.append(absence.of_extended(str(folder.folder), maps, is_visible, scores[MAIN]))
    made += rows.baselines(truths, _saliency(features, pairs, visible))
    groups = [item.group for item in items if item.group is not None]
    lost = benchmark.count - len(scenes)
    return Result(
        benchmark=benchmark,
        scenes=tuple(visible),
        missing=missing,
        evaluated=len(scenes),
        flaws=flaws(items),
        truths=truths,
        contenders=tuple(made),
        rows=tuple(
            row for one in made for row in rows.rows_of(one, benchmark.name, items, truths, lost)
        ),
        comparisons=rows.compare([one for one in made if one.kind != "trivial"], groups),
        absences=tuple(absences),
        pairs=pairs,
    )


def _features(
    models: Sequence[Localizer], pairs: PairSet, scenes: Sequence[Scene]
) -> dict[str, Features]:
    """Model name -> its features; models on the same encoders share them."""
    frames = _frames(scenes)
    sounds = [scene.audio for scene in scenes if scene.audio is not None]
    by_encoders: dict[object, Features] = {}
    by_model = {}
    for model in models:
        spec = model.card.features
        key = (spec, model.card.provenance.get("encoder_weights"))
        if key not in by_encoders:
            by_encoders[key] = predictions.open_features(model, pairs, frames, sounds)
        by_model[model.name] = by_encoders[key]
    return by_model


def _available(
    scenes: Sequence[Scene],
    features: Mapping[str, Features],
    saved: Sequence[SavedMaps],
) -> tuple[list[Scene], dict[str, str]]:
    """The scenes that every contender can be judged on, and why the others cannot."""
    missing: dict[str, str] = {}
    ids = [scene.item.id for scene in scenes]
    for known in features.values():
        lost = known.lost if isinstance(known, Encoded) else {}
        for scene in scenes:
            for name in (scene.frame, scene.audio):
                if name is not None and name in lost:
                    missing[scene.item.id] = lost[name]
    for folder in saved:
        having = folder.having(ids)
        missing |= {id: f"no map in {folder.folder}" for id in ids if id not in having}
    left = Counter(s.item.group for s in scenes if s.item.id not in missing)
    for scene in scenes:
        if scene.item.group is not None and left[scene.item.group] == 1:
            missing.setdefault(scene.item.id, "the other sound of its picture is missing")
    return [scene for scene in scenes if scene.item.id not in missing], missing


class _Passes(NamedTuple):
    maps: Float[np.ndarray, "n h w"]
    by_cycle: Float[np.ndarray, "t n h w"] | None


def _passes(
    model: Localizer, features: Features, scenes: Sequence[Scene], cycles: int | None
) -> _Passes:
    """The maps of a model; with a PCM also those after fewer and a few more passes."""
    frames = _frames(scenes)
    f_a = features.sound([scene.audio for scene in scenes if scene.audio is not None])
    passes = _cycles(model, cycles)
    if passes is None:
        return _Passes(predictions.model_maps(model, features, frames, f_a), None)
    in_groups = scenes[0].item.group is not None  # for duets there is no figure of the passes
    shown = passes if in_groups else passes + MORE_CYCLES
    traced = predictions.maps_by_cycle(model, features, frames, f_a, shown)
    return _Passes(traced[passes - 1], None if in_groups else traced)


def _frames(scenes: Sequence[Scene]) -> list[str]:
    return [scene.frame for scene in scenes if scene.frame is not None]


def _cycles(model: Localizer, cycles: int | None) -> int | None:
    trained = predictions.cycles_of(model)
    return None if trained is None else cycles or trained


def _saliency(
    features: Mapping[str, Features], pairs: PairSet | None, scenes: Sequence[Scene]
) -> Float[np.ndarray, "n h w"] | None:
    """What stands out of the pictures, if the features of an encoder are at hand."""
    frames = _frames(scenes)
    known: Features | None = next(iter(features.values()), None)
    if known is None and pairs is not None:
        known = predictions.open_cache(pairs, FeatureSpec(), frames)
    return None if known is None else predictions.saliency_maps(known, frames)
