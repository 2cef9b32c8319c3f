"""Is the test set in the training list? Overlaps by id and, where frames exist, by their look.

Axes: n frames, h w pixels, b bits of a hash, a training frames, t test frames.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, UInt8

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write
from soundspot.evaluation.benchmarks import Item

WAVES = 16  # frequencies a side that the hash looks at
NEAR = 32
"""Bits of 255 in which the hashes of two frames may differ and still be called the same picture.

Measured on ESC-VOC: strong JPEG compression, halving, brightness and contrast change at most 32;
of 2.2 million pairs of different photographs the nearest that are no duplicates differ in 38.
"""

MEDIA_SUFFIX = re.compile(r"\.(mp4|mkv|webm|avi|mov|wav|flac|mp3|m4a|jpg|jpeg|png)$", re.IGNORECASE)
HEADERS = frozenset({"id", "file", "filename", "video", "video_id", "youtube_id", "ytid"})


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
        train_ids: The training list, see `read_ids`.
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


def read_ids(path: Path) -> list[str]:
    """Read a list of ids: .txt (one a line) or .csv (the first column), plain or .gz.

    A header is left out if its first column is called id, file, video or the like. In rows of four
    columns that end in train or test (VGGSound's own csv: YouTube id, start second, label, split)
    the id is that of the clip, such as ---g-f_I2yQ_000001.
    """
    name = path.name.removesuffix(".gz")
    if not name.endswith((".txt", ".csv")):
        raise SoundspotError(
            f"expected a list of ids in a .txt, .txt.gz, .csv or .csv.gz file, got {path}"
        )
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise SoundspotError(f"no list of ids at {path}") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SoundspotError(f"{path} is not a readable list of ids ({error})") from error
    if name.endswith(".txt"):
        ids = [line.strip() for line in text.splitlines()]
    else:
        rows = [row for row in csv.reader(text.splitlines()) if row]
        if rows and rows[0][0].strip().lower() in HEADERS:
            rows = rows[1:]
        ids = [_clip_id(row) for row in rows]
    ids = [id for id in ids if id]
    if not ids:
        raise SoundspotError(f"{path} holds no ids")
    return ids


def _clip_id(row: Sequence[str]) -> str:
    if len(row) == 4 and row[3] in ("train", "test") and row[1].isdigit():
        return f"{row[0]}_{int(row[1]):06d}"
    return row[0].strip()


def write_ids(path: Path, ids: Iterable[str]) -> None:
    """Write one id a line, gzipped if the name ends in .gz; the file is whole or absent."""
    data = "".join(f"{id}\n" for id in ids).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)  # no time stamp: the same list is the same file
    with atomic_write(path) as part:
        part.write_bytes(data)


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
