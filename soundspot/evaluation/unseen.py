"""Sounds that nothing in the picture makes, and how well pictures and sounds find each other.

Every frame is shown under its own sound, silence, white noise and the sound of another class. One
threshold per model, chosen on val, says where a map is lit: a model should light its object under
the own sound and nothing under the others. docs/evaluate.md has the definitions and their sources.

Axes: n pairs, h w the map as a model made it, q queries, g what is searched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import annotated_scenes
from soundspot.evaluation.metrics import Truths, areas, ciou, ciou_at, truth_maps
from soundspot.evaluation.predictions import Features
from soundspot.evaluation.protocols import resize_maps
from soundspot.evaluation.source_detection import NOISE, OFF_SCREEN, draw_negative_sounds, peak
from soundspot.inference.localizer import Localizer
from soundspot.media.clips import SOUND_SAMPLES

OWN, SILENCE = "own sound", "silence"
LEVELS = 33  # thresholds tried, from the lowest to the highest value
GALLERY = 100  # pairs, at most, that are searched
TOP = (1, 5, 10)

BySound = Mapping[str, Float[np.ndarray, "n h w"]]


@dataclass(frozen=True)
class UnseenSounds:
    """The measures of one model.

    Attributes:
        threshold: Where all maps are cut; `ciou` is cIoU@0.5 there.
        lit: pIA: the share of the frame that is lit, by kind of sound.
        alignment: The mean peak of maps under the own sound.
        separability: How far that is above the mean peak under sounds of other classes.
        frames: R@1, 5 and 10 of frames searched by sound, by class.
        sounds: The same of sounds searched by frame.
    """

    model: str
    threshold: float
    ciou: float
    lit: Mapping[str, float]
    alignment: float
    separability: float
    frames: tuple[float, ...]
    sounds: tuple[float, ...]


def score_unseen(
    model: Localizer,
    features: Features,
    pairs: PairSet,
    scenes: Sequence[BenchmarkItem],
    cycles: int | None = None,
) -> UnseenSounds:
    """Measure a model on a split of ESC-VOC; several classes and a split `val` are needed."""
    val = annotated_scenes(pairs, "val")
    names = [scene.frame for scene in val], [scene.audio for scene in val]
    theirs = features if features.cached else predictions.open_features(model, pairs, *names)
    threshold = choose_threshold(_maps_by_sound(model, theirs, val, cycles), _truths(val))
    maps = _maps_by_sound(model, features, scenes, cycles)
    found, lit = at_threshold(maps, _truths(scenes), threshold)
    peaks = {kind: float(peak(shown).mean()) for kind, shown in maps.items()}
    # Search the frames and sounds of evenly spaced pairs.
    some = scenes[:: -(-len(scenes) // GALLERY)]
    frames, classes = [scene.frame for scene in some], [scene.cls for scene in some]
    heard = features.sound([scene.audio for scene in some])
    alike = (f_a.expand(len(some), -1, -1) for f_a in heard)  # all frames with one sound
    fits = [peak(predictions.maps_of(model, features, frames, f_a, cycles)) for f_a in alike]
    return UnseenSounds(
        model=model.name,
        threshold=threshold,
        ciou=found,
        lit=lit,
        alignment=peaks[OWN],
        separability=peaks[OWN] - peaks[OFF_SCREEN],
        frames=recall(np.array(fits), classes),
        sounds=recall(np.array(fits).T, classes),
    )


def _truths(scenes: Sequence[BenchmarkItem]) -> Truths:
    return truth_maps([scene.boxes for scene in scenes])


def _maps_by_sound(
    model: Localizer, features: Features, scenes: Sequence[BenchmarkItem], cycles: int | None
) -> BySound:
    """The maps of all frames under each kind of sound."""
    others = [sound or "" for sound in draw_negative_sounds(scenes, every=1)]
    noise, silence = predictions.white_noise(model), np.zeros(SOUND_SAMPLES, dtype=np.float32)
    heard = {
        OWN: features.sound([scene.audio for scene in scenes]),
        SILENCE: model.hear([silence]).cpu().expand(len(scenes), -1, -1),
        NOISE: noise[torch.arange(len(scenes)) % len(noise)],
        OFF_SCREEN: features.sound(others),
    }
    frames = [scene.frame for scene in scenes]
    return {
        kind: predictions.maps_of(model, features, frames, f_a, cycles)
        for kind, f_a in heard.items()
    }


def at_threshold(maps: BySound, truths: Truths, threshold: float) -> tuple[float, dict[str, float]]:
    """cIoU@0.5 of maps cut at one threshold, and the share of the frame above it by sound."""
    size = truths.shape[-1]
    masks = {kind: resize_maps(shown, size) >= threshold for kind, shown in maps.items()}
    lit = {kind: float(areas(mask).mean()) / size**2 for kind, mask in masks.items()}
    return ciou_at(ciou(masks[OWN], truths)), lit


def choose_threshold(maps: BySound, truths: Truths) -> float:
    """The threshold with the best harmonic mean of cIoU and the share that others leave dark."""
    low, high = float(maps[OWN].min()), float(maps[OWN].max())

    def quality(threshold: float) -> float:
        found, lit = at_threshold(maps, truths, threshold)
        dark = 1 - float(np.mean([share for kind, share in lit.items() if kind != OWN]))
        return 2 * found * dark / max(found + dark, 1e-9)

    return max(map(float, np.linspace(low, high, LEVELS)), key=quality)


def recall(fits: Float[np.ndarray, "q g"], classes: Sequence[str | None]) -> tuple[float, ...]:
    """R@k: the share of queries with one of their class among the k that fit best."""
    own = np.array(classes)
    right = own[(-fits).argsort(axis=1, kind="stable")] == own[:, None]
    return tuple(float(right[:, :k].any(axis=1).mean()) for k in TOP)
