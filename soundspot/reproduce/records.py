"""What is kept: records of runs, in one file from which tables are made, and the tables.

Every line of that file, which is to be committed, is a trained run, or a baseline that needs no
training, with its scores on test sets. Floats are cut to five digits; nothing is rounded up, so
every score stays on its side of every threshold and the tables stay the same.
"""

import gzip
import io
import json
import math
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Context
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from soundspot.common.config import from_dict, non_defaults, parse_json, read_bytes, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.common.files import explain_write_errors, locked, write_bytes
from soundspot.evaluation.intervals import Interval, Spread
from soundspot.model.methods import METHODS
from soundspot.training.recipe import Recipe, with_earlier_meaning

FORMAT = 2  # of the file of records
TABLE_FORMAT = 3
FIVE_DIGITS = Context(prec=5, rounding=ROUND_DOWN)


@dataclass(frozen=True)
class TestedOn:
    """Which test set: `pairs` of its first benchmark were scored; `coverage` names a part of it."""

    benchmarks: tuple[str, ...]
    data_fingerprint: str
    coverage: str | None
    pairs: int


@dataclass(frozen=True)
class Scores:
    """The scores of a run, or of a baseline, on a test set.

    Attributes:
        by_protocol: cIoU of each pair, by protocol.
        ms: CPU time of a map, in milliseconds, without the encoders.
        no_source_f1: F1 of noticing that no source is visible; None without made negatives.
        duets: Per duet, the share of its two sounds whose peak is on the sounding side.
        by_cycle: cIoU of each pair after each pass of a PCM.
        inverted: cIoU of each pair with the map upside down, which is high for a model that avoids
            the object.
        published: The key of the paper's numbers on the same data; None if there are none.
    """

    tested_on: TestedOn
    by_protocol: dict[str, tuple[float, ...]]
    commit: str
    guidance: float = 0.0
    ms: float | None = None
    no_source_f1: float | None = None
    duets: tuple[float, ...] | None = None
    by_cycle: tuple[tuple[float, ...], ...] = ()
    inverted: tuple[float, ...] | None = None
    published: str | None = None

    def __post_init__(self) -> None:
        """Refuse scores that are not one per pair."""
        columns = [*self.by_protocol.values(), *self.by_cycle, self.inverted]
        if any(c is not None and len(c) != self.tested_on.pairs for c in columns):
            raise ValueError(f"expected {self.tested_on.pairs} scores of pairs in every list")


@dataclass(frozen=True)
class Training:
    """What tables need of a run's result.json; `epochs` is its log."""

    provenance: dict[str, Any]
    recipe: dict[str, Any]
    steps: int
    best_step: int
    epochs: tuple[dict[str, Any], ...]

    def __post_init__(self) -> None:
        """Refuse a log without what tables read in it."""
        numbers = all(isinstance(v, (int, float)) for line in self.epochs for v in line.values())
        if not numbers or not all("step" in line for line in self.epochs):
            raise ValueError("expected numbers, and a step, in every line of `epochs`")
        if not {"commit", "data", "data_fingerprint"} <= set(self.provenance):
            raise ValueError("expected commit, data and data_fingerprint in `provenance`")


@dataclass(frozen=True)
class Record:
    """What is known of a run, or of a baseline, which was not trained."""

    label: str  # the method of a run, the name of a baseline
    training: Training | None = None
    scores: tuple[Scores, ...] = ()

    @cached_property
    def run(self) -> tuple[str, dict[str, Any]] | None:
        """The data and settings that tell a run from others.

        None if it was not trained, or by a method or with a setting that is no more.
        """
        if self.training is None:
            return None
        with suppress(SoundspotError, LookupError, TypeError, AttributeError):
            recipe = from_dict(Recipe, with_earlier_meaning(self.training.recipe))
            return self.training.provenance["data_fingerprint"], settings_of(recipe)
        return None

    def is_same(self, other: "Record") -> bool:
        """Whether both are of one run, or of one baseline."""
        if self.training is None or other.training is None:
            return self.training is other.training and self.label == other.label
        return self.run is not None and self.run == other.run

    def find(self, tested_on: TestedOn, guidance: float = 0.0) -> Scores | None:
        """The scores on a test set."""
        same = (s for s in self.scores if (s.tested_on, s.guidance) == (tested_on, guidance))
        return next(same, None)

    def joined(self, new: "Record") -> "Record":
        """New scores with those on other test sets, unless they are of another training."""
        if new.training != self.training:
            return new
        known = [s for s in self.scores if new.find(s.tested_on, s.guidance) is None]
        return replace(new, scores=(*known, *new.scores))


@dataclass(frozen=True)
class SeedResult:
    """One run of a line; `validations` are what it logged at each of them, by name."""

    seed: int
    commit: str
    step: int
    steps: int
    ciou: float
    auc: float
    peak_side: float | None = None
    validations: dict[str, tuple[float, ...]] | None = None


@dataclass(frozen=True)
class TableLine:
    """A line of a table: a method over its seeds, or a baseline, which has none.

    Attributes:
        ciou: By the paper's protocol, as is the AUC.
        ciou_interval: Over pairs, each averaged over the seeds.
        protocols: Protocol -> mean cIoU and AUC.
        peak_side: Share of the sounds of duets whose peak is on the sounding side.
        inverted: cIoU of the maps upside down.
        curve: Success by cIoU threshold.
        passes: Mean cIoU and AUC after each pass of a PCM.
        mean_rank: By cIoU and AUC under every protocol; 1 is the best.
        no_source_f1: F1 of noticing that no source is visible.
        parameters: How many are trained and used.
        published: cIoU and AUC of the paper on the same data.
        original: The same of the method's own paper.
    """

    label: str
    ciou: Spread
    auc: Spread
    ciou_interval: Interval
    protocols: dict[str, tuple[float, ...]]
    seeds: tuple[SeedResult, ...] = ()
    peak_side: Spread | None = None
    inverted: Spread | None = None
    curve: tuple[float, ...] | None = None
    passes: dict[str, tuple[float, ...]] | None = None
    gflops: float | None = None
    mean_rank: float | None = None
    no_source_f1: float | None = None
    parameters: int | None = None
    ms: float | None = None
    published: tuple[float, ...] | None = None
    original: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Results:
    """A table of `pairs` test pairs, and how it was made; `figure` says what is drawn of it."""

    format: int
    table: str
    title: str
    note: str
    command: str
    commit: str
    data: str
    data_fingerprint: str
    quick: bool
    benchmarks: tuple[str, ...]
    pairs: int
    lines: tuple[TableLine, ...]
    trivial: tuple[TableLine, ...]
    figure: str | None = None
    coverage: str | None = None
    not_run: tuple[str, ...] = ()


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """The settings of a recipe that differ from the defaults, wherever its data are."""
    model = non_defaults(from_dict(METHODS[recipe.method].config, recipe.model))
    return non_defaults(recipe) | {"pairs": "", "model": model}


def cut(value: Any) -> Any:
    """Plain values with every float cut, not rounded, to five significant digits."""
    if isinstance(value, np.ndarray):
        return cut(value.tolist())
    if isinstance(value, float) and math.isfinite(value):
        return float(FIVE_DIGITS.create_decimal(repr(value)))
    if isinstance(value, dict):
        return {key: cut(item) for key, item in value.items()}
    return [cut(item) for item in value] if isinstance(value, (list, tuple)) else value


def read_records(path: Path) -> list[Record]:
    """Read all records; a file that is not there holds none."""
    if not path.exists():
        return []
    try:
        first, *lines = gzip.decompress(read_bytes(path)).splitlines()
        if parse_json(first) != {"format": FORMAT}:
            raise ValueError(f"its first line is not that of format {FORMAT}")
        return [from_dict(Record, dict(parse_json(line))) for line in lines]
    except (OSError, EOFError, zlib.error, ValueError, TypeError, SoundspotError) as error:
        remedy = "restore it, or move it away to train and score its runs again"
        raise SoundspotError(f"{path} is damaged ({error}); {remedy}", "damaged") from error


def add_record(path: Path, new: Record) -> None:
    """Add a record to a file, where it takes the place of an older one of the same run."""
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may have added records since this one read them.
    with locked(path.with_name(f".{path.name}.lock"), f"{path} is in use", wait=True):
        records = read_records(path)
        old = next((record for record in records if record.is_same(new)), None)
        joined = new if old is None else old.joined(new)
        write_records(path, [*(record for record in records if record is not old), joined])


def write_records(path: Path, records: Sequence[Record]) -> None:
    """Write all records; the same ones always give the same bytes."""
    ordered = sorted(records, key=lambda record: json.dumps(record.training and record.run))
    lines = [json.dumps(to_dict(record), separators=(",", ":")) for record in ordered]
    text = "\n".join([json.dumps({"format": FORMAT}), *lines]) + "\n"
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as file:
        file.write(text.encode())
    write_bytes(path, packed.getvalue())
