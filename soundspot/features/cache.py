"""Frozen features on disk: the encoders' output for every frame and sound, computed once.

A cache is a folder of .npy shards beside `features.json`, which says what they were made from:
encoders and the digest of their weights, augmentations, pair set, code version. A cache that
differs in any of these is refused.

Axes: b batch, p audio patches, a audio channels (c_a), c visual channels (c_v), h w feature grid.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from soundspot.common.config import non_defaults, read_typed, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import Pair, PairSet
from soundspot.encoders.table import ENCODERS
from soundspot.features.spec import FeatureSpec, join, join_digests, kind_of
from soundspot.media.decoding import AnyPicture

CODE_VERSION = 1  # raise it when the same inputs would give different features
SHARD_FRAMES = 256
SHARD_SOUNDS = 16_384
MAPPED = 256  # files that are open at a time; a process may often have no more than 1,024
DESCRIPTION = "features.json"


def cache_folder(pairs: PairSet, spec: FeatureSpec) -> Path:
    """Where a pair set keeps the features of a spec, for any number of views and noisy sounds.

    Both can be added to a cache later, and one with more of them serves a spec with fewer.
    """
    name = hashlib.sha256(json.dumps(kind_of(spec), sort_keys=True).encode()).hexdigest()[:8]
    named = re.sub(r"[^\w.+-]+", "_", f"{spec.visual}-{spec.audio}")[-100:]
    return pairs.root / "features" / f"{named}-{name}"


@dataclass(frozen=True)
class Description:
    """The features.json of a cache: what its arrays were made from, and what their rows are.

    The spec is that of `kind_of`; weights and pairs are the digests of encoders and pair set.
    """

    code_version: int
    spec: dict[str, Any]
    weights: str
    pairs: str
    sounds: tuple[str, ...]
    train_frames: tuple[str, ...]
    eval_frames: tuple[str, ...]


def read_description(path: Path, expected: Mapping[str, Any]) -> Description:
    """Read a cache's features.json, and refuse it if it is not what is expected."""
    remedy = f"delete {path.parent} and run `soundspot encode` again"
    description = read_typed(path, Description, remedy)
    stored = to_dict(description)
    for key, value in expected.items():
        if stored[key] != value:
            was, now = json.dumps(stored[key])[:80], json.dumps(value)[:80]
            raise SoundspotError(
                f"the feature cache {path.parent} is stale: its {key} is {was}, but now it is "
                f"{now}; encode into another folder, or delete this one",
                "no-features",
            )
    return description


class Contents(NamedTuple):
    """Everything a cache will hold, in row order, known before the first frame is read."""

    sounds: list[str]
    train_frames: list[str]  # get K augmented views
    eval_frames: list[str]  # get the evaluation view


def contents_of(pairs: PairSet) -> Contents:
    """All sounds, the frames to learn from, and the frames with boxes."""
    rows = [pair for split in pairs.splits() for pair in pairs.select(split)]
    sounds = [pair.audio for pair in rows if pair.audio is not None]
    sounds += [sound.audio for sound in pairs.sounds]
    train_frames = [pair.frame for pair in rows if pair.boxes is None]
    eval_frames = [pair.frame for pair in rows if pair.boxes is not None]
    unique = (list(dict.fromkeys(paths)) for paths in (sounds, train_frames, eval_frames))
    return Contents(*unique)


def shard_names(name: str, rows: int, per_shard: int) -> list[tuple[str, int]]:
    """The files of a group of rows, and how many rows each has."""
    starts = range(0, rows, per_shard)
    blocks = [min(per_shard, rows - start) for start in starts]
    return [(f"{name}-{number:05d}.npy", block) for number, block in enumerate(blocks)]


def sound_shards(folder: Path, version: int, rows: int) -> list[tuple[str, int]]:
    """The files of all sounds: the originals (version 0), or those with noise.

    Few sounds are in one file, as are those of a cache that an older version made.
    """
    name = f"noisy{version:02d}" if version else "audio"
    if 0 < rows <= SHARD_SOUNDS or (folder / f"{name}.npy").exists():
        return [(f"{name}.npy", rows)]
    return shard_names(name, rows, SHARD_SOUNDS)


def grid_shape(spec: FeatureSpec) -> tuple[int, int, int]:
    """Of the features of one frame."""
    return spec.grid, spec.grid, spec.c_v


def sound_shape(spec: FeatureSpec) -> tuple[int, int]:
    """Of the embeddings of one sound."""
    return ENCODERS[spec.audio].patches, spec.c_a


class Shard(NamedTuple):
    """A file of the cache whose header has been checked; its rows begin at `offset`."""

    path: Path
    shape: tuple[int, ...]
    dtype: str
    offset: int
    changed: int


class ShardGroup(NamedTuple):
    """Rows in several files, of which all but the last have `per_shard` rows."""

    shards: tuple[Shard, ...]
    per_shard: int

    def row(self, number: int) -> NDArray[Any]:
        """One row; its file is mapped if it is not."""
        shard, place = divmod(number, self.per_shard)
        rows: NDArray[Any] = _mapped(self.shards[shard])[place]
        return rows


@lru_cache(MAPPED)
def _mapped(shard: Shard) -> NDArray[Any]:
    # An array that nobody uses any more closes its file.
    return np.memmap(shard.path, shard.dtype, "r", shard.offset, shard.shape)


class FeatureCache:
    """A complete cache, whose files are mapped into memory as they are read."""

    def __init__(
        self, folder: Path, description: Description, spec: FeatureSpec, pairs: PairSet
    ) -> None:
        self.folder, self.spec, self._pairs = folder, spec, pairs
        self.weights = description.weights
        self.sound_rows = {path: row for row, path in enumerate(description.sounds)}
        self.train_rows = {path: row for row, path in enumerate(description.train_frames)}
        self._eval_rows = {path: row for row, path in enumerate(description.eval_frames)}
        self._sounds = [self._sound_group(k) for k in range(spec.versions)]
        self._views = [
            self._view_group(f"view{k:02d}", len(self.train_rows)) for k in range(spec.views)
        ]
        self._eval = self._view_group("eval", len(self._eval_rows))

    @classmethod
    def open(
        cls, folder: Path, pairs: PairSet, spec: FeatureSpec, digest: str | None = None
    ) -> "FeatureCache":
        """Open the cache of these pairs, spec and (if given) weights, or say why it is unusable."""
        path = folder / DESCRIPTION
        if not path.exists():
            raise SoundspotError(
                f"no feature cache at {folder}; create it with `{_command(pairs, spec)}`",
                "no-features",
            )
        made_from = {"spec": kind_of(spec), "pairs": pairs.fingerprint()}
        expected = {"code_version": CODE_VERSION, **made_from, **contents_of(pairs)._asdict()}
        if digest is not None:
            expected["weights"] = digest
        return cls(folder, read_description(path, expected), spec, pairs)

    def _view_group(self, name: str, rows: int) -> ShardGroup:
        shape, blocks = grid_shape(self.spec), shard_names(name, rows, SHARD_FRAMES)
        return self._group(blocks, SHARD_FRAMES, shape, np.float16)

    def _sound_group(self, version: int) -> ShardGroup:
        blocks = sound_shards(self.folder, version, len(self.sound_rows))
        per_shard = max((rows for _, rows in blocks), default=1)
        return self._group(blocks, per_shard, sound_shape(self.spec), np.float32)

    def _group(
        self,
        blocks: Sequence[tuple[str, int]],
        per_shard: int,
        row: tuple[int, ...],
        dtype: type[np.generic],
    ) -> ShardGroup:
        shards = [self._check_shard(name, (rows, *row), dtype) for name, rows in blocks]
        return ShardGroup(tuple(shards), per_shard)

    def _check_shard(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> Shard:
        path = self.folder / name
        if not path.exists():
            raise SoundspotError(
                f"the feature cache {self.folder} is incomplete: {name} is missing; "
                f"`soundspot encode` with views={self.spec.views} and noisy={self.spec.noisy} "
                "resumes it",
                "no-features",
            )
        try:
            rows = np.load(path, mmap_mode="r")
            if (rows.shape, rows.dtype) != (shape, np.dtype(dtype)):
                kind = f"{rows.shape} of {rows.dtype}, not {shape} of {np.dtype(dtype)}"
                raise ValueError(f"its shape is {kind}")
        except Exception as error:  # NumPy reports a broken header as almost anything
            reason = " ".join(str(error).split())[:200]
            raise SoundspotError(
                f"{path} is damaged ({reason}); delete it and run `soundspot encode` again",
                "damaged",
            ) from error
        return Shard(path, shape, np.dtype(dtype).str, rows.offset, path.stat().st_mtime_ns)

    def view(self, frames: Sequence[str], views: Sequence[int]) -> Float[Tensor, "b c h w"]:
        """View views[i] of each frames[i]."""
        return self._gather([self._views[k] for k in views], [self.train_rows[f] for f in frames])

    def evaluation(self, frames: Sequence[str]) -> Float[Tensor, "b c h w"]:
        """The whole-frame features of frames that have boxes."""
        return self._gather([self._eval] * len(frames), [self._eval_rows[f] for f in frames])

    def picture(self, frame: str) -> AnyPicture:
        """The frame itself."""
        return self._pairs.frame(frame)

    def sound(
        self, paths: Sequence[str], versions: Sequence[int] | None = None
    ) -> Float[Tensor, "b p a"]:
        """Audio embeddings; version 0, the default, is the original."""
        rows = [self.sound_rows[path] for path in paths]
        if versions is None:
            versions = [0] * len(rows)
        chosen = [self._sounds[k].row(row) for k, row in zip(versions, rows, strict=True)]
        return torch.from_numpy(np.stack(chosen))

    @staticmethod
    def _gather(groups: Sequence[ShardGroup], rows: Sequence[int]) -> Float[Tensor, "b c h w"]:
        """Read rows, stored as h w c: permuted to b c h w they are already channels_last."""
        out = torch.empty(len(rows), *groups[0].shards[0].shape[1:])
        for target, group, row in zip(out, groups, rows, strict=True):
            # PyTorch widens float16 faster than NumPy; the copy is because a map is read-only.
            target.copy_(torch.from_numpy(np.array(group.row(row))))
        return out.permute(0, 3, 1, 2)


class JoinedCache:
    """The features of joined encoders, read from the cache of each encoder.

    It has everything that a FeatureCache has; sounds and folder are those of the first part.
    """

    def __init__(self, parts: Sequence[FeatureCache], spec: FeatureSpec) -> None:
        self.parts, self.spec = parts, spec
        first = parts[0]
        self.folder, self.sound_rows = first.folder, first.sound_rows
        self.train_rows = first.train_rows
        self.picture, self.sound = first.picture, first.sound
        self.weights = join_digests([part.weights for part in parts])

    def view(self, frames: Sequence[str], views: Sequence[int]) -> Float[Tensor, "b c h w"]:
        """View views[i] of each frames[i]."""
        return join([part.view(frames, views) for part in self.parts])

    def evaluation(self, frames: Sequence[str]) -> Float[Tensor, "b c h w"]:
        """The whole-frame features of frames that have boxes."""
        return join([part.evaluation(frames) for part in self.parts])


AnyCache = FeatureCache | JoinedCache


def _command(pairs: PairSet, spec: FeatureSpec) -> str:
    """The command that makes the cache of a spec."""
    settings = [f"{key}={json.dumps(value)}" for key, value in non_defaults(spec).items()]
    return shlex.join(["soundspot", "encode", str(pairs.root), *settings])


def open_encoded(pairs: PairSet, spec: FeatureSpec) -> AnyCache:
    """The features of a spec in the pair set's own folder, or say why they are unusable."""
    parts = [FeatureCache.open(cache_folder(pairs, part), pairs, part) for part in spec.parts]
    return parts[0] if len(parts) == 1 else JoinedCache(parts, spec)


def class_indices(pairs: Sequence[Pair]) -> Int[Tensor, "b"]:
    """Classes numbered in alphabetical order; -1 where a pair has none."""
    names = sorted({pair.cls for pair in pairs if pair.cls is not None})
    index = {name: i for i, name in enumerate(names)}
    return torch.tensor([-1 if pair.cls is None else index[pair.cls] for pair in pairs])
