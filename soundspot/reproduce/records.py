"""Records of runs: small files, to be committed, from which tables are made without training.

A record is named after its run's folder, which is named after the recipe and the data, and holds
the run's log and its scores on one or more test sets. Floats are cut to five digits; nothing is
rounded up, so every score stays on its side of every threshold and the tables stay the same.
"""

import json
import math
from dataclasses import dataclass, fields, replace
from decimal import ROUND_DOWN, Context
from pathlib import Path
from typing import Any, Literal

import numpy as np

from soundspot.common.config import from_dict, read_typed, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.common.files import explain_write_errors, write_text
from soundspot.data.pair_set import PairSet
from soundspot.evaluation.protocols import PROTOCOLS
from soundspot.reproduce import runs
from soundspot.reproduce.runs import RunResult, RunScores, TestSet
from soundspot.training.provenance import git_commit
from soundspot.training.recipe import Recipe, with_earlier_meaning

FIVE_DIGITS = Context(prec=5, rounding=ROUND_DOWN)


@dataclass(frozen=True)
class TestedOn:
    """Which test set: `pairs` of its first benchmark were scored; see `runs.coverage`."""

    benchmarks: tuple[str, ...]
    data_fingerprint: str
    coverage: str | None
    pairs: int


@dataclass(frozen=True)
class Asked:
    """What a table wants to know of a run.

    Attributes:
        guidance: Weight of object guidance.
        passes: The scores after each pass of a PCM.
        bench: How well the model notices that no source is visible.
        inverted: The scores of the maps upside down.
        maps: The maps themselves, which only the run's folder can give.
    """

    guidance: float = 0.0
    passes: bool = False
    bench: bool = False
    inverted: bool = False
    maps: bool = False


@dataclass(frozen=True)
class Scores:
    """`RunScores` on a test set as a file holds them, and what was asked for; `commit` scored."""

    tested_on: TestedOn
    commit: str
    guidance: float
    passes: bool
    bench: bool
    ms: float
    by_protocol: dict[str, tuple[float, ...]]
    no_source_f1: float | None
    duets: tuple[float, ...] | None
    by_cycle: tuple[tuple[float, ...], ...]
    inverted: tuple[float, ...] | None

    def __post_init__(self) -> None:
        """Refuse scores that are not one per pair."""
        columns = [*self.by_protocol.values(), *self.by_cycle, self.inverted]
        if any(c is not None and len(c) != self.tested_on.pairs for c in columns):
            raise ValueError(f"expected {self.tested_on.pairs} scores of pairs in every list")

    def answers(self, asked: Asked) -> bool:
        """Whether nothing that a table asks for is missing."""
        return (
            list(self.by_protocol) == list(PROTOCOLS)
            and (self.passes or not asked.passes)
            and (self.bench or not asked.bench)
            and (self.inverted is not None or not asked.inverted)
        )

    def as_run_scores(self) -> RunScores:
        """The same with arrays."""
        return RunScores(
            by_protocol={name: np.array(values) for name, values in self.by_protocol.items()},
            ms=self.ms,
            no_source_f1=self.no_source_f1,
            duets=None if self.duets is None else np.array(self.duets),
            by_cycle=tuple(np.array(values) for values in self.by_cycle),
            inverted=None if self.inverted is None else np.array(self.inverted),
        )


@dataclass(frozen=True)
class Record:
    """A trained run, and its scores by test set and guidance."""

    format: Literal[1]
    training: RunResult
    scores: tuple[Scores, ...] = ()

    def find(self, tested_on: TestedOn, guidance: float) -> Scores | None:
        """The scores on a test set."""
        same = (s for s in self.scores if (s.tested_on, s.guidance) == (tested_on, guidance))
        return next(same, None)

    def with_scores(self, new: Scores) -> "Record":
        """The record with new scores, which replace older ones on the same test set."""
        old = self.find(new.tested_on, new.guidance)
        return replace(self, scores=(*(s for s in self.scores if s is not old), new))


def identify(test_set: TestSet, coverage: str | None) -> TestedOn:
    """What tells a test set from others."""
    names = tuple(benchmark.name for benchmark in test_set.benchmarks)
    count = len(runs.scenes_of(test_set.benchmarks[0], test_set)[0])
    return TestedOn(names, test_set.pairs.fingerprint()[:16], coverage, count)


def cut(value: Any) -> Any:
    """Plain values with every float cut, not rounded, to five significant digits."""
    if isinstance(value, np.ndarray):
        return cut(value.tolist())
    if isinstance(value, float) and math.isfinite(value):
        return float(FIVE_DIGITS.create_decimal(repr(value)))
    if isinstance(value, dict):
        return {key: cut(item) for key, item in value.items()}
    return [cut(item) for item in value] if isinstance(value, (list, tuple)) else value


def as_scores(scores: RunScores, tested_on: TestedOn, asked: Asked) -> Scores:
    """What a record keeps of the scores of a run."""
    flags = {"guidance": asked.guidance, "passes": asked.passes, "bench": asked.bench}
    about = {"tested_on": to_dict(tested_on), "commit": git_commit(), **flags}
    plain = {field.name: cut(getattr(scores, field.name)) for field in fields(RunScores)}
    return from_dict(Scores, about | plain)


def read_record(path: Path, pairs: PairSet) -> Record | None:
    """Read the record of a run on a training set; None if there is none."""
    if not path.exists():
        return None
    remedy = f"delete {path} to train or score the run again"
    record = read_typed(path, Record, remedy)
    try:
        recipe = from_dict(Recipe, with_earlier_meaning(record.training.recipe))
        named = runs.run_folder(path.parent, recipe, pairs).name
    except (SoundspotError, LookupError, TypeError) as error:
        raise SoundspotError(f"{path} has no valid recipe ({error}); {remedy}") from error
    made_from = record.training.provenance["data_fingerprint"]
    if (named, made_from) != (path.stem, pairs.fingerprint()[:16]):
        raise SoundspotError(f"{path} is not the record of the run {path.stem}; {remedy}")
    return record


def write_record(path: Path, record: Any) -> None:
    """Write a record, on one line."""
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(to_dict(record), separators=(",", ":")) + "\n")
