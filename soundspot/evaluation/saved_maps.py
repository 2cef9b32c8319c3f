"""Maps that any other codebase saved.

Axes: n pairs, h w the map as it was saved.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
        archive = self.folder / ARCHIVE
        if archive.exists():
            with _readable(archive), np.load(archive) as file:
                available = set(file.files).intersection(ids)
        else:
            available = {id for id in ids if (self.folder / f"{id}.npy").is_file()}
        if not available:
            raise SoundspotError(
                f"{self.folder} has no map for any of the {len(ids):,} pairs: expected files such "
                f"as {ids[0]}.npy, or {ARCHIVE} with ids as keys"
            )
        return available

    def read(self, ids: Sequence[str]) -> Float32[np.ndarray, "n h w"]:
        """The maps of the ids, which must all have the same size."""
        archive = self.folder / ARCHIVE
        if archive.exists():
            with _readable(archive), np.load(archive) as file:
                maps = [_checked(file[id], id, archive) for id in ids]
        else:
            maps = []
            for id in ids:
                path = self.folder / f"{id}.npy"
                with _readable(path):
                    maps.append(_checked(np.load(path), id, path))  # never unpickles
        for id, map in zip(ids, maps, strict=True):
            if map.shape != maps[0].shape:
                raise SoundspotError(
                    f"{self.folder}: expected maps of the same size, but {ids[0]} is "
                    f"{maps[0].shape[0]}x{maps[0].shape[1]} and {id} {map.shape[0]}x{map.shape[1]}"
                )
        return np.stack(maps)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except SoundspotError:
        raise
    except Exception as error:  # zipfile reports a damaged archive as almost anything
        raise SoundspotError(f"{path} is not a readable NumPy file ({error})") from error


def _checked(values: Any, id: str, source: Path) -> Float32[np.ndarray, "h w"]:
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "fiub":
        raise SoundspotError(
            f"{source}: expected the map of {id} to be numbers of shape height x width, "
            f"got {values.dtype} of shape {values.shape}"
        )
    map: Float32[np.ndarray, "h w"] = values.astype(np.float32)
    if not np.isfinite(map).all():
        raise SoundspotError(f"{source}: the map of {id} contains NaN or infinity")
    return map
