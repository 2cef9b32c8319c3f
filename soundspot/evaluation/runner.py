"""Score models, saved maps and baselines on benchmarks, always on the same pairs.

A pair that one contender lacks (its picture, sound or map is missing) is left out for all of them,
listed and counted: all numbers in a table are of the same pairs.

Axes: n pairs, h w the map as a model made it, t passes of a PCM.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions, rows
from soundspot.evaluation.benchmarks import (
    BENCHMARKS,
    Benchmark,
    Flaws,
    find_benchmark,
    find_flaws,
)
from soundspot.evaluation.guidance import check_weight, guide
from soundspot.evaluation.metrics import Truths
from soundspot.evaluation.no_visible_source import SourceDetection, score_escvoc, score_extended
from soundspot.evaluation.predictions import EncodedFeatures, EvaluatedModel, Features, open_model
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN, Comparison, Contender, Row
from soundspot.evaluation.saved_maps import SavedMaps
from soundspot.evaluation.scenes import (
    ESCVOC_SPLITS,
    NO_MEDIA,
    Scene,
    find_scenes,
    frames_of,
    sounds_of,
)
from soundspot.features.spec import FeatureSpec

ESCVOC = Path("data/escvoc")
WITH_MADE_NEGATIVES = ("escvoc", "escvoc-val")
MORE_CYCLES = 2  # passes that the figures show beyond the trained T


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate, and on what.

    Attributes:
        benchmarks: Names.
        models: Shipped names, checkpoints or run folders; without any, only baselines are scored.
        data: A pair set; default for ESC-VOC: data/escvoc, if it exists.
        annotations: Folder of the benchmark's own files.
        maps: Folders of maps that other codebases saved.
        cycles: T of PCM models, if not the one they were trained with.
        guidance: Weight of object guidance; if not 0, every model is also scored with it.
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
    """The results on one benchmark.

    Attributes:
        benchmark: Which.
        scenes: The evaluated pairs with a visible source.
        missing: id -> reason, for pairs whose ids are known.
        evaluated: How many pairs were evaluated, with and without a visible source.
        flaws: Flaws of the annotations.
        truths: Consensus maps of the scenes.
        contenders: Models, saved maps, baselines, in this order.
        rows: Contenders x protocols.
        comparisons: Paired tests.
        source_detections: How well models notice that no source is visible.
        pairs: The pair set with the frames, if any.
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
    source_detections: tuple[SourceDetection, ...]
    pairs: PairSet | None

    @property
    def lost(self) -> int:
        """Number of pairs of the benchmark that were not evaluated."""
        return self.benchmark.count - self.evaluated

    @property
    def coverage(self) -> str:
        """How much of the benchmark was evaluated, in words."""
        return f"evaluated {self.evaluated:,} of {self.benchmark.count:,} {self.benchmark.unit}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of a request, and its models."""

    request: EvaluationRequest
    results: tuple[Result, ...]
    models: tuple[EvaluatedModel, ...]


def run_evaluation(request: EvaluationRequest) -> Evaluation:
    """Carry out a request; bad names and folders are refused before any model is loaded."""
    named = [find_benchmark(name) for name in request.benchmarks]
    chosen = list({benchmark.name: benchmark for benchmark in named}.values())
    if not chosen:
        raise SoundspotError(f"name a benchmark: {', '.join(BENCHMARKS)}")
    check_weight(request.guidance)
    if request.guidance and not request.models:
        raise SoundspotError("object guidance needs a model to guide")
    saved = [SavedMaps(folder) for folder in dict.fromkeys(request.maps)]
    media = {benchmark.name: _pair_set(benchmark, request) for benchmark in chosen}
    models = [open_model(name) for name in dict.fromkeys(request.models)]
    _check_cycles(request.cycles, models)
    results = [score_benchmark(b, media[b.name], request, models, saved) for b in chosen]
    return Evaluation(request, tuple(results), tuple(models))


def _pair_set(benchmark: Benchmark, request: EvaluationRequest) -> PairSet | None:
    """The pair set with a benchmark's media; None if none is needed."""
    if request.data is not None:
        return PairSet.open(request.data)
    if benchmark.name in ESCVOC_SPLITS and ESCVOC.is_dir():
        return PairSet.open(ESCVOC)
    if request.models:
        raise SoundspotError(
            f"a model needs the pictures and sounds of {benchmark.name}: "
            "name their pair set with --data"
        )
    return None


def _check_cycles(cycles: int | None, models: Sequence[EvaluatedModel]) -> None:
    if cycles is None:
        return
    if cycles < 1:
        raise SoundspotError(f"the PCM needs at least one pass, got --cycles {cycles}")
    if not any(model.cycles for model in models):
        raise SoundspotError(f"--cycles {cycles} needs a model with a PCM, but none has one")


class _Trial(NamedTuple):
    """What every contender of a benchmark is scored on; `truths` are of the visible scenes."""

    benchmark: Benchmark
    pairs: PairSet | None
    scenes: Sequence[Scene]
    visible: Bool[np.ndarray, "n"]
    truths: Truths


def score_benchmark(
    benchmark: Benchmark,
    pairs: PairSet | None,
    request: EvaluationRequest,
    models: Sequence[EvaluatedModel],
    saved: Sequence[SavedMaps],
) -> Result:
    """Score every contender and the baselines on one benchmark."""
    scenes, missing = find_scenes(benchmark, pairs, request.annotations)
    features = {} if pairs is None else _features(models, pairs, scenes)
    scenes, dropped = _available(scenes, features, saved)
    missing |= dropped
    if not scenes:
        reason = next(iter(missing.values()), NO_MEDIA)
        raise SoundspotError(
            f"none of the {benchmark.count:,} {benchmark.unit} of {benchmark.name} can be "
            f"evaluated; the first: {reason}"
        )
    shown = [scene for scene in scenes if scene.item.visible]
    items = [scene.item for scene in shown]
    visible = np.array([scene.item.visible for scene in scenes])
    trial = _Trial(benchmark, pairs, scenes, visible, benchmark.truths(items))
    scored = [_score_model(trial, model, features[model.name], request) for model in models]
    scored += [_score_saved(trial, folder) for folder in saved]
    own = [contender for contenders, _ in scored for contender in contenders]
    contenders = own + rows.baselines(trial.truths, _saliency(features, pairs, shown))
    lost = benchmark.count - len(scenes)
    return Result(
        benchmark=benchmark,
        scenes=tuple(shown),
        missing=missing,
        evaluated=len(scenes),
        flaws=find_flaws(items),
        truths=trial.truths,
        contenders=tuple(contenders),
        rows=tuple(
            row
            for contender in contenders
            for row in rows.rows_of(contender, benchmark.name, items, trial.truths, lost)
        ),
        comparisons=rows.compare_contenders(own, [i.group for i in items if i.group is not None]),
        source_detections=tuple(detection for _, part in scored for detection in part),
        pairs=pairs,
    )


def _score_model(
    trial: _Trial, model: EvaluatedModel, features: Features, request: EvaluationRequest
) -> tuple[list[Contender], list[SourceDetection]]:
    """A model, with object guidance too if requested, and how it notices missing sources."""
    benchmark, pairs, scenes, visible, truths = trial
    assert pairs is not None  # `_pair_set` refuses models without one
    cycles = None if model.cycles is None else request.cycles or model.cycles
    maps, by_cycle = _passes(model, features, scenes, cycles)
    contender = _contender(trial, model.name, "model", maps)
    if by_cycle is not None:
        traced = by_cycle[:, visible]
        by_pass = tuple(score(passed, truths)[MAIN] for passed in traced)
        contender = replace(contender, by_cycle=traced, cycle_scores=by_pass)
    contenders = [contender]
    if request.guidance:
        shown = [scene for scene in scenes if scene.item.visible]
        stands_out = predictions.saliency_maps(features, frames_of(shown))
        guided = guide(maps[visible], stands_out, request.guidance)
        name = f"{model.name} + guidance {request.guidance:g}"
        contenders.append(Contender(name, "model", score(guided, truths), guided))
    scores = contender.scores[MAIN]
    detections = []
    if not visible.all():
        detections = [score_extended(model.name, maps, visible, scores)]
    elif benchmark.name in WITH_MADE_NEGATIVES:
        detections = score_escvoc(model, features, pairs, scenes, maps, scores, cycles)
    return contenders, detections


def _score_saved(trial: _Trial, saved: SavedMaps) -> tuple[list[Contender], list[SourceDetection]]:
    name = str(saved.folder)
    maps = saved.read([scene.item.id for scene in trial.scenes])
    contender = _contender(trial, name, "maps", maps)
    detections = []
    if not trial.visible.all():
        detections = [score_extended(name, maps, trial.visible, contender.scores[MAIN])]
    return [contender], detections


def _contender(
    trial: _Trial, name: str, kind: rows.Kind, maps: Float[np.ndarray, "n h w"]
) -> Contender:
    shown = maps[trial.visible]
    return Contender(name, kind, score(shown, trial.truths), shown)


def _features(
    models: Sequence[EvaluatedModel], pairs: PairSet, scenes: Sequence[Scene]
) -> dict[str, Features]:
    """Model name -> its features; models on the same encoders share them."""
    frames, sounds = frames_of(scenes), sounds_of(scenes)
    by_encoders: dict[object, Features] = {}
    by_model = {}
    for model in models:
        key = (model.card.features, model.card.provenance.get("encoder_weights"))
        if key not in by_encoders:
            by_encoders[key] = predictions.open_features(model, pairs, frames, sounds)
        by_model[model.name] = by_encoders[key]
    return by_model


def _available(
    scenes: Sequence[Scene], features: Mapping[str, Features], saved: Sequence[SavedMaps]
) -> tuple[list[Scene], dict[str, str]]:
    """The scenes that every contender can be scored on, and why the others cannot."""
    missing: dict[str, str] = {}
    ids = [scene.item.id for scene in scenes]
    for known in features.values():
        lost = known.lost if isinstance(known, EncodedFeatures) else {}
        for scene in scenes:
            for name in (scene.frame, scene.audio):
                if name is not None and name in lost:
                    missing[scene.item.id] = lost[name]
    for folder in saved:
        available = folder.available(ids)
        missing |= {id: f"no map in {folder.folder}" for id in ids if id not in available}
    left = Counter(s.item.group for s in scenes if s.item.id not in missing)
    for scene in scenes:
        if scene.item.group is not None and left[scene.item.group] == 1:
            missing.setdefault(scene.item.id, "the other sound of its picture is missing")
    return [scene for scene in scenes if scene.item.id not in missing], missing


def _passes(
    model: EvaluatedModel, features: Features, scenes: Sequence[Scene], cycles: int | None
) -> tuple[Float[np.ndarray, "n h w"], Float[np.ndarray, "t n h w"] | None]:
    """The maps of a model, and with a PCM those after fewer and a few more passes."""
    frames, f_a = frames_of(scenes), features.sound(sounds_of(scenes))
    if cycles is None:
        return predictions.model_maps(model, features, frames, f_a), None
    in_groups = scenes[0].item.group is not None  # there is no figure of the passes for duets
    shown = cycles if in_groups else cycles + MORE_CYCLES
    traced = predictions.maps_by_cycle(model, features, frames, f_a, shown)
    return traced[cycles - 1], None if in_groups else traced


def _saliency(
    features: Mapping[str, Features], pairs: PairSet | None, scenes: Sequence[Scene]
) -> Float[np.ndarray, "n h w"] | None:
    """What stands out in the pictures, if the features of an encoder are available."""
    frames = frames_of(scenes)
    known: Features | None = next(iter(features.values()), None)
    if known is None and pairs is not None:
        known = predictions.open_cache(pairs, FeatureSpec(), frames)
    return None if known is None else predictions.saliency_maps(known, frames)
