"""Does a training list contain the test set? Finds overlaps by id and, given frames, by appearance.

Axes: n frames, h w pixels, b bits of a hash, a training frames, t test frames.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, UInt8

from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import read_ids
from soundspot.common.progress import progress
from soundspot.data.pair_set import Pair, PairSet
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import load_benchmark

WAVES = 16  # frequencies per side that the hash looks at
BLOCK = 4096  # training frames compared at once
NEAR = 32
"""The most bits, of 255, in which the hashes of two copies of one picture may differ.

Measured on ESC-VOC: strong JPEG compression, halving, brightness and contrast change at most 32;
among 2.2 million pairs of different photographs the closest that are not duplicates differ in 38.
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
        train: Number of items in the training list, counting duplicates once.
        benchmark: Number of items in the benchmark.
        leaked: Benchmark ids whose picture or sound is in the training list by id.
        alike: Matches by appearance that are not already leaked by id.
        clean_train: The training list without either kind of leak: train on this.
        clean_benchmark: Benchmark ids that did not leak: evaluate on these if it is too late.
    """

    train: int
    benchmark: int
    leaked: tuple[str, ...]
    alike: tuple[Match, ...]
    clean_train: tuple[str, ...]
    clean_benchmark: tuple[str, ...]


def find_leaks(
    train_list: Path,
    benchmark: str,
    annotations: Path,
    train_data: Path | None = None,
    data: Path | None = None,
) -> AuditReport:
    """Audit a training list against a benchmark, from their files.

    Frames are compared too if both pair sets are given: `train_data`, with the ids of the list, and
    `data`, with the ids of the benchmark.
    """
    items = load_benchmark(benchmark, annotations)
    train_ids = read_ids(train_list)
    if (train_data is None) != (data is None):
        raise SoundspotError("comparing frames needs the pair sets of both sides")
    alike: list[Match] = []
    if train_data is not None and data is not None:
        alike = look_alikes(PairSet.open(train_data), PairSet.open(data), items)
    return compare_ids(train_ids, items, alike)


def compare_ids(
    train_ids: Iterable[str], items: Sequence[BenchmarkItem], alike: Sequence[Match] = ()
) -> AuditReport:
    """Find the benchmark's items in a training list, given the matches by appearance."""
    key = partial(MEDIA_SUFFIX.sub, "")  # some lists name clips with a suffix, some without
    train = {id: key(id) for id in train_ids}  # in the list's order, without duplicates
    listed = set(train.values())
    used = {key(name) for item in items for name in (item.frame, item.audio)}
    leaked = tuple(i.id for i in items if listed & {key(i.frame), key(i.audio)})
    known = set(leaked)
    dropped = {match.train for match in alike}
    spoiled = known | {match.test for match in alike}
    return AuditReport(
        train=len(train),
        benchmark=len(items),
        leaked=leaked,
        alike=tuple(match for match in alike if match.test not in known),
        clean_train=tuple(id for id, k in train.items() if k not in used and id not in dropped),
        clean_benchmark=tuple(item.id for item in items if item.id not in spoiled),
    )


def describe_leaks(report: AuditReport, train_list: Path, benchmark: str) -> str:
    """The findings, one per line."""
    return "\n".join(
        [
            f"{benchmark}: {len(report.leaked):,} of {report.benchmark:,} items are in "
            f"{train_list.name} ({report.train:,} items) by id",
            *(
                f"looks alike: {m.train} and {m.test}, {m.distance} bits apart"
                for m in report.alike
            ),
            f"clean: {len(report.clean_train):,} items to train on, or "
            f"{len(report.clean_benchmark):,} to evaluate on",
        ]
    )


def look_alikes(train: PairSet, test: PairSet, items: Sequence[BenchmarkItem]) -> list[Match]:
    """Pairs of the `train` split that show the same picture as a benchmark item in `test`."""
    learned = train.select("train")
    wanted = {item.id for item in items}
    judged = [pair for pair in test.pairs if pair.id in wanted]
    if not judged:
        raise SoundspotError(f"{test.root} has none of the benchmark's {len(items):,} items")
    learned_hashes = _hashes(train, learned, "hashing training frames")
    judged_hashes = _hashes(test, judged, "hashing test frames")
    ids = [pair.id for pair in learned], [pair.id for pair in judged]
    return near_duplicates(learned_hashes, judged_hashes, *ids)


def _hashes(pairs: PairSet, rows: Sequence[Pair], label: str) -> Bool[np.ndarray, "n b"]:
    return np.concatenate([frame_hash(pairs.frame(pair)[None]) for pair in progress(rows, label)])


def frame_hash(frames: UInt8[np.ndarray, "n h w 3"]) -> Bool[np.ndarray, "n b"]:
    """Perceptual hash: which of the lowest 16 x 16 cosine waves are stronger than their median.

    It survives scaling, compression and changes of brightness and contrast, but not mirroring or
    substantial cropping.
    """
    gray = frames[..., 0].astype(np.float32) + frames[..., 1] + frames[..., 2]
    rows, columns = (_cosines(pixels) for pixels in gray.shape[1:])
    waves = (rows @ gray @ columns.T).reshape(len(frames), -1)[:, 1:]  # without the mean brightness
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
    for start in range(0, len(train), BLOCK):
        block = np.where(train[start : start + BLOCK], np.float32(1), np.float32(-1))
        # The product of two sign vectors is (equal - different), so this count is exact.
        distance = (bits - block @ signs.T) / 2
        for i, j in zip(*np.nonzero(distance <= near), strict=True):
            matches.append(Match(train_ids[start + i], test_ids[j], int(distance[i, j])))
    return matches
