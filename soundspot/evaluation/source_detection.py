"""How well a model tells whether the source is visible, and how its threshold is chosen.

The rule itself is `Localization.verdict`: the peak of the map S must reach the threshold on the
model's card. `calibrate` chooses that threshold on validation data.
Extended benchmarks contain pairs without a visible source. For ESC-VOC such negatives are made:
every frame is shown again, half of them with the sound of another class, the others with noise.

Axes: n pairs with a visible source.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from torch import stack

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import annotated_scenes
from soundspot.evaluation.listening import Extended, extended
from soundspot.evaluation.metrics import PerPair, RawMaps, truth_maps
from soundspot.evaluation.predictions import Features
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN
from soundspot.inference.localizer import Localizer

WITH_MADE_NEGATIVES = ("escvoc", "escvoc-val")
MOST_KINDS = 5
OFF_SCREEN, NOISE, ALL = "off-screen sound", "white noise", "all negatives"


@dataclass(frozen=True)
class SourceDetection:
    """How well a model tells positives from one kind of negatives, and locates the positives.

    `calibrated` is the best threshold on validation data, if there are any, and `f1` is F1 there.
    """

    model: str
    negatives: str
    scores: Extended
    calibrated: float | None = None
    f1: float | None = None


@dataclass(frozen=True)
class Verdicts:
    """What a model says of the pairs of one kind.

    `visible` is how many have a visible source, so many are right if all are said to;
    `called_visible` is how many are.
    """

    model: str
    kind: str
    pairs: int
    visible: int
    called_visible: int
    unknown: int
    right: int


def verdicts(model: Localizer, maps: RawMaps, scenes: Sequence[BenchmarkItem]) -> list[Verdicts]:
    """The verdicts on all pairs of a benchmark, and on each kind if there are a few."""
    threshold, doubt = model.verdict_ends
    if threshold is None:
        return []
    kinds = sorted({scene.cls for scene in scenes if scene.cls is not None})
    score, visible = peak(maps), np.array([scene.visible for scene in scenes])
    said = score >= threshold
    unknown = ~said & (score >= (threshold if doubt is None else doubt))
    found = []
    for kind in ("all", *(kinds if len(kinds) <= MOST_KINDS else ())):
        part = np.array([kind in ("all", scene.cls) for scene in scenes])
        right = (said == visible) & ~unknown
        counts = (int(np.count_nonzero(part & some)) for some in (visible, said, unknown, right))
        found.append(Verdicts(model.name, kind, int(part.sum()), *counts))
    return found


@dataclass(frozen=True, eq=False)
class Detections:
    """Confidence and cIoU of the positives, followed by the negatives, whose cIoU is 0."""

    confidence: PerPair
    scores: PerPair
    positive: Bool[np.ndarray, "n"]
    kinds: tuple[str, ...]

    def only(self, kind: str) -> "Detections":
        """The positives, and the negatives of one kind."""
        keep = self.positive | (np.array(self.kinds) == kind)
        kinds = tuple(k for k, kept in zip(self.kinds, keep, strict=True) if kept)
        return Detections(self.confidence[keep], self.scores[keep], self.positive[keep], kinds)

    def summarize(self) -> Extended:
        """Score both together."""
        return extended(self.confidence, self.scores, self.positive)


def peak(maps: RawMaps) -> PerPair:
    """The confidence that a source is visible."""
    return np.asarray(maps.max(axis=(1, 2)), dtype=np.float64)


def f1_at(detections: Detections, threshold: float) -> float:
    """F1 at one threshold, counted as in `listening.extended`."""
    detected = detections.confidence >= threshold
    true = int(np.count_nonzero(detected & detections.positive & (detections.scores >= 0.5)))
    missed = int(np.count_nonzero(detections.positive & ~detected))
    # The detections are the true and the wrong ones: F1 = 2 true / (2 true + wrong + missed).
    return 2 * true / max(true + int(np.count_nonzero(detected)) + missed, 1)


def score_extended(
    name: str, maps: RawMaps, visible: Bool[np.ndarray, "n"], scores: Float[np.ndarray, "n_visible"]
) -> SourceDetection:
    """Score an extended benchmark, which contains its own negatives."""
    all_scores = np.zeros(len(maps))
    all_scores[visible] = scores
    return SourceDetection(name, ALL, extended(peak(maps), all_scores, visible))


def score_escvoc(
    model: Localizer,
    features: Features,
    pairs: PairSet,
    scenes: Sequence[BenchmarkItem],
    maps: RawMaps,
    scores: PerPair,
    cycles: int | None,
) -> list[SourceDetection]:
    """Score ESC-VOC with made negatives; the threshold is chosen on val if its features exist."""
    detections = _detect(model, features, scenes, cycles, (maps, scores))
    threshold = None
    is_test = scenes[0].frame not in {pair.frame for pair in pairs.pairs if pair.split == "val"}
    if is_test and features.cached and "val" in pairs.splits():
        val = _detect(model, features, annotated_scenes(pairs, "val"), cycles)
        threshold = val.summarize().threshold
    results = []
    for kind in (OFF_SCREEN, NOISE, ALL):
        chosen = detections if kind == ALL else detections.only(kind)
        if kind == ALL or kind in detections.kinds:
            f1 = None if threshold is None else f1_at(chosen, threshold)
            results.append(SourceDetection(model.name, kind, chosen.summarize(), threshold, f1))
    return results


def calibrate(model: Localizer, pairs: PairSet) -> dict[str, float]:
    """Choose the threshold that best separates visible from absent sources on the val split."""
    if "val" not in pairs.splits():
        raise SoundspotError(f"{pairs.root} has no val split with boxes to calibrate a model on")
    scenes = annotated_scenes(pairs, "val")
    frames, sounds = [scene.frame for scene in scenes], [scene.audio for scene in scenes]
    features = predictions.open_features(model, pairs, frames, sounds)
    summary = _detect(model, features, scenes).summarize()
    return {"threshold": summary.threshold, "f1": summary.max_f1, "pairs": float(len(scenes))}


def _detect(
    model: Localizer,
    features: Features,
    scenes: Sequence[BenchmarkItem],
    cycles: int | None = None,
    known: tuple[RawMaps, PerPair] | None = None,
) -> Detections:
    """Scenes, whose maps and scores may be known, and as many made negatives."""
    frames = [scene.frame for scene in scenes]
    if known is None:
        heard = features.sound([scene.audio for scene in scenes])
        maps = predictions.maps_of(model, features, frames, heard, cycles)
        known = maps, score(maps, truth_maps([s.boxes for s in scenes]), [MAIN])[MAIN]
    maps, scores = known
    noise, sounds = predictions.white_noise(model), draw_negative_sounds(scenes)
    unlike = [
        noise[i // 2 % len(noise)] if sound is None else features.sound([sound])[0]
        for i, sound in enumerate(sounds)
    ]
    negatives = predictions.maps_of(model, features, frames, stack(unlike), cycles)
    kinds = tuple(NOISE if sound is None else OFF_SCREEN for sound in sounds)
    return Detections(
        confidence=np.concatenate([peak(maps), peak(negatives)]),
        scores=np.concatenate([scores, np.zeros(len(negatives))]),
        positive=np.arange(2 * len(maps)) < len(maps),
        kinds=("",) * len(maps) + kinds,
    )


def draw_negative_sounds(
    scenes: Sequence[BenchmarkItem], seed: int = 0, every: int = 2
) -> list[str | None]:
    """The sound of another class for every second scene; None, meaning noise, for the rest."""
    rng = np.random.default_rng(seed)
    drawn: list[str | None] = []
    for i, scene in enumerate(scenes):
        others = sorted({other.audio for other in scenes if other.cls != scene.cls})
        use = i % every == 0 and others
        drawn.append(others[int(rng.integers(len(others)))] if use else None)
    return drawn
