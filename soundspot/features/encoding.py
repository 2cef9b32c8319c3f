"""Compute the frozen features of a pair set once: shards that can be killed, resumed and shared."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from torch import Tensor

from soundspot.common.errors import SoundspotError
from soundspot.common.files import BusyError, atomic_write, locked, remove_leftovers, write_text
from soundspot.data.pair_set import PairSet
from soundspot.encoders.logmel import HOP, PATCH_FRAMES
from soundspot.encoders.table import ENCODERS
from soundspot.encoders.views import VIEW_SIZE, evaluation_view, random_view, view_generator
from soundspot.features.cache import (
    CODE_VERSION,
    DESCRIPTION,
    SHARD_FRAMES,
    Encoders,
    FeatureCache,
    FeatureSpec,
    cache_folder,
    kind_of,
    load_encoders,
    refuse_stale,
)
from soundspot.media.clips import SOUND_SAMPLES
from soundspot.parallel.engines import SERIAL, Engine, map_loaded

ENCODE_BATCH = 16
SOUND_PATCHES = SOUND_SAMPLES // (PATCH_FRAMES * HOP)


@dataclass(frozen=True)
class Plan:
    """All that a cache will hold, known before the first frame is read.

    Attributes:
        sounds: Paths of the sounds, in row order.
        train_frames: Frames that get K augmented views.
        eval_frames: Frames that get the one evaluation view.
    """

    sounds: tuple[str, ...]
    train_frames: tuple[str, ...]
    eval_frames: tuple[str, ...]


def plan(pairs: PairSet) -> Plan:
    """Every sound, K views of frames to learn from, the whole frame where there are boxes."""
    rows = [pair for split in pairs.splits() for pair in pairs.select(split)]
    audio = [pair.audio for pair in rows if pair.audio is not None]
    return Plan(
        sounds=_unique([*audio, *(sound.audio for sound in pairs.sounds)]),
        train_frames=_unique([pair.frame for pair in rows if pair.boxes is None]),
        eval_frames=_unique([pair.frame for pair in rows if pair.boxes is not None]),
    )


def _unique(items: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


class _Shard(NamedTuple):
    """One file of the cache: what it holds and how to compute one of its batches."""

    path: Path
    shape: tuple[int, ...]
    dtype: type[np.generic]
    compute: Callable[[slice], NDArray[Any]]


def encode(
    pairs: PairSet,
    folder: Path,
    spec: FeatureSpec,
    advance: Callable[[int], None] = lambda done: None,
    engine: Engine = SERIAL,
) -> FeatureCache:
    """Compute what is missing of a cache; safe to kill, to repeat and to run in parallel.

    Args:
        pairs: The pair set.
        folder: The cache.
        spec: What to compute.
        advance: Told after every batch or shard how many views or sounds it held.
        engine: Who computes; others than this process take a shard at a time.
    """
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    encoders = load_encoders(spec, device)
    todo = plan(pairs)
    _describe(folder, pairs, spec, encoders.digest, todo)
    shards = list(_shards(folder, pairs, spec, encoders, todo))
    if engine == SERIAL:
        _write_here(shards, advance)
    else:
        load = partial(_load_maker, pairs.root.absolute(), folder.absolute(), spec)
        names = [shard.path.name for shard in shards]
        for rows in map_loaded(load, names, engine, _crash):
            advance(rows)
    return FeatureCache.open(folder, pairs, spec, encoders.digest)


def _write_here(shards: Sequence[_Shard], advance: Callable[[int], None]) -> None:
    # Two rounds: the first takes whatever no other process holds, the second waits for the rest.
    for wait in (False, True):
        for shard in shards:
            with suppress(BusyError), _claimed(shard.path, wait):
                if shard.path.exists():
                    advance(shard.shape[0] if not wait else 0)
                else:
                    _write_shard(shard, advance)


def _load_maker(root: Path, folder: Path, spec: FeatureSpec) -> Callable[[str], int]:
    """What another process needs to make shards by their names: encoders of its own."""
    encoders, pairs = load_encoders(spec), PairSet.open(root)
    todo = plan(pairs)
    # It may be on a machine with other weights, or see another copy of the pair set.
    refuse_stale(folder / DESCRIPTION, _description(pairs, spec, encoders.digest, todo))
    shards = _shards(folder, pairs, spec, encoders, todo)
    return partial(_make_shard, {shard.path.name: shard for shard in shards})


def _make_shard(shards: Mapping[str, _Shard], name: str) -> int:
    shard = shards[name]
    with _claimed(shard.path, wait=True):
        if not shard.path.exists():
            _write_shard(shard, lambda done: None)
    return shard.shape[0]


def _crash(name: str) -> int:
    raise SoundspotError(
        f"the process that computed {name} died (out of memory?); "
        "the same command goes on where it stopped"
    )


def size_on_disk(spec: FeatureSpec, todo: Plan) -> int:
    """Bytes that a cache will take, to be said before it is made."""
    grid = int(np.prod(_grid(spec))) * np.float16().nbytes
    sound = SOUND_PATCHES * ENCODERS[spec.audio].channels * np.float32().nbytes
    frames = len(todo.train_frames) * spec.views + len(todo.eval_frames)
    return frames * grid + len(todo.sounds) * sound


def views_and_sounds(spec: FeatureSpec, todo: Plan) -> int:
    """How many encoder passes a cache takes: the total of its progress bar."""
    return len(todo.sounds) + len(todo.eval_frames) + len(todo.train_frames) * spec.views


def _grid(spec: FeatureSpec) -> tuple[int, int, int]:
    encoder = ENCODERS[spec.visual]
    side = VIEW_SIZE // (encoder.stride or 1)
    return side, side, encoder.channels


def _describe(folder: Path, pairs: PairSet, spec: FeatureSpec, digest: str, todo: Plan) -> None:
    description = _description(pairs, spec, digest, todo)
    path = folder / DESCRIPTION
    if path.exists():
        refuse_stale(path, description)
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(description, indent=1))


def _description(pairs: PairSet, spec: FeatureSpec, digest: str, todo: Plan) -> dict[str, Any]:
    return {
        "code_version": CODE_VERSION,
        "spec": kind_of(spec),
        "weights": digest,
        "pairs": pairs.fingerprint(),
        "sounds": list(todo.sounds),
        "train_frames": list(todo.train_frames),
        "eval_frames": list(todo.eval_frames),
    }


def _shards(
    folder: Path, pairs: PairSet, spec: FeatureSpec, encoders: Encoders, todo: Plan
) -> Iterator[_Shard]:
    """The files of a cache, cheapest and most needed first."""

    def audio(rows: slice) -> NDArray[Any]:
        waves = np.stack([pairs.waveform(path) for path in todo.sounds[rows]])
        embedded: Tensor = encoders.audio(torch.from_numpy(waves).to(encoders.device))
        return embedded.cpu().numpy()

    def visual(frames: Sequence[str], make: Callable[[Tensor, int], Tensor]) -> NDArray[Any]:
        batch = torch.stack(
            [
                make(torch.from_numpy(pairs.frame(frame)).permute(2, 0, 1), i)
                for i, frame in enumerate(frames)
            ]
        )
        batch = batch.contiguous(memory_format=torch.channels_last).to(encoders.device)
        feature: Tensor = encoders.visual(batch)
        return feature.permute(0, 2, 3, 1).half().cpu().numpy()

    heard = (len(todo.sounds), SOUND_PATCHES, ENCODERS[spec.audio].channels)
    if todo.sounds:
        yield _Shard(folder / "audio.npy", heard, np.float32, audio)
    for name, frames, view in (
        ("eval", todo.eval_frames, None),
        *((f"view{k:02d}", todo.train_frames, k) for k in range(spec.views)),
    ):
        for start in range(0, len(frames), SHARD_FRAMES):
            block = frames[start : start + SHARD_FRAMES]

            def compute(
                rows: slice, block: Sequence[str] = block, view: int | None = view, at: int = start
            ) -> NDArray[Any]:
                def make(frame: Tensor, i: int) -> Tensor:
                    if view is None:
                        return evaluation_view(frame)
                    rng = view_generator(spec.seed, view, at + rows.start + i)
                    return random_view(frame, spec.augmentations, rng)

                return visual(block[rows], make)

            path = folder / f"{name}-{start // SHARD_FRAMES:05d}.npy"
            yield _Shard(path, (len(block), *_grid(spec)), np.float16, compute)


def _write_shard(shard: _Shard, advance: Callable[[int], None]) -> None:
    rows = np.empty(shard.shape, shard.dtype)
    with torch.inference_mode():
        for start in range(0, len(rows), ENCODE_BATCH):
            part = slice(start, min(start + ENCODE_BATCH, len(rows)))
            rows[part] = shard.compute(part)
            advance(part.stop - part.start)
    with atomic_write(shard.path) as whole, whole.open("wb") as file:
        np.save(file, rows)


@contextmanager
def _claimed(path: Path, wait: bool) -> Iterator[None]:
    """Hold the lock of one shard, and only of that one: other processes write the others."""
    with locked(path.parent / ".locks" / path.name, busy="", wait=wait):
        remove_leftovers(path.parent, f".{path.stem}.*")
        yield


def encode_with_bar(
    pairs: PairSet, spec: FeatureSpec, say: Callable[[str], None], engine: Engine = SERIAL
) -> None:
    """Encode into the pair set's own folder, saying first how big it will be.

    Args:
        pairs: The pair set.
        spec: What to compute.
        say: Told what happens, a line at a time.
        engine: Who computes.
    """
    todo, place = plan(pairs), cache_folder(pairs, spec)
    total = views_and_sounds(spec, todo)
    say(f"{total} views and sounds, {size_on_disk(spec, todo) / 1e9:.2f} GB, into {place}")
    console = Console(stderr=True)
    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=total)
        encode(pairs, place, spec, lambda done: bar.advance(task, done), engine)
    say(f"complete: {place}")
