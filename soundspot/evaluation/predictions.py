"""A model's answers on a pair set, from cached features or from features encoded now; validation.

Axes: n samples, p audio patches, a audio channels, c visual channels, h w the map as it was made,
t passes of a PCM.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from soundspot.common.arrays import min_max
from soundspot.common.errors import SoundspotError
from soundspot.common.progress import progress
from soundspot.data.pair_set import ItemError, PairSet
from soundspot.encoders.views import DEFAULT_AUGMENTATIONS
from soundspot.evaluation import trivial
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import annotated_scenes
from soundspot.evaluation.listening import peak_on_side
from soundspot.evaluation.metrics import RawMaps, auc, ciou_at, truth_maps
from soundspot.evaluation.protocols import score
from soundspot.features.cache import AnyCache, open_encoded
from soundspot.features.spec import FeatureSpec, encoders_digest
from soundspot.inference.localizer import Localizer, Part
from soundspot.inference.maps import box_around, label_regions, resize_map
from soundspot.inference.outlines import load_outliner
from soundspot.inference.sources import Again, split
from soundspot.media.clips import SOUND_SAMPLES
from soundspot.media.decoding import AnyPicture, AnyWaveform
from soundspot.media.films import Film
from soundspot.model.checkpoint import Card
from soundspot.model.methods.method import Method

BATCH = 32
NOISES = 16  # different draws of white noise

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EncodedFeatures:
    """Features in memory, half precision; `lost` gives the reason for each unreadable file."""

    frames: Mapping[str, Tensor]
    sounds: Mapping[str, Tensor]
    lost: Mapping[str, str]
    picture: Callable[[str], AnyPicture]

    def evaluation(self, frames: Sequence[str]) -> Float[Tensor, "n c h w"]:
        """The whole-frame features."""
        return torch.stack([self.frames[frame] for frame in frames]).float()

    def sound(self, paths: Sequence[str]) -> Float[Tensor, "n p a"]:
        """The audio embeddings."""
        return torch.stack([self.sounds[path] for path in paths])


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a pair set, by the encoders of each part of a model."""

    by_spec: Mapping[FeatureSpec, AnyCache | EncodedFeatures]
    film: Callable[[str], Film | None] = lambda frame: None
    waveform: Callable[[str], AnyWaveform] | None = None

    @property
    def learned(self) -> AnyCache | EncodedFeatures:
        """Those of the learned part, which are opened first."""
        return next(iter(self.by_spec.values()))

    @property
    def cached(self) -> bool:
        """Whether those of all frames and sounds of the pair set are there."""
        return not any(isinstance(some, EncodedFeatures) for some in self.by_spec.values())

    @property
    def lost(self) -> dict[str, str]:
        """The files that could not be encoded, and why."""
        encoded = [some for some in self.by_spec.values() if isinstance(some, EncodedFeatures)]
        return {name: reason for some in encoded for name, reason in some.lost.items()}

    def evaluation(self, frames: Sequence[str]) -> Float[Tensor, "n c h w"]:
        """The whole-frame features of the learned part."""
        return self.learned.evaluation(frames)

    def sound(self, paths: Sequence[str]) -> Float[Tensor, "n p a"]:
        """The audio embeddings."""
        return self.learned.sound(paths)


@dataclass(frozen=True, eq=False)
class StoredScenes:
    """Frames of a pair set whose features are stored; what a Localizer answers about."""

    stored: Features
    frames: Sequence[str]
    sounds: Sequence[str] = ()

    def features(self, part: Part) -> Float[Tensor, "n c h w"]:
        """The visual features that a part of the model sees."""
        return self.stored.by_spec[part.card.features].evaluation(self.frames).to(part.device)

    def picture(self, row: int) -> AnyPicture:
        """The pixels of one frame."""
        return self.stored.learned.picture(self.frames[row])

    def film(self, row: int) -> Film | None:
        """The small pictures around one frame, if it belongs to a video."""
        return self.stored.film(self.frames[row])

    def sound(self, row: int) -> AnyWaveform | None:
        """What is heard with one frame that has a film, if that is known."""
        heard = self.stored.waveform
        return heard(self.sounds[row]) if heard is not None and self.sounds else None


def open_cache(pairs: PairSet, spec: FeatureSpec, frames: Sequence[str]) -> AnyCache | None:
    """The pair set's feature cache, if there is a valid one that holds the frames.

    Whole frames and original sounds are enough. No augmentation changes them, so an exact cache
    with any is as good as the one that a model was trained on.
    """
    trained_on = replace(spec, views=0, noisy=0)
    exact = replace(trained_on, augmentations=DEFAULT_AUGMENTATIONS, amp=False)
    annotated = {pair.frame for pair in pairs.pairs if pair.boxes is not None}
    if not annotated.issuperset(frames):
        return None
    for wanted in dict.fromkeys((exact, trained_on)):
        try:
            return open_encoded(pairs, wanted)
        except SoundspotError as error:
            log.info("not using the feature cache: %s", error)
    return None


def open_features(
    model: Localizer, pairs: PairSet, frames: Sequence[str], sounds: Sequence[str]
) -> Features:
    """Features from the pair set's cache if it fits the model, otherwise encoded now."""
    by_spec: dict[FeatureSpec, AnyCache | EncodedFeatures] = {}
    for part in filter(None, (model.learned, model.named)):
        spec = part.card.features
        cache = open_cache(pairs, spec, frames)
        trained_on = part.card.provenance.get("encoder_weights")
        fits = cache is not None and cache.weights == (trained_on or encoders_digest(spec))
        heard = () if part is model.named else sounds  # the parts share their sounds
        by_spec[spec] = cache if cache and fits else encode_now(part, pairs, frames, heard)
    return Features(by_spec, pairs.film, pairs.waveform)


def encode_now(
    part: Part, pairs: PairSet, frames: Sequence[str], sounds: Sequence[str]
) -> EncodedFeatures:
    """Encode frames and sounds under a progress bar; unreadable files are listed as lost."""
    seen, heard, lost = {}, {}, {}
    with torch.inference_mode():
        for name in progress(dict.fromkeys(frames), "encoding frames"):
            try:
                seen[name] = part.see([pairs.frame(name)])[0].half().cpu()
            except ItemError as error:
                lost[name] = str(error)
        for name in progress(dict.fromkeys(sounds), "encoding sounds"):
            try:
                waveform = torch.from_numpy(pairs.waveform(name))
                heard[name] = part.encoders.audio(waveform[None].to(part.device))[0].cpu()
            except ItemError as error:
                lost[name] = str(error)
    return EncodedFeatures(seen, heard, lost, pairs.frame)


def white_noise(model: Localizer) -> Float[Tensor, "n p a"]:
    """Embeddings of a few draws of white noise, the same every time."""
    rng = np.random.default_rng(0)
    drawn = (
        rng.uniform(-0.1, 0.1, SOUND_SAMPLES).astype(np.float32)
        for _ in progress(range(NOISES), "encoding noise")
    )
    return torch.cat([model.hear([waveform]).cpu() for waveform in drawn])


def maps_of(
    model: Localizer,
    features: Features,
    frames: Sequence[str],
    f_a: Float[Tensor, "n p a"],
    cycles: int | None = None,
    sounds: Sequence[str] = (),
) -> Float32[np.ndarray, "n h w"]:
    """The map of the model's answer for each frame under its sound; `sounds` are their files."""
    batches = _batches(model, features, frames, f_a, sounds)
    found = (model.answer(scenes, heard, cycles) for scenes, heard in batches)
    return np.stack([answer.similarity for part in found for answer in part])


def maps_of_sources(
    model: Localizer, features: Features, scenes: Sequence[BenchmarkItem]
) -> tuple[Float32[np.ndarray, "n h w"], Float32[np.ndarray, "n h w"]]:
    """The map of each scene's class in the mixture that it is heard in, and all maps there are.

    Scenes of a mixture follow each other. Where a class was not found its map is flat; so are the
    others, in any order, where there are fewer maps than sounds.
    """
    own, found = [], []
    mixtures = [list(rows) for _, rows in groupby(scenes, lambda scene: scene.group)]
    for rows in progress(mixtures, f"splitting sounds with {model.name}"):
        scene = Again(StoredScenes(features, [rows[0].frame]))
        answers = split(model, scene, features.sound([rows[0].audio]), len(rows))
        flat = np.zeros_like(answers[0].similarity)
        by_name = {str(one.labels[0][0]).lower(): one.similarity for one in answers if one.labels}
        own += [by_name.get(str(row.cls).lower(), flat) for row in rows]
        found += [one.similarity for one in answers] + [flat] * (len(rows) - len(answers))
    return np.stack(own), np.stack(found)


def maps_by_cycle(
    model: Localizer,
    features: Features,
    frames: Sequence[str],
    f_a: Float[Tensor, "n p a"],
    cycles: int | None = None,
) -> Float32[np.ndarray, "t n h w"]:
    """The map of each frame under its sound after each pass of a PCM."""
    batches = _batches(model, features, frames, f_a)
    parts = [model.trace(scenes, heard, cycles) for scenes, heard in batches]
    return np.concatenate(parts, axis=1)


def _batches(
    model: Localizer,
    features: Features,
    frames: Sequence[str],
    f_a: Float[Tensor, "n p a"],
    sounds: Sequence[str] = (),
) -> Iterator[tuple[StoredScenes, Float[Tensor, "b p a"]]]:
    for start in progress(range(0, len(frames), BATCH), f"maps of {model.name}"):
        part = slice(start, start + BATCH)
        yield StoredScenes(features, frames[part], sounds[part]), f_a[part]


def saliency_maps(
    features: Features | AnyCache, frames: Sequence[str]
) -> Float[np.ndarray, "n h w"]:
    """What stands out in the pictures, regardless of the sound."""
    parts = [
        trivial.saliency(features.evaluation(frames[start : start + BATCH]).numpy())
        for start in range(0, len(frames), BATCH)
    ]
    return np.concatenate(parts)


# --- validation ---


def validate(method: Method, cache: AnyCache, pairs: PairSet) -> dict[str, float]:
    """The numbers that select an epoch: cIoU@0.5 and AUC (`sspl`) on val, and duets if present.

    The cache must hold the evaluation views and the sounds.
    """
    scenes = annotated_scenes(pairs, "val")
    # Two votes among several annotators, or the union of what a single one drew.
    several = any(len(scene.boxes) > 1 for scene in scenes)
    truths = truth_maps([scene.boxes for scene in scenes], needed=2 if several else 1)
    scores = score(cached_maps(method, cache, scenes), truths, ["sspl"])["sspl"]
    metrics = {"ciou": ciou_at(scores), "auc": auc(scores)}
    if "duets-val" in pairs.splits():
        duets = annotated_scenes(pairs, "duets-val")
        sides = [duet.side for duet in duets if duet.side is not None]
        metrics["duets"] = float(peak_on_side(cached_maps(method, cache, duets), sides).mean())
    return metrics


def cached_maps(
    method: Method, cache: AnyCache, scenes: Sequence[BenchmarkItem]
) -> Float[np.ndarray, "n h w"]:
    """The maps of annotated scenes with their own sounds."""
    part = Part(method, Card("", {}, cache.spec), next(method.parameters()).device)
    frames, f_a = [scene.frame for scene in scenes], cache.sound([scene.audio for scene in scenes])
    features = Features({cache.spec: cache})
    return maps_of(Localizer("the epoch", part), features, frames, f_a)


# --- outlines: benchmarks annotate boxes, so the boxes of a mask are scored ---


SIDE = 224  # pixels, as the protocols have


def box_maps(
    maps: RawMaps,
    frames: Sequence[str],
    picture: Callable[[str], AnyPicture],
    device: torch.device,
) -> Float32[np.ndarray, "n s s"]:
    """Maps that are hottest in the boxes of what they outline, whatever the verdict.

    Args:
        maps: A model's.
        frames: The frame of each.
        picture: The pixels of a frame.
        device: Where to outline.
    """
    outliner = load_outliner(device)
    found = np.empty((len(maps), SIDE, SIDE), np.float32)
    seen = {}  # of the last frame only: its sounds follow each other
    for number, name in enumerate(progress(frames, "outlines")):
        if name not in seen:
            seen = {name: outliner.see(picture(name))}
        s = maps[number].astype(np.float32)
        mask = outliner.outline(seen[name], s)
        found[number] = resize_map(s, SIDE, SIDE) if mask is None else box_map(s, mask)
    return found


def box_map(
    similarity: Float32[np.ndarray, "h w"], mask: Bool[np.ndarray, "height width"]
) -> Float32[np.ndarray, "s s"]:
    """At least one half in the boxes around the regions of a mask, less outside; both as the map.

    So every protocol finds what it looks for: a mask, or an order of all pixels.
    """
    height, width = mask.shape
    regions = label_regions(mask)
    inside = np.zeros((SIDE, SIDE), bool)
    for number in range(1, int(regions.max()) + 1):
        box = box_around(regions == number)
        assert box is not None
        x1, x2 = (round(x * SIDE / width) for x in box[::2])
        y1, y2 = (round(y * SIDE / height) for y in box[1::2])
        inside[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)] = True
    s = resize_map(similarity, SIDE, SIDE)
    heat = np.where(inside, 0.51, 0) + 0.49 * min_max(s)
    # Protocols stretch a map to 0..1: both ends must be there, each on its side.
    cold = s if inside.all() else np.where(inside, np.inf, s)
    heat.flat[[cold.argmin(), np.where(inside, s, -np.inf).argmax()]] = 0, 1
    return heat.astype(np.float32)
