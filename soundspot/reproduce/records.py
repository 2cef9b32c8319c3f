"""What is kept: the scores of runs, in one compressed file, and the tables made from them.

Every line of that file, which is to be committed, has the scores of a trained run, or of a baseline
that needs no training, on one test set. Floats are cut to five digits; nothing is rounded up, so
every score stays on its side of every threshold and the tables stay the same.
"""

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Context
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from soundspot.common.config import from_dict, non_defaults, parse_json, read_bytes, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.common.files import explain_write_errors, locked, write_bytes
from soundspot.evaluation.intervals import Interval, Spread
from soundspot.model.methods import METHODS
from soundspot.training.recipe import Recipe, with_earlier_meaning

FORMAT = 3
TABLE_FORMAT = 3
GROUPED = 2  # an older format, with the scores of a run on all test sets in one line
FIVE_DIGITS = Context(prec=5, rounding=ROUND_DOWN)


class TestSet(NamedTuple):
    """Which pairs are scored: `pairs` of the first benchmark; `coverage` names a part of it."""

    benchmarks: tuple[str, ...]
    tested_fingerprint: str
    coverage: str | None
    pairs: int


@dataclass(frozen=True)
class Scores:
    """What is known of a run, or of a baseline, which was not trained, on one test set.

    Attributes:
        label: The method of a run, the name of a baseline.
        by_protocol: cIoU of each pair, by protocol.
        ms: CPU time of a map, in milliseconds, without the encoders.
        no_source_f1: F1 of noticing that no source is visible; None without made negatives.
        duets: Per duet, the share of its two sounds whose peak is on the sounding side.
        by_cycle: cIoU of each pair after each pass of a PCM.
        inverted: cIoU of each pair with the map upside down, high for a model that avoids things.
        published: The key of the paper's numbers on the same data; None if there are none.
        recipe: Of its training, as all below; None for a baseline.
    """

    label: str
    benchmarks: tuple[str, ...]
    tested_fingerprint: str
    coverage: str | None
    pairs: int
    by_protocol: dict[str, tuple[float, ...]]
    commit: str
    guidance: float = 0.0
    ms: float | None = None
    no_source_f1: float | None = None
    duets: tuple[float, ...] | None = None
    by_cycle: tuple[tuple[float, ...], ...] = ()
    inverted: tuple[float, ...] | None = None
    published: str | None = None
    recipe: dict[str, Any] | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    best_step: int = 0
    epochs: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Refuse scores that are not one per pair, and a log without what tables read in it."""
        columns = [*self.by_protocol.values(), *self.by_cycle, self.inverted]
        if any(c is not None and len(c) != self.pairs for c in columns):
            raise ValueError(f"expected {self.pairs} scores of pairs in every list")
        numbers = all(isinstance(v, (int, float)) for line in self.epochs for v in line.values())
        if not numbers or not all("step" in line for line in self.epochs):
            raise ValueError("expected numbers, and a step, in every line of `epochs`")
        if self.recipe and not {"commit", "data", "data_fingerprint"} <= set(self.provenance):
            raise ValueError("expected commit, data and data_fingerprint in `provenance`")

    @property
    def place(self) -> tuple[TestSet, float]:
        """What was scored: the test set, and the weight of object guidance."""
        tested = self.benchmarks, self.tested_fingerprint, self.coverage, self.pairs
        return TestSet(*tested), self.guidance

    @cached_property
    def made_by(self) -> Recipe | None:
        """The recipe; None for a baseline, and for a method or a setting that is no more."""
        with suppress(SoundspotError, LookupError, TypeError, AttributeError):
            return from_dict(Recipe, with_earlier_meaning(self.recipe or {}))
        return None

    @cached_property
    def run(self) -> str | None:
        """What tells a run from others: its data and settings, or the name of a baseline."""
        if self.recipe is None:
            return self.label
        if self.made_by is None:
            return None
        return name_run(self.provenance["data_fingerprint"], self.made_by)

    def is_replaced_by(self, new: "Scores") -> bool:
        """Whether others are of the same run: scored on the same pairs, or trained again."""
        trained_again = (self.provenance, self.epochs) != (new.provenance, new.epochs)
        same = self.run is not None and self.run == new.run
        return same and (self.place == new.place or trained_again)


@dataclass(frozen=True)
class TableLine:
    """A line of a table: a method over its seeds, or a baseline, which has none.

    Attributes:
        ciou_interval: Over pairs, each averaged over the seeds.
        protocols: Protocol -> mean cIoU and AUC; `ciou` and `auc` are by the paper's.
        seeds: Of each run its seed, commit, best step, steps, scores and, for a figure of steps,
            what it logged at each validation.
        peak_side: Share of the sounds of duets whose peak is on the sounding side.
        inverted: cIoU of the maps upside down.
        curve: Success by cIoU threshold.
        passes: Mean cIoU and AUC after each pass of a PCM.
        published: cIoU and AUC of the paper on the same data; `original`: of the method's own.
    """

    label: str
    ciou: Spread
    auc: Spread
    ciou_interval: Interval
    protocols: dict[str, tuple[float, ...]]
    seeds: tuple[dict[str, Any], ...] = ()
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


def name_run(fingerprint: str, recipe: Recipe) -> str:
    """What tells a run from others: its data, wherever they are, and settings."""
    return json.dumps([fingerprint, settings_of(recipe)], sort_keys=True)


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


def read_records(path: Path) -> list[Scores]:
    """Read all scores; a file that is not there holds none."""
    if not path.exists():
        return []
    try:
        first, *lines = gzip.decompress(read_bytes(path)).splitlines()
        head, rows = parse_json(first), [dict(parse_json(line)) for line in lines]
        if head == {"format": GROUPED}:
            rows = [row for group in rows for row in _ungrouped(group)]
        elif head != {"format": FORMAT}:
            raise ValueError(f"its first line is not that of format {FORMAT}")
        return [from_dict(Scores, row) for row in rows]
    except (OSError, EOFError, zlib.error, LookupError, ValueError, TypeError, SoundspotError) as e:
        remedy = "restore it, or move it away to train and score its runs again"
        raise SoundspotError(f"{path} is damaged ({e}); {remedy}", "damaged") from e


def _ungrouped(group: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for scores in group["scores"]:
        tested = scores.pop("tested_on")
        tested["tested_fingerprint"] = tested.pop("data_fingerprint")
        yield {"label": group["label"], **tested, **scores, **(group["training"] or {})}


def add_record(path: Path, new: Scores) -> None:
    """Add scores to a file, where they take the place of older ones of the same run."""
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may have added records since this one read them.
    with locked(path.with_name(f".{path.name}.lock"), f"{path} is in use", wait=True):
        kept = [scores for scores in read_records(path) if not scores.is_replaced_by(new)]
        write_records(path, [*kept, new])


def write_records(path: Path, records: Sequence[Scores]) -> None:
    """Write all scores; the same ones always give the same bytes."""
    # Runs by their settings; baselines come first, in the order in which they were scored.
    ordered = sorted(records, key=lambda s: ((s.recipe and s.run) or "", repr(s.place)))
    lines = [json.dumps(to_dict(scores), separators=(",", ":")) for scores in ordered]
    text = "\n".join([json.dumps({"format": FORMAT}), *lines]) + "\n"
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as file:
        file.write(text.encode())
    write_bytes(path, packed.getvalue())
