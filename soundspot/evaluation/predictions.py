"""Where the maps to be judged come from: a model on a pair set, or files of any other codebase.

Axes: n pairs, p audio patches, a audio channels, c visual channels, h w the map as it was made,
t passes of a PCM.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from soundspot.common.errors import SoundspotError
from soundspot.common.progress import progress
from soundspot.data.pair_set import ItemError, PairSet
from soundspot.encoders.views import evaluation_view
from soundspot.evaluation import benchmarks, trivial
from soundspot.evaluation.benchmarks import Benchmark, Item
from soundspot.evaluation.validation import side_of
from soundspot.features.cache import FeatureCache, cache_folder
from soundspot.features.spec import FeatureSpec
from soundspot.inference.localizer import Localizer
from soundspot.media.clips import SOUND_SAMPLES

ESCVOC_SPLITS: Mapping[str, str] = {
    "escvoc": "test",
    "escvoc-val": "val",
    "escvoc-duets": "duets-test",
    "escvoc-duets-val": "duets-val",
}
BATCH = 32
LOST = "not in the pair set"
ARCHIVE = "maps.npz"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scene:
    """An item of a benchmark with its media in the pair set, None where there is no pair set."""

    item: Item
    frame: str | None = None
    audio: str | None = None


def find_scenes(
    benchmark: Benchmark, pairs: PairSet | None, annotations: Path | None
) -> tuple[list[Scene], dict[str, str]]:
    """The items of a benchmark that can be evaluated, and id -> reason for those that cannot.

    ESC-VOC's truth stands in its pair set; other truths are read from their annotation files and
    looked up in the pair set, if one is given, by id.
    """
    split = ESCVOC_SPLITS.get(benchmark.name)
    if split is not None and pairs is not None:
        found = own_truth(pairs, split)
        if len(found) > benchmark.count:
            raise SoundspotError(
                f"{benchmark.name} has {benchmark.count:,} pairs, but the split {split} of "
                f"{pairs.root} has {len(found):,}: is it another pair set?"
            )
        return found, {}
    if annotations is None:
        needs = "a pair set (--data) or " if split is not None else ""
        raise SoundspotError(
            f"{benchmark.name} needs {needs}the folder of its annotation files (--annotations)"
        )
    items = benchmarks.load(benchmark.name, annotations)
    if pairs is None:
        return [Scene(item) for item in items], {}
    known = {pair.id: pair for pair in pairs.pairs}
    found, missing = [], {}
    for item in items:
        seen = known.get(item.id) or known.get(item.frame)
        heard = known.get(item.id) or known.get(item.audio)
        if seen is None or heard is None or heard.audio is None:
            missing[item.id] = LOST
        else:
            found.append(Scene(item, seen.frame, heard.audio))
    return found, missing


def own_truth(pairs: PairSet, split: str) -> list[Scene]:
    """The scenes of an annotated split of a pair set."""
    rows = pairs.select(split)
    scenes = []
    for pair in rows:
        if pair.boxes is None or pair.audio is None:
            raise SoundspotError(
                f"pair {pair.id!r} of {pairs.root} cannot be judged: "
                f"it has no {'boxes' if pair.boxes is None else 'sound of its own'}"
            )
        side = None if pair.group is None else side_of(pair)
        item = Item(pair.id, pair.frame, pair.audio, pair.boxes, pair.cls, pair.group, side)
        scenes.append(Scene(item, pair.frame, pair.audio))
    return scenes


@dataclass(frozen=True, eq=False)
class Encoded:
    """Features held in memory, 200 KB a frame; `lost` names what could not be read, and why."""

    frames: Mapping[str, Tensor]
    sounds: Mapping[str, Tensor]
    lost: Mapping[str, str]

    def evaluation(self, frames: Sequence[str]) -> Float[Tensor, "n c h w"]:
        """The whole-frame features."""
        return torch.stack([self.frames[frame] for frame in frames]).float()

    def sound(self, paths: Sequence[str]) -> Float[Tensor, "n p a"]:
        """The audio embeddings."""
        return torch.stack([self.sounds[path] for path in paths])


Features = FeatureCache | Encoded
"""Frozen features by file name."""


def open_cache(pairs: PairSet, spec: FeatureSpec, frames: Sequence[str]) -> FeatureCache | None:
    """The pair set's feature cache, if there is one that fits and holds the frames."""
    wanted = replace(spec, views=0)  # the evaluation views are enough
    annotated = {pair.frame for pair in pairs.pairs if pair.boxes is not None}
    if not annotated.issuperset(frames):
        return None
    try:
        return FeatureCache.open(cache_folder(pairs, wanted), pairs, wanted)
    except SoundspotError as error:
        log.info("encoding anew: %s", error)
        return None


def open_features(
    model: Localizer, pairs: PairSet, frames: Sequence[str], sounds: Sequence[str]
) -> Features:
    """Features from the pair set's cache if it fits the model, else encoded now."""
    cache = open_cache(pairs, model.card.features, frames)
    trained_on = model.card.provenance.get("encoder_weights")
    if cache is not None and trained_on in (None, cache.weights):
        return cache
    return encode_now(model, pairs, frames, sounds)


def encode_now(
    model: Localizer, pairs: PairSet, frames: Sequence[str], sounds: Sequence[str]
) -> Encoded:
    """Encode frames and sounds under a progress bar; what cannot be read is lost with a reason."""
    seen, heard, lost = {}, {}, {}
    with torch.inference_mode():
        for name in progress(dict.fromkeys(frames), "encoding frames"):
            try:
                pixels = torch.from_numpy(pairs.frame(name)).permute(2, 0, 1)
            except ItemError as error:
                lost[name] = str(error)
                continue
            view = evaluation_view(pixels)[None].contiguous(memory_format=torch.channels_last)
            seen[name] = model.visual(view.to(model.device))[0].half().cpu()
        for name in progress(dict.fromkeys(sounds), "encoding sounds"):
            try:
                waveform = torch.from_numpy(pairs.waveform(name))
            except ItemError as error:
                lost[name] = str(error)
                continue
            heard[name] = model.audio(waveform[None].to(model.device))[0].cpu()
    return Encoded(seen, heard, lost)


def noise(model: Localizer, count: int, seed: int = 0) -> Float[Tensor, "n p a"]:
    """Embeddings of white noise, each of its own draw."""
    rng = np.random.default_rng(seed)
    heard = []
    with torch.inference_mode():
        for _ in progress(range(count), "encoding noise"):
            waveform = rng.uniform(-0.1, 0.1, SOUND_SAMPLES).astype(np.float32)
            heard.append(model.audio(torch.from_numpy(waveform)[None].to(model.device)).cpu())
    return torch.cat(heard)


def model_maps(
    model: Localizer,
    features: Features,
    frames: Sequence[str],
    f_a: Float[Tensor, "n p a"],
    cycles: int | None = None,
) -> Float32[np.ndarray, "n h w"]:
    """The maps of frames, each under its own sound."""
    last: Float32[np.ndarray, "n h w"] = maps_by_cycle(model, features, frames, f_a, cycles)[-1]
    return last


def maps_by_cycle(
    model: Localizer,
    features: Features,
    frames: Sequence[str],
    f_a: Float[Tensor, "n p a"],
    cycles: int | None = None,
) -> Float32[np.ndarray, "t n h w"]:
    """The maps after each pass of a PCM; one map a frame where there is none."""
    parts = []
    with torch.inference_mode():
        for start in progress(range(0, len(frames), BATCH), f"maps of {model.name}"):
            part = slice(start, start + BATCH)
            f_v = features.evaluation(frames[part]).to(model.device)
            heard = f_a[part].to(model.device)
            maps: list[Tensor] = cast(Any, model.method).maps_by_cycle(f_v, heard, cycles)
            parts.append(torch.stack(maps).float().cpu().numpy())
    return np.concatenate(parts, axis=1)


def saliency_maps(features: Features, frames: Sequence[str]) -> Float[np.ndarray, "n h w"]:
    """What stands out of the pictures, whatever is heard."""
    parts = [
        trivial.saliency(features.evaluation(frames[start : start + BATCH]).numpy())
        for start in range(0, len(frames), BATCH)
    ]
    return np.concatenate(parts)


def cycles_of(model: Localizer) -> int | None:
    """T of a PCM model; None without PCM."""
    config = cast(Any, model.method).config
    return int(config.cycles) if getattr(config, "pcm", False) else None


@dataclass(frozen=True)
class SavedMaps:
    """A folder of maps: `<id>.npy` for every pair, or all of them in maps.npz with ids as keys."""

    folder: Path

    def __post_init__(self) -> None:
        """Refuse a folder that is not there before any work starts."""
        if not self.folder.is_dir():
            raise SoundspotError(f"there is no folder of maps at {self.folder}")

    def having(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that have a map; at least one must."""
        archive = self.folder / ARCHIVE
        if archive.exists():
            with _open(archive) as file:
                found = set(file.files).intersection(ids)
        else:
            found = {id for id in ids if (self.folder / f"{id}.npy").is_file()}
        if not found:
            raise SoundspotError(
                f"{self.folder} has a map for none of the {len(ids):,} pairs: expected files such "
                f"as {ids[0]}.npy, or {ARCHIVE} with ids as keys"
            )
        return found

    def read(self, ids: Sequence[str]) -> Float32[np.ndarray, "n h w"]:
        """The maps of the ids, all of one size."""
        archive = self.folder / ARCHIVE
        if archive.exists():
            with _open(archive) as file:
                try:
                    maps = [_checked(file[id], id, archive) for id in ids]
                except (OSError, ValueError, EOFError, BadZipFile) as error:
                    raise _unreadable(archive, error) from error
        else:
            paths = {id: self.folder / f"{id}.npy" for id in ids}
            maps = [_checked(_open(path), id, path) for id, path in paths.items()]
        for id, one in zip(ids, maps, strict=True):
            if one.shape != maps[0].shape:
                raise SoundspotError(
                    f"{self.folder}: expected maps of one size, but {ids[0]} is "
                    f"{maps[0].shape[0]}x{maps[0].shape[1]} and {id} {one.shape[0]}x{one.shape[1]}"
                )
        return np.stack(maps)


def _open(path: Path) -> Any:
    try:
        return np.load(path)  # never unpickles
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> SoundspotError:
    return SoundspotError(f"{path} is not a readable NumPy file ({error})")


def _checked(values: Any, id: str, source: Path) -> Float32[np.ndarray, "h w"]:
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "fiub":
        raise SoundspotError(
            f"{source}: expected the map of {id} to be numbers of shape height x width, "
            f"got {values.dtype} of shape {values.shape}"
        )
    one: Float32[np.ndarray, "h w"] = values.astype(np.float32)
    if not np.isfinite(one).all():
        raise SoundspotError(f"{source}: the map of {id} holds NaN or infinity")
    return one
