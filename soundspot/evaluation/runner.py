"""Score models, saved maps and baselines on benchmarks, always on the same pairs.

A pair that one contender lacks (its picture, sound or map is missing) is left out for all of them,
listed and counted: all numbers in a table are of the same pairs.

Axes: n pairs, h w the map as a model made it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions, rows
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import (
    MIXED,
    NO_MEDIA,
    Benchmark,
    Flaws,
    find_flaws,
    find_scenes,
)
from soundspot.evaluation.metrics import RawMaps, Truths
from soundspot.evaluation.predictions import Features, box_maps
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN, Comparison, Contender, Row
from soundspot.evaluation.saved_maps import SavedMaps
from soundspot.evaluation.source_detection import (
    WITH_MADE_NEGATIVES,
    SourceDetection,
    Verdicts,
    score_escvoc,
    score_extended,
    verdicts,
)
from soundspot.evaluation.trivial import baselines, guide
from soundspot.evaluation.unseen import UnseenSounds, score_unseen
from soundspot.features.spec import FeatureSpec
from soundspot.inference.localizer import Localizer


@dataclass(frozen=True, eq=False)
class Result:
    """The results on one benchmark.

    `scenes` are the evaluated pairs with a visible source, `truths` their consensus maps,
    `evaluated` counts those without one too, and `missing` gives the reason for each known id that
    is left out.
    """

    benchmark: Benchmark
    scenes: tuple[BenchmarkItem, ...]
    missing: Mapping[str, str]
    evaluated: int
    flaws: Flaws
    truths: Truths
    contenders: tuple[Contender, ...]
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]
    source_detections: tuple[SourceDetection, ...]
    verdicts: tuple[Verdicts, ...]
    unseen: tuple[UnseenSounds, ...]
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
    """The results on every benchmark, the models, and the folder of the annotation files."""

    annotations: Path | None
    results: tuple[Result, ...]
    models: tuple[Localizer, ...]


_Scored = tuple[list[Contender], list[SourceDetection], list[Verdicts]]


class Asked(NamedTuple):
    """How models are scored."""

    cycles: int | None
    guidance: float
    outline: bool
    unseen: bool

    def cycles_of(self, model: Localizer) -> int | None:
        """T of a model, None without a PCM."""
        return None if model.trained_cycles is None else self.cycles or model.trained_cycles


class _Trial(NamedTuple):
    """What every contender of a benchmark is scored on; `truths` are of the visible scenes."""

    benchmark: Benchmark
    pairs: PairSet | None
    scenes: Sequence[BenchmarkItem]
    visible: Bool[np.ndarray, "n"]
    truths: Truths


def score_benchmark(
    benchmark: Benchmark,
    pairs: PairSet | None,
    annotations: Path | None,
    asked: Asked,
    models: Sequence[Localizer],
    saved: Sequence[SavedMaps],
) -> Result:
    """Score every contender and the baselines on one benchmark."""
    # What there is of the benchmark, and which of it every contender can be scored on.
    scenes, missing = find_scenes(benchmark, pairs, annotations)
    _refuse_learned(benchmark, pairs, scenes)
    benchmark = replace(benchmark, count=benchmark.count or len(scenes))
    features = {} if pairs is None else _features(models, pairs, scenes)
    scenes, dropped = _available(scenes, features, saved)
    missing |= dropped
    if not scenes:
        reason = next(iter(missing.values()), NO_MEDIA)
        raise SoundspotError(f"no pair of {benchmark.name} can be evaluated; the first: {reason}")
    # Models and saved maps, then the baselines, all on the same pairs.
    shown = [scene for scene in scenes if scene.visible]
    visible = np.array([scene.visible for scene in scenes])
    trial = _Trial(benchmark, pairs, scenes, visible, benchmark.truths(shown))
    ids = [scene.id for scene in scenes]
    scored = [_score_model(trial, model, features[model.name], asked) for model in models]
    scored += [_score_maps(trial, str(kept.folder), "maps", kept.read(ids)) for kept in saved]
    own = [contender for contenders, *_ in scored for contender in contenders]
    contenders = own + baselines(trial.truths, _saliency(features, pairs, shown))
    # Rows for every contender, and how sure the differences are.
    lost = benchmark.count - len(scenes)
    return Result(
        benchmark=benchmark,
        scenes=tuple(shown),
        missing=missing,
        evaluated=len(scenes),
        flaws=find_flaws(shown),
        truths=trial.truths,
        contenders=tuple(contenders),
        rows=tuple(
            row
            for contender in contenders
            for row in rows.rows_of(contender, benchmark.name, shown, trial.truths, lost)
        ),
        comparisons=rows.compare_contenders(own, [s.group for s in shown if s.group is not None]),
        source_detections=tuple(detection for _, part, _ in scored for detection in part),
        verdicts=tuple(verdict for *_, said in scored for verdict in said),
        unseen=tuple(
            score_unseen(model, features[model.name], pairs, shown, asked.cycles_of(model))
            for model in models
            if asked.unseen and pairs is not None and benchmark.name in WITH_MADE_NEGATIVES
        ),
        pairs=pairs,
    )


def _refuse_learned(
    benchmark: Benchmark, pairs: PairSet | None, scenes: Sequence[BenchmarkItem]
) -> None:
    """Refuse to score on clips that the pair set has for training or validation."""
    if pairs is None or benchmark.split is not None:
        return
    learned = {pair.id for pair in pairs.pairs if pair.split in ("train", "val")}
    if shared := [scene.id for scene in scenes if scene.id in learned]:
        raise SoundspotError(f"{shared[0]} and {len(shared) - 1:,} other clips are in train or val")


def _score_model(trial: _Trial, model: Localizer, features: Features, asked: Asked) -> _Scored:
    """A model, guided or outlined too if requested, and how it notices missing sources."""
    benchmark, pairs, scenes, visible, truths = trial
    assert pairs is not None  # `_pair_set` refuses models without one
    cycles = asked.cycles_of(model)
    frames = [scene.frame for scene in scenes]
    sounds = [scene.audio for scene in scenes]
    f_a = features.sound(sounds)
    found = None
    if benchmark.name in MIXED:
        maps, found = predictions.maps_of_sources(model, features, scenes)
    else:
        maps = predictions.maps_of(model, features, frames, f_a, cycles, sounds)
    contenders, detections, _ = _score_maps(trial, model.name, "model", maps)
    contenders = [replace(contender, found=found) for contender in contenders]
    if not detections and benchmark.name in WITH_MADE_NEGATIVES:
        scores = contenders[0].scores[MAIN]
        detections = score_escvoc(model, features, pairs, scenes, maps, scores, cycles)
    frames = [scene.frame for scene in scenes if scene.visible]
    if asked.guidance:
        stands_out = predictions.saliency_maps(features, frames)
        guided = guide(maps[visible], stands_out, asked.guidance)
        name = f"{model.name} + guidance {asked.guidance:g}"
        contenders.append(Contender(name, "model", score(guided, truths), guided))
    if asked.outline:
        boxed = box_maps(maps[visible], frames, pairs.frame, model.device)
        name = f"{model.name}, boxes of outlines"
        contenders.append(Contender(name, "model", score(boxed, truths), boxed))
    return contenders, detections, verdicts(model, maps, scenes)


def _score_maps(trial: _Trial, name: str, kind: rows.Kind, maps: RawMaps) -> _Scored:
    shown = maps[trial.visible]
    contender = Contender(name, kind, score(shown, trial.truths), shown)
    if trial.visible.all():
        return [contender], [], []
    return [contender], [score_extended(name, maps, trial.visible, contender.scores[MAIN])], []


def _features(
    models: Sequence[Localizer], pairs: PairSet, scenes: Sequence[BenchmarkItem]
) -> dict[str, Features]:
    """Model name -> its features; models on the same encoders share them."""
    frames, sounds = [scene.frame for scene in scenes], [scene.audio for scene in scenes]
    by_encoders: dict[object, Features] = {}
    by_model = {}
    for model in models:
        named = model.named is not None
        key = (model.card.features, model.card.provenance.get("encoder_weights"), named)
        if key not in by_encoders:
            by_encoders[key] = predictions.open_features(model, pairs, frames, sounds)
        by_model[model.name] = by_encoders[key]
    return by_model


def _available(
    scenes: Sequence[BenchmarkItem], features: Mapping[str, Features], saved: Sequence[SavedMaps]
) -> tuple[list[BenchmarkItem], dict[str, str]]:
    """The scenes that every contender can be scored on, and why the others cannot."""
    missing: dict[str, str] = {}
    ids = [scene.id for scene in scenes]
    for known in features.values():
        for scene in scenes:
            for name in (scene.frame, scene.audio):
                if name in known.lost:
                    missing[scene.id] = known.lost[name]
    for folder in saved:
        available = folder.available(ids)
        missing |= {id: f"no map in {folder.folder}" for id in ids if id not in available}
    left = Counter(s.group for s in scenes if s.id not in missing)
    for scene in scenes:
        if scene.group is not None and left[scene.group] == 1:
            missing.setdefault(scene.id, "the other sound of its picture is missing")
    return [scene for scene in scenes if scene.id not in missing], missing


def _saliency(
    features: Mapping[str, Features], pairs: PairSet | None, scenes: Sequence[BenchmarkItem]
) -> RawMaps | None:
    """What stands out to the paper's encoder if its features are cached, else to the first one."""
    frames = [scene.frame for scene in scenes]
    cached = None if pairs is None else predictions.open_cache(pairs, FeatureSpec(), frames)
    known = cached or next(iter(features.values()), None)
    return None if known is None else predictions.saliency_maps(known, frames)
