"""Can a model tell that nothing it sees makes the sound? Positives and negatives together.

The confidence that a source is visible is the peak of the map S, a cosine. Extended benchmarks
bring their own negatives. For ESC-VOC they are made: every frame is shown once more, every other
one under the sound of another class (an off-screen sound), the rest under white noise.

Axes: n pairs with a visible source, k pairs without, h w the map as a model made it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor, stack

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.listening import Extended, extended
from soundspot.evaluation.metrics import truth_maps
from soundspot.evaluation.predictions import Features, Scene
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN
from soundspot.features.cache import FeatureCache
from soundspot.inference.localizer import Localizer

OFF_SCREEN, NOISE, ALL = "off-screen sound", "white noise", "all negatives"
NOISES = 16  # different draws of white noise; frames take turns


@dataclass(frozen=True)
class Absence:
    """How well positives and one kind of negatives are told apart, and positives located.

    Attributes:
        model: Whose maps.
        negatives: Which kind of negatives.
        found: AP, max-F1, LocAcc.
        calibrated: The threshold that is best on validation data, where there are any.
        f1: What it gives here.
    """

    model: str
    negatives: str
    found: Extended
    calibrated: float | None = None
    f1: float | None = None


@dataclass(frozen=True, eq=False)
class Detections:
    """Confidence and cIoU of positives and then of negatives, whose cIoU is 0."""

    confidence: Float[np.ndarray, "n"]
    scores: Float[np.ndarray, "n"]
    positive: Bool[np.ndarray, "n"]
    kinds: tuple[str, ...]

    def only(self, kind: str) -> "Detections":
        """The positives, and the negatives of one kind."""
        keep = self.positive | (np.array(self.kinds) == kind)
        kinds = tuple(k for k, kept in zip(self.kinds, keep, strict=True) if kept)
        return Detections(self.confidence[keep], self.scores[keep], self.positive[keep], kinds)

    def judge(self) -> Extended:
        """AP, max-F1, LocAcc."""
        return extended(self.confidence, self.scores, self.positive)


def peak(maps: Float[np.ndarray, "n h w"]) -> Float[np.ndarray, "n"]:
    """The confidence that a source is visible."""
    return np.asarray(maps.max(axis=(1, 2)), dtype=np.float64)


def f1_at(detections: Detections, threshold: float) -> float:
    """F1 of one threshold, counted as `listening.extended` counts."""
    detected = detections.confidence >= threshold
    right = detections.positive & (detections.scores >= 0.5)
    true = int(np.count_nonzero(detected & right))
    wrong = int(np.count_nonzero(detected)) - true
    missed = int(np.count_nonzero(detections.positive & ~detected))
    return 2 * true / max(2 * true + wrong + missed, 1)


def of_extended(
    name: str,
    maps: Float[np.ndarray, "n h w"],
    visible: Bool[np.ndarray, "n"],
    scores: Float[np.ndarray, "n_visible"],
) -> Absence:
    """Judge on an extended benchmark, which brings its own negatives."""
    every = np.zeros(len(maps))
    every[visible] = scores
    return Absence(name, ALL, extended(peak(maps), every, visible))


def of_escvoc(
    model: Localizer,
    features: Features,
    pairs: PairSet,
    scenes: Sequence[Scene],
    maps: Float[np.ndarray, "n h w"],
    scores: Float[np.ndarray, "n"],
    cycles: int | None,
) -> list[Absence]:
    """Judge on ESC-VOC with made negatives; calibrated on val where its features are at hand."""
    noise = predictions.noise(model, NOISES)
    here = _with_negatives(model, features, scenes, maps, scores, noise, cycles)
    threshold = None
    test = scenes[0].frame not in {pair.frame for pair in pairs.pairs if pair.split == "val"}
    if test and isinstance(features, FeatureCache) and "val" in pairs.splits():
        val = predictions.own_truth(pairs, "val")
        threshold = _judged(model, features, val, noise, cycles).threshold
    found = []
    for kind in (OFF_SCREEN, NOISE, ALL):
        detections = here if kind == ALL else here.only(kind)
        if kind == ALL or kind in here.kinds:
            f1 = None if threshold is None else f1_at(detections, threshold)
            found.append(Absence(model.name, kind, detections.judge(), threshold, f1))
    return found


def calibrate(model: Localizer, pairs: PairSet) -> dict[str, float]:
    """The peak that best tells visible from absent sources on the val split, for a model's card."""
    if "val" not in pairs.splits():
        raise SoundspotError(f"{pairs.root} has no val split with boxes to calibrate a model on")
    scenes = predictions.own_truth(pairs, "val")
    frames = [_known(scene.frame) for scene in scenes]
    sounds = [_known(scene.audio) for scene in scenes]
    features = predictions.open_features(model, pairs, frames, sounds)
    noise = predictions.noise(model, NOISES)
    found = _judged(model, features, scenes, noise, predictions.cycles_of(model))
    return {"threshold": found.threshold, "f1": found.max_f1, "pairs": float(len(scenes))}


def _judged(
    model: Localizer,
    features: Features,
    scenes: Sequence[Scene],
    noise: Float[Tensor, "k p a"],
    cycles: int | None,
) -> Extended:
    """Scenes and as many made negatives, told apart."""
    heard = features.sound([_known(scene.audio) for scene in scenes])
    frames = [_known(scene.frame) for scene in scenes]
    maps = predictions.model_maps(model, features, frames, heard, cycles)
    scores = score(maps, truth_maps([scene.item.boxes for scene in scenes]))[MAIN]
    return _with_negatives(model, features, scenes, maps, scores, noise, cycles).judge()


def _with_negatives(
    model: Localizer,
    features: Features,
    scenes: Sequence[Scene],
    maps: Float[np.ndarray, "n h w"],
    scores: Float[np.ndarray, "n"],
    noise: Float[Tensor, "k p a"],
    cycles: int | None,
) -> Detections:
    strangers = draw_negative_sounds(scenes)
    frames = [_known(scene.frame) for scene in scenes]
    heard = [
        noise[i // 2 % len(noise)] if sound is None else features.sound([sound])[0]
        for i, sound in enumerate(strangers)
    ]
    negatives = predictions.model_maps(model, features, frames, stack(heard), cycles)
    kinds = [NOISE if sound is None else OFF_SCREEN for sound in strangers]
    return Detections(
        confidence=np.concatenate([peak(maps), peak(negatives)]),
        scores=np.concatenate([scores, np.zeros(len(negatives))]),
        positive=np.arange(2 * len(maps)) < len(maps),
        kinds=("",) * len(maps) + tuple(kinds),
    )


def draw_negative_sounds(scenes: Sequence[Scene], seed: int = 0) -> list[str | None]:
    """For every other scene the sound of another class; None, for noise, elsewhere."""
    rng = np.random.default_rng(seed)
    drawn: list[str | None] = []
    for i, scene in enumerate(scenes):
        others = sorted(
            {_known(other.audio) for other in scenes if other.item.cls != scene.item.cls}
        )
        use = i % 2 == 0 and others
        drawn.append(others[int(rng.integers(len(others)))] if use else None)
    return drawn


def _known(name: str | None) -> str:
    if name is None:
        raise SoundspotError("a scene without picture and sound cannot be shown to a model")
    return name
