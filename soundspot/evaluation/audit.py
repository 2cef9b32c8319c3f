"""Is the test set in the training list? Overlaps by id and, where frames exist, by their look.

Axes: n frames, h w pixels, b bits of a hash, a training frames, t test frames.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8

from soundspot.evaluation.benchmarks import Item

WAVES = 16  # frequencies a side that the hash looks at
NEAR = 32
"""Bits of 255 in which the hashes of two frames may differ and still be called the same picture.

Measured on ESC-VOC: strong JPEG compression, halving, brightness and contrast change at most 32;
of 2.2 million pairs of different photographs the nearest that are no duplicates differ in 38.
"""

MEDIA_SUFFIX = re.compile(r"\.(mp4|mkv|webm|avi|mov|wav|flac|mp3|m4a|jpg|jpeg|png)$", re.IGNORECASE)


@dataclass(frozen=True)
class Match:
    """A training item that looks like a test item; distance in bits."""

    train: str
    test: str
    distance: int


@dataclass(frozen=True)
class AuditReport:
    """What a training list shares with a benchmark.

    Attributes:
        train: Items of the training list, repeated ones once.
        benchmark: Items of the benchmark.
        leaked: Benchmark ids whose picture or sound is in the training list by id, in the
            benchmark's order.
        alike: Matches by look that are not already leaked by id.
        clean_train: The training list without what leaked either way: train on this.
        clean_benchmark: Benchmark ids that did not leak: evaluate on these if it is too late.
    """

    train: int
    benchmark: int
    leaked: tuple[str, ...]
    alike: tuple[Match, ...]
    clean_train: tuple[str, ...]
    clean_benchmark: tuple[str, ...]


def audit(
    train_ids: Iterable[str], items: Sequence[Item], alike: Sequence[Match] = ()
) -> AuditReport:
    """Find the benchmark's items in a training list.

    Args:
        train_ids: The training list, see `id_lists.read_ids`.
        items: The benchmark, see `benchmarks.load`.
        alike: Matches by look, see `near_duplicates`.
    """
    train = {id: _key(id) for id in train_ids}  # in the list's order, repeated ones once
    listed = set(train.values())
    used = {_key(name) for item in items for name in (item.frame, item.audio)}
    leaked = tuple(i.id for i in items if _key(i.frame) in listed or _key(i.audio) in listed)
    known = set(leaked)
    lookalikes = tuple(match for match in alike if match.test not in known)
    dropped = {match.train for match in alike}
    spoiled = known | {match.test for match in lookalikes}
    return AuditReport(
        train=len(train),
        benchmark=len(items),
        leaked=leaked,
        alike=lookalikes,
        clean_train=tuple(id for id, key in train.items() if key not in used and id not in dropped),
        clean_benchmark=tuple(item.id for item in items if item.id not in spoiled),
    )


def _key(name: str) -> str:
    """The part of a name that identifies it: lists name clips with and without a suffix."""
    return MEDIA_SUFFIX.sub("", name)


def frame_hash(frames: UInt8[np.ndarray, "n h w 3"]) -> Bool[np.ndarray, "n b"]:
    """Perceptual hash: which of the lowest 16 x 16 cosine waves are stronger than their median.

    Survives scaling, compression and changes of brightness and contrast; not mirrors or real crops.
    """
    grey = frames[..., 0].astype(np.float32) + frames[..., 1] + frames[..., 2]
    rows, columns = (_cosines(pixels) for pixels in grey.shape[1:])
    waves = (rows @ grey @ columns.T).reshape(len(frames), -1)[:, 1:]  # without the mean brightness
    return np.asarray(waves > np.median(waves, axis=1, keepdims=True))


def _cosines(pixels: int) -> Float[np.ndarray, "waves pixels"]:
    """The first waves of the discrete cosine transform (DCT-II)."""
    phase = np.outer(np.arange(WAVES), np.arange(pixels) + 0.5) / pixels
    return np.cos(np.pi * phase).astype(np.float32)


def near_duplicates(
    train: Bool[np.ndarray, "a b"],
    test: Bool[np.ndarray, "t b"],
    train_ids: Sequence[str],
    test_ids: Sequence[str],
    near: int = NEAR,
) -> list[Match]:
    """All pairs of a training and a test frame whose hashes differ in at most `near` bits."""
    bits = test.shape[1]
    signs = np.where(test, np.float32(1), np.float32(-1))
    matches = []
    step = 4096
    for start in range(0, len(train), step):
        block = np.where(train[start : start + step], np.float32(1), np.float32(-1))
        # Of two vectors of signs the product is (equal - different), so this counts exactly.
        distance = (bits - block @ signs.T) / 2
        for i, j in zip(*np.nonzero(distance <= near), strict=True):
            matches.append(Match(train_ids[start + i], test_ids[j], int(distance[i, j])))
    return matches
