"""A model's maps on a pair set, from cached features or from features encoded now.

Axes: n pairs, p audio patches, a audio channels, c visual channels, h w the map as it was made,
t passes of a PCM.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write
from soundspot.common.progress import progress
from soundspot.data.pair_set import ItemError, PairSet
from soundspot.encoders import weights
from soundspot.encoders.views import DEFAULT_AUGMENTATIONS
from soundspot.encoders.yamnet import YAMNet
from soundspot.evaluation import trivial
from soundspot.features.cache import AnyCache, open_encoded, sound_shape
from soundspot.features.spec import Encoders, FeatureSpec, encoders_digest, load_encoders
from soundspot.inference.looks import look, see
from soundspot.inference.models import read_model
from soundspot.inference.router import blend, check_names_sounds, open_bridge, split_name
from soundspot.media.clips import SOUND_SAMPLES
from soundspot.media.decoding import AnyPicture
from soundspot.model.checkpoint import Card
from soundspot.model.methods.method import Method
from soundspot.model.routing import Route, RouteTable, choose_route, route_table
from soundspot.parallel.devices import AUTO, choose_device

BATCH = 32
NOISES = 16  # different draws of white noise

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EvaluatedModel:
    """A model in eval mode without its encoders, which are loaded only if they are needed.

    Attributes:
        bridge: Of MODEL+names: the bridge, between which and the model the sound decides.
        table: What the sound decides by.
    """

    name: str
    method: Method
    card: Card
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    bridge: "EvaluatedModel | None" = None
    table: RouteTable | None = None

    @cached_property
    def encoders(self) -> Encoders:
        """The frozen encoders."""
        return load_encoders(self.card.features, self.device)

    @property
    def cycles(self) -> int | None:
        """T of a PCM model; None without a PCM."""
        config = cast(Any, self.method).config
        return int(config.cycles) if getattr(config, "pcm", False) else None


def open_model(name: str | Path, device: str = AUTO) -> EvaluatedModel:
    """Read a model by any name, and for any device, that `soundspot.load` takes."""
    place = choose_device(device)
    learned, bridge = split_name(str(name))
    method, card = read_model(learned)
    if not card.trained:
        log.warning("WARNING: %s is untrained, so its maps mean nothing.", name)
    model = EvaluatedModel(str(name), method.to(place).eval(), card, place)
    if bridge is None:
        return model
    check_names_sounds(card, str(name))
    table = route_table(open_bridge(bridge), weights.class_names())
    return replace(model, bridge=open_model(bridge, device), table=table)


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
class RoutedFeatures:
    """The features of a learned model and of its bridge; both hear with the same encoder."""

    own: AnyCache | EncodedFeatures
    bridge: AnyCache | EncodedFeatures

    def evaluation(self, frames: Sequence[str]) -> Float[Tensor, "n c h w"]:
        """The whole-frame features of the learned model."""
        return self.own.evaluation(frames)

    def sound(self, paths: Sequence[str]) -> Float[Tensor, "n p a"]:
        """The audio embeddings."""
        return self.own.sound(paths)


Features = AnyCache | EncodedFeatures | RoutedFeatures


def lost_files(features: Features) -> Mapping[str, str]:
    """The files that could not be encoded, and why."""
    if isinstance(features, RoutedFeatures):
        return {**lost_files(features.own), **lost_files(features.bridge)}
    return features.lost if isinstance(features, EncodedFeatures) else {}


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
    model: EvaluatedModel, pairs: PairSet, frames: Sequence[str], sounds: Sequence[str]
) -> Features:
    """Features from the pair set's cache if it fits the model, otherwise encoded now."""
    own = _open_features(model, pairs, frames, sounds)
    if model.bridge is None:
        return own
    return RoutedFeatures(own, _open_features(model.bridge, pairs, frames, sounds))


def _open_features(
    model: EvaluatedModel, pairs: PairSet, frames: Sequence[str], sounds: Sequence[str]
) -> AnyCache | EncodedFeatures:
    cache = open_cache(pairs, model.card.features, frames)
    if cache is not None:
        trained_on = model.card.provenance.get("encoder_weights")
        if cache.weights == (trained_on or encoders_digest(model.card.features)):
            return cache
    return encode_now(model, pairs, frames, sounds)


def encode_now(
    model: EvaluatedModel, pairs: PairSet, frames: Sequence[str], sounds: Sequence[str]
) -> EncodedFeatures:
    """Encode frames and sounds under a progress bar; unreadable files are listed as lost."""
    visual, audio, _, device = model.encoders
    sizes = model.card.features.view_sizes
    seen, heard, lost = {}, {}, {}
    with torch.inference_mode():
        for name in progress(dict.fromkeys(frames), "encoding frames"):
            try:
                seen[name] = see(visual, [pairs.frame(name)], sizes, device)[0].half().cpu()
            except ItemError as error:
                lost[name] = str(error)
        for name in progress(dict.fromkeys(sounds), "encoding sounds"):
            try:
                waveform = torch.from_numpy(pairs.waveform(name))
                heard[name] = audio(waveform[None].to(device))[0].cpu()
            except ItemError as error:
                lost[name] = str(error)
    return EncodedFeatures(seen, heard, lost, pairs.frame)


def white_noise(model: EvaluatedModel, features: Features) -> Float[Tensor, "n p a"]:
    """Embeddings of white noise, kept beside cached features so that they are encoded once."""
    if isinstance(features, RoutedFeatures):
        features = features.own
    if isinstance(features, EncodedFeatures):
        return _encode_noise(model)
    path = features.folder / f"noise-{features.weights}.npy"
    with suppress(OSError, ValueError, EOFError):  # missing or damaged: encode again
        kept = np.load(path)
        if kept.shape == (NOISES, *sound_shape(features.spec)) and kept.dtype == np.float32:
            return torch.from_numpy(kept)
    noise = _encode_noise(model)
    # A pair set may be read-only.
    with suppress(SoundspotError), atomic_write(path) as part:
        np.save(part, noise.numpy())
    return noise


def _encode_noise(model: EvaluatedModel) -> Float[Tensor, "n p a"]:
    rng = np.random.default_rng(0)
    heard = []
    with torch.inference_mode():
        for _ in progress(range(NOISES), "encoding noise"):
            waveform = rng.uniform(-0.1, 0.1, SOUND_SAMPLES).astype(np.float32)
            sound = torch.from_numpy(waveform)[None].to(model.encoders.device)
            heard.append(model.encoders.audio(sound).cpu())
    return torch.cat(heard)


def maps_by_cycle(
    model: EvaluatedModel,
    features: Features,
    frames: Sequence[str],
    f_a: Float[Tensor, "n p a"],
    cycles: int | None = None,
) -> Float32[np.ndarray, "t n h w"]:
    """The map of each frame under its sound after each pass of a PCM; one pass without a PCM."""
    if model.bridge is not None:
        assert isinstance(features, RoutedFeatures)  # `open_features` gives them
        alone = replace(model, bridge=None)
        learned = maps_by_cycle(alone, features.own, frames, f_a, cycles)
        (bridged,) = maps_by_cycle(model.bridge, features.bridge, frames, f_a)
        shares = [route.share for route in routes(model, f_a)]
        joined = [list(map(blend, passed, bridged, shares)) for passed in learned]
        return np.asarray(joined, np.float32)
    assert not isinstance(features, RoutedFeatures)
    parts = []
    with torch.inference_mode():
        for start in progress(range(0, len(frames), BATCH), f"maps of {model.name}"):
            part = slice(start, start + BATCH)
            f_v, heard = features.evaluation(frames[part]).to(model.device), f_a[part]
            maps = model.method.maps_by_cycle(f_v, heard.to(model.device), cycles)
            passes = torch.stack(maps).float().cpu().numpy()
            if model.card.second_look:
                pictures = [features.picture(frame) for frame in frames[part]]
                passes = _looks(model, passes, pictures, heard)
            parts.append(passes)
    return np.concatenate(parts, axis=1)


def _looks(
    model: EvaluatedModel,
    passes: Float32[np.ndarray, "t n h w"],
    pictures: Sequence[AnyPicture],
    f_a: Float[Tensor, "n p a"],
) -> Float32[np.ndarray, "t n h2 w2"]:
    """The maps of every pass as a Localizer makes them, with all of its looks."""
    spec, small = model.card.features, model.card.second_look

    def maps_of(
        cycles: int | None, parts: Sequence[AnyPicture], rows: Sequence[int], shrink: int
    ) -> Float32[np.ndarray, "k h w"]:
        sizes = [size // shrink for size in spec.view_sizes]
        seen = see(model.encoders.visual, parts, sizes, model.device)
        heard = f_a[list(rows)].to(model.device)
        return model.method.maps(seen, heard, cycles).float().cpu().numpy()

    def looked(number: int, maps: Float32[np.ndarray, "n h w"]) -> Float32[np.ndarray, "n h2 w2"]:
        of_parts = partial(maps_of, None if model.cycles is None else number)
        return look(pictures, small, spec.grid, lambda rows: maps[list(rows)], of_parts)

    return np.stack([looked(number, maps) for number, maps in enumerate(passes, 1)])


def saliency_maps(features: Features, frames: Sequence[str]) -> Float[np.ndarray, "n h w"]:
    """What stands out in the pictures, regardless of the sound."""
    parts = [
        trivial.saliency(features.evaluation(frames[start : start + BATCH]).numpy())
        for start in range(0, len(frames), BATCH)
    ]
    return np.concatenate(parts)


def routes(model: EvaluatedModel, f_a: Float[Tensor, "n p a"]) -> list[Route]:
    """Who makes the map of each sound."""
    assert model.table is not None and model.bridge is not None
    hearing = model.encoders.audio
    assert isinstance(hearing, YAMNet)
    with torch.inference_mode():
        heard = hearing.classify(f_a.to(model.device)).mean(dim=1).cpu().numpy()
    return [choose_route(scores, model.table) for scores in heard]
