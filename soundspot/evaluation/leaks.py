"""Audit a training list against a benchmark: the files in, what leaks out.

Axes: n frames, b bits of a hash.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import read_ids
from soundspot.common.progress import progress
from soundspot.data.pair_set import Pair, PairSet
from soundspot.evaluation import benchmarks
from soundspot.evaluation.audit import (
    AuditReport,
    Match,
    audit,
    frame_hash,
    near_duplicates,
)
from soundspot.evaluation.benchmarks import Item


def find_leaks(
    train_list: Path,
    benchmark: str,
    annotations: Path,
    train_data: Path | None = None,
    data: Path | None = None,
) -> AuditReport:
    """What a training list shares with a benchmark.

    Args:
        train_list: See `id_lists.read_ids`.
        benchmark: Its name.
        annotations: Folder of its annotation files.
        train_data: Pair set whose ids are those of the list.
        data: Pair set whose ids are those of the benchmark; with both, frames are compared too.
    """
    items = benchmarks.load(benchmark, annotations)
    train_ids = read_ids(train_list)
    if (train_data is None) != (data is None):
        raise SoundspotError("to compare by look, both --train-data and --data are needed")
    alike: list[Match] = []
    if train_data is not None and data is not None:
        alike = look_alikes(PairSet.open(train_data), PairSet.open(data), items)
    return audit(train_ids, items, alike)


def look_alikes(train: PairSet, test: PairSet, items: Sequence[Item]) -> list[Match]:
    """Training pairs that show the picture of a benchmark's item.

    Args:
        train: Only its split `train` is looked at.
        test: Items without media in it are not compared.
        items: The benchmark.
    """
    learned = train.select("train")
    wanted = {item.id for item in items}
    judged = [pair for pair in test.pairs if pair.id in wanted]
    if not judged:
        raise SoundspotError(f"{test.root} has none of the benchmark's {len(items):,} items")
    return near_duplicates(
        _hashes(train, learned, "hashing training frames"),
        _hashes(test, judged, "hashing test frames"),
        [pair.id for pair in learned],
        [pair.id for pair in judged],
    )


def _hashes(pairs: PairSet, rows: Sequence[Pair], what: str) -> Bool[np.ndarray, "n b"]:
    return np.concatenate([frame_hash(pairs.frame(pair)[None]) for pair in progress(rows, what)])


def describe(found: AuditReport, train_list: Path, benchmark: str) -> str:
    """What was found, a line a fact."""
    lines = [
        f"{benchmark}: {len(found.leaked):,} of {found.benchmark:,} items are in {train_list.name} "
        f"({found.train:,} items) by id"
    ]
    lines += [
        f"looks alike: {match.train} and {match.test}, {match.distance} bits apart"
        for match in found.alike
    ]
    lines.append(
        f"clean: {len(found.clean_train):,} items to train on, or "
        f"{len(found.clean_benchmark):,} to evaluate on"
    )
    return "\n".join(lines)
