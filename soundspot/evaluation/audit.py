"""Can a benchmark be trusted? What a training list has of it, and which of its sources sound.

Leaks are found by id and, given frames, by appearance.

Axes: n frames, h w pixels, b bits of a hash, a training frames, t test frames.
"""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, UInt8

from soundspot.common.config import read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import read_ids, write_ids
from soundspot.common.progress import progress
from soundspot.data.pair_set import Pair, PairSet
from soundspot.evaluation.annotations import BenchmarkItem, vggss
from soundspot.evaluation.benchmarks import load_benchmark

COLUMNS = ("video_id", "label", "modality")  # of VGGSounder
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

    def describe(self, train_list: Path, benchmark: str) -> str:
        """The findings, one per line."""
        alike = (
            f"looks alike: {match.train} and {match.test}, {match.distance} bits apart"
            for match in self.alike
        )
        return "\n".join(
            [
                f"{benchmark}: {len(self.leaked):,} of {self.benchmark:,} items are in "
                f"{train_list.name} ({self.train:,} items) by id",
                *alike,
                f"clean: {len(self.clean_train):,} items to train on, or "
                f"{len(self.clean_benchmark):,} to evaluate on",
            ]
        )


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


def look_alikes(train: PairSet, test: PairSet, items: Sequence[BenchmarkItem]) -> list[Match]:
    """Pairs of the `train` split that show the same picture as a benchmark item in `test`."""
    learned = train.select("train")
    wanted = {item.id for item in items}
    judged = [pair for pair in test.pairs if pair.id in wanted]
    if not judged:
        raise SoundspotError(f"{test.root} has none of the benchmark's {len(items):,} items")

    def hashes(pairs: PairSet, rows: Sequence[Pair], label: str) -> Bool[np.ndarray, "n b"]:
        return np.concatenate([frame_hash(pairs.frame(row)[None]) for row in progress(rows, label)])

    seen = hashes(train, learned, "hashing training frames")
    shown = hashes(test, judged, "hashing test frames")
    return near_duplicates(seen, shown, [pair.id for pair in learned], [p.id for p in judged])


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
) -> list[Match]:
    """All pairs of a training and a test frame whose hashes differ in at most NEAR bits."""
    bits = test.shape[1]
    signs = np.where(test, np.float32(1), np.float32(-1))
    matches = []
    for start in range(0, len(train), BLOCK):
        block = np.where(train[start : start + BLOCK], np.float32(1), np.float32(-1))
        # The product of two sign vectors is (equal - different), so this count is exact.
        distance = (bits - block @ signs.T) / 2
        for i, j in zip(*np.nonzero(distance <= NEAR), strict=True):
            matches.append(Match(train_ids[start + i], test_ids[j], int(distance[i, j])))
    return matches


@dataclass(frozen=True)
class SounderAudit:
    """VGG-SS joined with VGGSounder.

    Attributes:
        clips: How many clips VGG-SS has.
        joined: How many of these VGGSounder knows.
        modalities: How many annotated classes are AV, A, V, or not confirmed ("").
        verified: Clips whose annotated class is heard and seen.
        offscreen: Clips in which some class is heard and not seen.
        single: Verified clips in which no other class is heard.
    """

    clips: int
    joined: int
    modalities: Mapping[str, int]
    verified: tuple[str, ...]
    offscreen: tuple[str, ...]
    single: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write the lists that vggss-verified, -offscreen and -single are read from."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("verified", "offscreen", "single"):
            write_ids(folder / f"vggss_{name}.txt", getattr(self, name))

    def describe(self) -> str:
        """The counts, one per line."""
        return "\n".join(
            [
                f"{self.joined:,} of {self.clips:,} clips are in VGGSounder",
                f"{len(self.verified):,} ({len(self.verified) / self.joined:.1%}): the annotated "
                "class is heard and seen",
                f"{self.modalities['A']:,}: heard only",
                f"{self.modalities['V']:,}: seen only",
                f"{self.modalities['']:,}: not confirmed",
                f"{len(self.offscreen):,} ({len(self.offscreen) / self.joined:.1%}): with a sound "
                "from outside the picture",
                f"{len(self.single):,}: heard and seen, and nothing else is heard",
            ]
        )


def audit_vggss(sounder: Path, annotations: Path) -> SounderAudit:
    """Join VGG-SS with VGGSounder's CSV file (the one with background music has most clips).

    VGGSounder lists for VGG-Sound's test clips every class with its modality: A (heard), V (seen)
    or AV (both). VGG-SS boxes one class per clip, without asking either.
    """
    items, labels = vggss(annotations), _read_sounder(sounder)
    modality = {i.id: labels[i.id].get(i.cls or "", "") for i in items if i.id in labels}
    if not modality:
        raise SoundspotError(f"{sounder} has none of the {len(items):,} clips of VGG-SS")
    verified = [id for id, found in modality.items() if found == "AV"]
    heard = {id: [m for m in labels[id].values() if "A" in m] for id in modality}
    return SounderAudit(
        clips=len(items),
        joined=len(modality),
        modalities=Counter(modality.values()),
        verified=tuple(verified),
        offscreen=tuple(id for id in modality if "A" in heard[id]),
        single=tuple(id for id in verified if len(heard[id]) == 1),
    )


def _read_sounder(path: Path) -> Mapping[str, Mapping[str, str]]:
    """Clip -> class -> modality."""
    labels: dict[str, dict[str, str]] = defaultdict(dict)
    try:
        reader = csv.DictReader(io.StringIO(read_bytes(path).decode()), strict=True)
        if missing := set(COLUMNS) - set(reader.fieldnames or ()):
            raise ValueError(f"it has no column {', '.join(sorted(missing))}")
        for clip, label, modality in ([row[column] for column in COLUMNS] for row in reader):
            if modality not in ("A", "V", "AV"):
                raise ValueError(f"the modality of {clip} is {modality!r}, not A, V or AV")
            labels[clip][label] = modality
    except FileNotFoundError as error:
        raise SoundspotError(f"cannot open {path}: no such file", "missing") from error
    except (OSError, ValueError, csv.Error) as error:
        raise SoundspotError(f"{path} is not VGGSounder's list ({error})", "damaged") from error
    return labels
