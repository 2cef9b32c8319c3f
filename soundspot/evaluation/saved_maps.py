"""Maps that any other codebase saved.

Axes: n pairs, h w the map as it was saved.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from soundspot.common.errors import SoundspotError

ARCHIVE = "maps.npz"


@dataclass(frozen=True)
class SavedMaps:
    """A folder of maps: one `<id>.npy` per pair, or maps.npz with the ids as keys."""

    folder: Path

    def __post_init__(self) -> None:
        """Refuse a missing folder before any work starts."""
        if not self.folder.is_dir():
            raise SoundspotError(f"no folder of maps at {self.folder}")

    def available(self, ids: Sequence[str]) -> set[str]:
        """The ids that have a map; there must be at least one."""
        found = {id for id in ids if id in self._archive or self._path(id).is_file()}
        if not found:
            raise SoundspotError(f"{self.folder} has no map, such as {ids[0]}.npy or {ARCHIVE}")
        return found

    def read(self, ids: Sequence[str]) -> Float32[np.ndarray, "n h w"]:
        """The maps of the ids, which must all have the same size."""
        maps = [self._read(id) for id in ids]
        for id, map in zip(ids, maps, strict=True):
            if map.shape != maps[0].shape:
                raise SoundspotError(f"{self.folder}: the maps of {ids[0]} and {id} differ in size")
        return np.stack(maps)

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}.npy"

    @cached_property
    def _archive(self) -> Mapping[str, Any]:
        path = self.folder / ARCHIVE
        with _readable(path):
            return np.load(path) if path.exists() else {}

    def _read(self, id: str) -> Float32[np.ndarray, "h w"]:
        with _readable(self.folder / ARCHIVE if id in self._archive else self._path(id)):
            # NumPy refuses to unpickle.
            values = self._archive[id] if id in self._archive else np.load(self._path(id))
            if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "fiub":
                raise ValueError(f"the map of {id} is {values.dtype} of shape {values.shape}")
            map: Float32[np.ndarray, "h w"] = values.astype(np.float32)
            if not np.isfinite(map).all():
                raise ValueError(f"the map of {id} contains NaN or infinity")
        return map


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # zipfile reports a damaged archive as almost anything
        raise SoundspotError(f"{path} is not a readable file of maps ({error})") from error
