"""Compute the frozen features of a pair set, in shards: stop and resume at will, or share the work.

Axes of arrays on disk: sounds are (sound, patch, channel), frames are (frame, h, w, channel).
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from soundspot.common.errors import BusyError, SoundspotError
from soundspot.common.files import TEMPORARY, atomic_write, locked, write_text
from soundspot.common.progress import counting
from soundspot.data.pair_set import PairSet
from soundspot.encoders.views import evaluation_view, random_view, view_generator
from soundspot.features import cache
from soundspot.features.spec import Encoders, FeatureSpec, kind_of, load_encoders, rounded
from soundspot.media.sound import add_noise
from soundspot.parallel.devices import AUTO, choose_device
from soundspot.parallel.engines import SERIAL, Engine, map_loaded

ENCODE_BATCH = 16


class _Work(NamedTuple):
    """What every shard is computed from."""

    pairs: PairSet
    spec: FeatureSpec
    encoders: Encoders
    contents: cache.Contents


class _Shard(NamedTuple):
    """One file of the cache: its contents and how to compute some of its rows."""

    path: Path
    shape: tuple[int, ...]
    dtype: type[np.generic]
    compute: Callable[[slice], NDArray[Any]]
    leftovers: Sequence[Path]


def encode(
    pairs: PairSet,
    folder: Path,
    spec: FeatureSpec,
    advance: Callable[[int], None] = lambda done: None,
    engine: Engine = SERIAL,
    device: str = AUTO,
) -> cache.FeatureCache:
    """Compute what a cache lacks; safe to kill, to repeat and to run in parallel.

    Joined visual encoders have a cache each. `advance` is called after every batch or shard with
    the number of views or sounds in it.
    """
    encoders = load_encoders(spec, choose_device(device))
    work = _Work(pairs, spec, encoders, cache.contents_of(pairs))
    description = folder / cache.DESCRIPTION
    with _claimed(description, True, _leftovers(folder)[cache.DESCRIPTION]):
        if description.exists():
            cache.read_description(description, _describe_cache(work))
        else:
            write_text(description, json.dumps(_describe_cache(work), indent=1))
    shards = list(_shards(folder, work))
    if engine == SERIAL:
        _write_here(shards, advance)
    else:
        load = partial(_load_maker, pairs.root.absolute(), folder.absolute(), spec, device)
        names = [shard.path.name for shard in shards]
        for rows in map_loaded(load, names, engine, _worker_died, device != "cpu"):
            advance(rows)
    return cache.FeatureCache.open(folder, pairs, spec, encoders.digest)


def _write_here(shards: Sequence[_Shard], advance: Callable[[int], None]) -> None:
    # Two rounds: first what no other process is working on, then wait for the rest.
    for wait in (False, True):
        for shard in shards:
            with suppress(BusyError), _claimed(shard.path, wait, shard.leftovers):
                if shard.path.exists():
                    advance(shard.shape[0] if not wait else 0)
                else:
                    _compute_shard(shard, advance)


def _load_maker(root: Path, folder: Path, spec: FeatureSpec, device: str) -> Callable[[str], int]:
    """What another process needs to compute shards by name, with its own encoders."""
    pairs = PairSet.open(root)
    work = _Work(pairs, spec, load_encoders(spec, choose_device(device)), cache.contents_of(pairs))
    # It may be on a machine with other weights, or see another copy of the pair set.
    cache.read_description(folder / cache.DESCRIPTION, _describe_cache(work))
    return partial(_make_shard, {shard.path.name: shard for shard in _shards(folder, work)})


def _make_shard(shards: Mapping[str, _Shard], name: str) -> int:
    shard = shards[name]
    with _claimed(shard.path, True, shard.leftovers):
        if not shard.path.exists():
            _compute_shard(shard, lambda done: None)
    return shard.shape[0]


def _worker_died(name: str) -> int:
    raise SoundspotError(f"the process of {name} died (out of memory?); the same command resumes")


def size_on_disk(spec: FeatureSpec, contents: cache.Contents) -> int:
    """Bytes that a cache will take."""
    grid = int(np.prod(cache.grid_shape(spec))) * np.float16().nbytes
    sound = int(np.prod(cache.sound_shape(spec))) * np.float32().nbytes
    sounds = spec.versions * len(contents.sounds)
    return (views_and_sounds(spec, contents) - sounds) * grid + sounds * sound


def views_and_sounds(spec: FeatureSpec, contents: cache.Contents) -> int:
    """How many encoder passes a cache takes: the total of its progress bar."""
    frames = len(contents.train_frames) * spec.views + len(contents.eval_frames)
    return frames + spec.versions * len(contents.sounds)


def _describe_cache(work: _Work) -> dict[str, Any]:
    return {
        "code_version": cache.CODE_VERSION,
        "spec": kind_of(work.spec),
        "weights": work.encoders.digest,
        "pairs": work.pairs.fingerprint(),
        **work.contents._asdict(),
    }


def _shards(folder: Path, work: _Work) -> Iterator[_Shard]:
    """The files of a cache, the cheapest and most needed first."""
    spec, contents = work.spec, work.contents
    left = _leftovers(folder)  # listed once: a large cache has thousands of files
    for version in range(spec.versions):
        start = 0
        for name, rows in cache.sound_shards(folder, version, len(contents.sounds)):
            compute_sounds = partial(_encode_sounds, work, version, start)
            shape: tuple[int, ...] = (rows, *cache.sound_shape(spec))
            yield _Shard(folder / name, shape, np.float32, compute_sounds, left[name])
            start += rows
    for name, frames, view in (
        ("eval", contents.eval_frames, None),
        *((f"view{k:02d}", contents.train_frames, k) for k in range(spec.views)),
    ):
        start = 0
        for file, rows in cache.shard_names(name, len(frames), cache.SHARD_FRAMES):
            compute = partial(_encode_frames, work, frames, view, start)
            shape = (rows, *cache.grid_shape(spec))
            yield _Shard(folder / file, shape, np.float16, compute, left[file])
            start += rows


def noise_generator(seed: int, version: int, row: int) -> np.random.Generator:
    """The generator of one noisy sound; the last number keeps it apart from those of views."""
    return np.random.default_rng([seed, version, row, 1])


def _encode_sounds(work: _Work, version: int, start: int, rows: slice) -> NDArray[Any]:
    """Embeddings of some rows of the shard that starts at sound `start`."""
    first, last = start + rows.start, start + rows.stop
    heard = [work.pairs.waveform(path) for path in work.contents.sounds[first:last]]
    if version:
        heard = [
            add_noise(sound, noise_generator(work.spec.seed, version, row))
            for row, sound in enumerate(heard, first)
        ]
    waveforms = torch.from_numpy(np.stack(heard))
    embeddings: Tensor = work.encoders.audio(waveforms.to(work.encoders.device))
    return embeddings.cpu().numpy()


def _encode_frames(
    work: _Work, frames: Sequence[str], view: int | None, start: int, rows: slice
) -> NDArray[Any]:
    """Features of some rows of the shard that starts at frame `start`; no view: the whole frame."""
    spec = work.spec
    (size,) = spec.view_sizes
    images = []
    for index in range(start + rows.start, start + rows.stop):
        frame = torch.from_numpy(work.pairs.frame(frames[index])).permute(2, 0, 1)
        if view is None:
            images.append(evaluation_view(frame, size))
        else:
            rng = view_generator(spec.seed, view, index)
            images.append(random_view(frame, spec.augmentations, rng, size))
    batch = torch.stack(images).contiguous(memory_format=torch.channels_last)
    with rounded(spec, work.encoders.device):
        features: Tensor = work.encoders.visual(batch.to(work.encoders.device))
    return features.permute(0, 2, 3, 1).half().cpu().numpy()


def _compute_shard(shard: _Shard, advance: Callable[[int], None]) -> None:
    rows = np.empty(shard.shape, shard.dtype)
    with torch.inference_mode():
        for start in range(0, len(rows), ENCODE_BATCH):
            part = slice(start, min(start + ENCODE_BATCH, len(rows)))
            rows[part] = shard.compute(part)
            advance(part.stop - part.start)
    with atomic_write(shard.path) as whole, whole.open("wb") as file:
        np.save(file, rows)


@contextmanager
def _claimed(path: Path, wait: bool, leftovers: Sequence[Path]) -> Iterator[None]:
    """Hold the lock of one file, and only of that one: other processes write the others."""
    with locked(path.parent / ".locks" / path.name, busy="", wait=wait):
        for left in leftovers:
            left.unlink(missing_ok=True)
        yield


def _leftovers(folder: Path) -> Mapping[str, list[Path]]:
    """The temporary files of each file; whoever holds its lock may delete them."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in folder.glob(".*"):
        if TEMPORARY.fullmatch(path.name):
            stem, _, suffix = path.name[1:].rsplit(".", 2)
            found[f"{stem}.{suffix}"].append(path)
    return found


def encode_with_bar(
    pairs: PairSet,
    spec: FeatureSpec,
    say: Callable[[str], None],
    engine: Engine = SERIAL,
    device: str = AUTO,
) -> None:
    """Encode into the pair set's own folder and show progress; first say how big it will be."""
    contents = cache.contents_of(pairs)
    for part in spec.parts:
        place, total = cache.cache_folder(pairs, part), views_and_sounds(part, contents)
        say(f"{total} views and sounds, {size_on_disk(part, contents) / 1e9:.2f} GB, into {place}")
        with counting("encoding", total) as advance:
            encode(pairs, place, part, advance, engine, device)
        say(f"complete: {place}")
