"""Frozen features on disk: the encoders' output for every frame and sound, computed once.

A cache is a folder of .npy shards beside `features.json`, which says what they were made from:
encoders and the digest of their weights, augmentations, pair set, code version. A cache that
differs in any of these is refused.

Axes: b batch, p audio patches, a audio channels (c_a), c visual channels (c_v), h w feature grid.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import Pair, PairSet
from soundspot.features.spec import FeatureSpec, kind_of

CODE_VERSION = 1  # raise it when the same inputs would give different features
SHARD_FRAMES = 256
DESCRIPTION = "features.json"


def cache_folder(pairs: PairSet, spec: FeatureSpec) -> Path:
    """Where a pair set keeps the features of a spec, for any number of views.

    More views can be added to a cache, and one with more views serves a spec with fewer.
    """
    name = hashlib.sha256(json.dumps(kind_of(spec), sort_keys=True).encode()).hexdigest()[:8]
    return pairs.root / "features" / f"{spec.visual}-{spec.audio}-{name}"


def read_description(path: Path, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Read a cache's features.json, and refuse it if it is not what is expected."""
    try:
        description: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} is damaged; delete {path.parent} and encode again") from error
    for key, value in expected.items():
        if description.get(key) != value:
            was, now = json.dumps(description.get(key))[:80], json.dumps(value)[:80]
            raise SoundspotError(
                f"the feature cache {path.parent} is stale: its {key} is {was}, but now it is "
                f"{now}; encode into another folder, or delete this one"
            )
    return description


class FeatureCache:
    """A complete cache, memory-mapped.

    Attributes:
        audio: Embeddings of every sound.
        sound_rows: Path of a sound -> its row.
        spec: What it was made from.
        weights: Digest of the encoders' weights.
    """

    def __init__(self, folder: Path, description: Mapping[str, Any], spec: FeatureSpec) -> None:
        self.folder, self.spec = folder, spec
        self.weights: str = description["weights"]
        self.sound_rows = {path: row for row, path in enumerate(description["sounds"])}
        self._train_rows = {path: row for row, path in enumerate(description["train_frames"])}
        self._eval_rows = {path: row for row, path in enumerate(description["eval_frames"])}
        self.audio: NDArray[np.float32] = self._open_shard("audio.npy", len(self.sound_rows))
        self._views = [
            self._open_group(f"view{k:02d}", len(self._train_rows)) for k in range(spec.views)
        ]
        self._eval = self._open_group("eval", len(self._eval_rows))
        grids = {shard.shape[1:] for group in (*self._views, self._eval) for shard in group}
        if len(grids) > 1:
            sizes = " and ".join(sorted("x".join(map(str, grid)) for grid in grids))
            raise SoundspotError(
                f"the feature cache {folder} has features of two sizes ({sizes}); delete it and "
                "encode again"
            )

    @classmethod
    def open(
        cls, folder: Path, pairs: PairSet, spec: FeatureSpec, digest: str | None = None
    ) -> "FeatureCache":
        """Open the cache of these pairs, spec and (if given) weights, or say why it is unusable."""
        path = folder / DESCRIPTION
        if not path.exists():
            raise SoundspotError(
                f"no feature cache at {folder}; create it with `soundspot encode {pairs.root}`"
            )
        made_from = {"spec": kind_of(spec), "pairs": pairs.fingerprint()}
        expected = {"code_version": CODE_VERSION, **made_from}
        if digest is not None:
            expected["weights"] = digest
        return cls(folder, read_description(path, expected), spec)

    def _open_group(self, name: str, rows: int) -> list[NDArray[np.float16]]:
        return [
            self._open_shard(f"{name}-{i:05d}.npy", min(SHARD_FRAMES, rows - start))
            for i, start in enumerate(range(0, rows, SHARD_FRAMES))
        ]

    def _open_shard(self, name: str, rows: int) -> NDArray[Any]:
        path = self.folder / name
        if rows == 0:
            return np.empty((0,), np.float32)
        if not path.exists():
            raise SoundspotError(
                f"the feature cache {self.folder} is incomplete: {name} is missing; "
                f"`soundspot encode` with views={self.spec.views} resumes it"
            )
        try:
            shard: NDArray[Any] = np.load(path, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise SoundspotError(
                f"{path} is damaged ({error}); delete it and run `soundspot encode` again"
            ) from error
        if len(shard) != rows:
            raise SoundspotError(f"{path} holds {len(shard)} rows, not {rows}; delete it")
        return shard

    def view(self, frames: Sequence[str], views: Sequence[int]) -> Float[Tensor, "b c h w"]:
        """View views[i] of each frames[i]."""
        return self._gather([self._views[k] for k in views], [self._train_rows[f] for f in frames])

    def evaluation(self, frames: Sequence[str]) -> Float[Tensor, "b c h w"]:
        """The whole-frame features of frames that have boxes."""
        return self._gather([self._eval] * len(frames), [self._eval_rows[f] for f in frames])

    def sound(self, paths: Sequence[str]) -> Float[Tensor, "b p a"]:
        """Audio embeddings."""
        return torch.from_numpy(self.audio[[self.sound_rows[path] for path in paths]])

    @staticmethod
    def _gather(
        groups: Sequence[list[NDArray[np.float16]]], rows: Sequence[int]
    ) -> Float[Tensor, "b c h w"]:
        """Read rows, stored as h w c: permuted to b c h w they are already channels_last."""
        out = torch.empty(len(rows), *groups[0][0].shape[1:])
        for target, group, row in zip(out, groups, rows, strict=True):
            # PyTorch widens float16 faster than NumPy; the copy is because a map is read-only.
            target.copy_(torch.from_numpy(np.array(group[row // SHARD_FRAMES][row % SHARD_FRAMES])))
        return out.permute(0, 3, 1, 2)


def class_indices(pairs: Sequence[Pair]) -> Int[Tensor, "b"]:
    """Classes numbered in alphabetical order; -1 where a pair has none."""
    names = sorted({pair.cls for pair in pairs if pair.cls is not None})
    index = {name: i for i, name in enumerate(names)}
    return torch.tensor([-1 if pair.cls is None else index[pair.cls] for pair in pairs])
