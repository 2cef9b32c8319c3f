"""The rule for "no visible source", how it is scored, and how its threshold is chosen.

The confidence that a source is visible is the peak of the map S, a cosine. A model reports a
visible source if the peak reaches the threshold on its card, which `calibrate` chooses on
validation data (`Localization.visible` applies it).

Scoring needs pairs with and without a visible source. Extended benchmarks contain such negatives.
For ESC-VOC they are made: every frame is shown a second time, half of them with the sound of
another class (an off-screen sound), the others with white noise.

Axes: n pairs with a visible source, k draws of noise, h w the map as a model made it, p audio
patches, a audio channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor, stack

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation.listening import Extended, extended
from soundspot.evaluation.metrics import truth_maps
from soundspot.evaluation.predictions import (
    EvaluatedModel,
    Features,
    model_maps,
    open_features,
    white_noise,
)
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN
from soundspot.evaluation.scenes import Scene, annotated_scenes, frames_of, sounds_of
from soundspot.features.cache import FeatureCache

OFF_SCREEN, NOISE, ALL = "off-screen sound", "white noise", "all negatives"


@dataclass(frozen=True)
class SourceDetection:
    """How well a model tells positives from one kind of negatives, and locates the positives.

    Attributes:
        model: Whose maps.
        negatives: Which kind of negatives.
        scores: AP, max-F1, LocAcc.
        calibrated: The best threshold on validation data, if there are any.
        f1: F1 at that threshold here.
    """

    model: str
    negatives: str
    scores: Extended
    calibrated: float | None = None
    f1: float | None = None


@dataclass(frozen=True, eq=False)
class Detections:
    """Confidence and cIoU of the positives, followed by the negatives, whose cIoU is 0."""

    confidence: Float[np.ndarray, "n"]
    scores: Float[np.ndarray, "n"]
    positive: Bool[np.ndarray, "n"]
    kinds: tuple[str, ...]

    def only(self, kind: str) -> "Detections":
        """The positives, and the negatives of one kind."""
        keep = self.positive | (np.array(self.kinds) == kind)
        kinds = tuple(k for k, kept in zip(self.kinds, keep, strict=True) if kept)
        return Detections(self.confidence[keep], self.scores[keep], self.positive[keep], kinds)

    def summarise(self) -> Extended:
        """AP, max-F1, LocAcc."""
        return extended(self.confidence, self.scores, self.positive)


def peak(maps: Float[np.ndarray, "n h w"]) -> Float[np.ndarray, "n"]:
    """The confidence that a source is visible."""
    return np.asarray(maps.max(axis=(1, 2)), dtype=np.float64)


def f1_at(detections: Detections, threshold: float) -> float:
    """F1 at one threshold, counted as in `listening.extended`."""
    detected = detections.confidence >= threshold
    right = detections.positive & (detections.scores >= 0.5)
    true = int(np.count_nonzero(detected & right))
    wrong = int(np.count_nonzero(detected)) - true
    missed = int(np.count_nonzero(detections.positive & ~detected))
    return 2 * true / max(2 * true + wrong + missed, 1)


def score_extended(
    name: str,
    maps: Float[np.ndarray, "n h w"],
    visible: Bool[np.ndarray, "n"],
    scores: Float[np.ndarray, "n_visible"],
) -> SourceDetection:
    """Score an extended benchmark, which contains its own negatives."""
    all_scores = np.zeros(len(maps))
    all_scores[visible] = scores
    return SourceDetection(name, ALL, extended(peak(maps), all_scores, visible))


def score_escvoc(
    model: EvaluatedModel,
    features: Features,
    pairs: PairSet,
    scenes: Sequence[Scene],
    maps: Float[np.ndarray, "n h w"],
    scores: Float[np.ndarray, "n"],
    cycles: int | None,
) -> list[SourceDetection]:
    """Score ESC-VOC with made negatives; the threshold is chosen on val if its features exist."""
    noise = white_noise(model, features)
    detections = _with_negatives(model, features, scenes, maps, scores, noise, cycles)
    threshold = None
    is_test = scenes[0].frame not in {pair.frame for pair in pairs.pairs if pair.split == "val"}
    if is_test and isinstance(features, FeatureCache) and "val" in pairs.splits():
        val = annotated_scenes(pairs, "val")
        threshold = _summarise(model, features, val, noise, cycles).threshold
    results = []
    for kind in (OFF_SCREEN, NOISE, ALL):
        chosen = detections if kind == ALL else detections.only(kind)
        if kind == ALL or kind in detections.kinds:
            f1 = None if threshold is None else f1_at(chosen, threshold)
            results.append(SourceDetection(model.name, kind, chosen.summarise(), threshold, f1))
    return results


def calibrate(model: EvaluatedModel, pairs: PairSet) -> dict[str, float]:
    """Choose the threshold that best separates visible from absent sources on the val split."""
    if "val" not in pairs.splits():
        raise SoundspotError(f"{pairs.root} has no val split with boxes to calibrate a model on")
    scenes = annotated_scenes(pairs, "val")
    features = open_features(model, pairs, frames_of(scenes), sounds_of(scenes))
    noise = white_noise(model, features)
    summary = _summarise(model, features, scenes, noise, model.cycles)
    return {"threshold": summary.threshold, "f1": summary.max_f1, "pairs": float(len(scenes))}


def _summarise(
    model: EvaluatedModel,
    features: Features,
    scenes: Sequence[Scene],
    noise: Float[Tensor, "k p a"],
    cycles: int | None,
) -> Extended:
    """Score scenes against as many made negatives."""
    heard = features.sound(sounds_of(scenes))
    maps = model_maps(model, features, frames_of(scenes), heard, cycles)
    scores = score(maps, truth_maps([scene.item.boxes for scene in scenes]))[MAIN]
    return _with_negatives(model, features, scenes, maps, scores, noise, cycles).summarise()


def _with_negatives(
    model: EvaluatedModel,
    features: Features,
    scenes: Sequence[Scene],
    maps: Float[np.ndarray, "n h w"],
    scores: Float[np.ndarray, "n"],
    noise: Float[Tensor, "k p a"],
    cycles: int | None,
) -> Detections:
    sounds = draw_negative_sounds(scenes)
    heard = [
        noise[i // 2 % len(noise)] if sound is None else features.sound([sound])[0]
        for i, sound in enumerate(sounds)
    ]
    negatives = model_maps(model, features, frames_of(scenes), stack(heard), cycles)
    kinds = [NOISE if sound is None else OFF_SCREEN for sound in sounds]
    return Detections(
        confidence=np.concatenate([peak(maps), peak(negatives)]),
        scores=np.concatenate([scores, np.zeros(len(negatives))]),
        positive=np.arange(2 * len(maps)) < len(maps),
        kinds=("",) * len(maps) + tuple(kinds),
    )


def draw_negative_sounds(scenes: Sequence[Scene], seed: int = 0) -> list[str | None]:
    """The sound of another class for every other scene; None, meaning noise, for the rest."""
    rng = np.random.default_rng(seed)
    drawn: list[str | None] = []
    for i, scene in enumerate(scenes):
        others = sorted(
            set(sounds_of([other for other in scenes if other.item.cls != scene.item.cls]))
        )
        use = i % 2 == 0 and others
        drawn.append(others[int(rng.integers(len(others)))] if use else None)
    return drawn
