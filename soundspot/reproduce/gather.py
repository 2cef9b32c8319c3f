"""Take every run of a table from its record or its folder, or train it, and keep a record of it."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from soundspot.common.config import from_dict, read_typed, to_dict
from soundspot.evaluation.intervals import Interval
from soundspot.evaluation.protocols import PROTOCOLS
from soundspot.reproduce import runs
from soundspot.reproduce.records import (
    Asked,
    Record,
    Scores,
    TestedOn,
    as_scores,
    cut,
    read_record,
    write_record,
)
from soundspot.reproduce.runs import ReproductionPlan, RunResult, RunScores
from soundspot.training.recipe import Recipe

RECORDS = "records"


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """A run as a table takes it: its log as in result.json, and whether it came from a record."""

    folder: Path
    recipe: Recipe
    result: RunResult
    scores: RunScores
    recorded: bool


@dataclass(frozen=True)
class Baseline:
    """A line of a table that needs no model."""

    label: str
    ciou: float
    auc: float
    ciou_interval: Interval
    protocols: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Baselines:
    """The record of the trivial baselines on a test set: image saliency needs features."""

    format: Literal[1]
    tested_on: TestedOn
    lines: tuple[Baseline, ...]


def records_of(plan: ReproductionPlan) -> Path:
    """The folder of the records."""
    return plan.records or plan.runs / RECORDS


def take_run(
    plan: ReproductionPlan,
    recipe: Recipe,
    tested_on: TestedOn,
    asked: Asked,
    say: Callable[[str], None],
    name: str,
) -> ScoredRun | None:
    """A run with its scores; None if it would have to be trained and the plan forbids that."""
    folder = runs.run_folder(plan.runs, recipe, plan.pairs)
    path = records_of(plan) / f"{folder.name}.json"
    record = read_record(path, plan.pairs)
    known = None if record is None else record.find(tested_on, asked.guidance)
    at_hand = not asked.maps or plan.no_training or runs.is_finished(folder)
    if record is not None and known is not None and known.answers(asked) and at_hand:
        say(f"{name}: {path}")
        return _scored(folder, recipe, record, known, recorded=True)
    if plan.no_training and not runs.is_finished(folder):
        say(f"{name}: not run")
        return None
    say(f"{name}: {folder}")
    training = runs.train_missing(recipe, folder, say, plan.device)
    training = replace(training, epochs=tuple(cut(training.epochs)))
    if record is None or record.training != training:  # scores of another training are not its own
        record, known = Record(1, training), None
    if known is not None:  # complete what is there, rather than replace it
        asked = replace(
            asked,
            passes=asked.passes or known.passes,
            bench=asked.bench or known.bench,
            inverted=asked.inverted or known.inverted is not None,
        )
    options = asked.guidance, asked.passes, asked.bench, plan.device, asked.inverted
    scores = as_scores(runs.score_run(folder, plan.test_set, *options), tested_on, asked)
    write_record(path, record.with_scores(scores))
    return _scored(folder, recipe, record, scores, recorded=False)


def _scored(
    folder: Path, recipe: Recipe, record: Record, scores: Scores, recorded: bool
) -> ScoredRun:
    return ScoredRun(folder, recipe, record.training, scores.as_run_scores(), recorded)


def read_baselines(plan: ReproductionPlan, tested_on: TestedOn) -> list[dict[str, Any]] | None:
    """The recorded trivial baselines on a test set; None if there are none."""
    path = _baselines_path(plan, tested_on)
    if not path.exists():
        return None
    record = read_typed(path, Baselines, f"delete {path} to score the baselines again")
    current = all(list(line.protocols) == list(PROTOCOLS) for line in record.lines)
    if record.tested_on != tested_on or not current:
        return None
    return [to_dict(line) for line in record.lines]


def write_baselines(
    plan: ReproductionPlan, tested_on: TestedOn, lines: list[dict[str, Any]]
) -> None:
    """Keep a record of the trivial baselines on a test set."""
    values = {"format": 1, "tested_on": to_dict(tested_on), "lines": lines}
    write_record(_baselines_path(plan, tested_on), from_dict(Baselines, values))


def _baselines_path(plan: ReproductionPlan, tested_on: TestedOn) -> Path:
    content = json.dumps(to_dict(tested_on), sort_keys=True)
    return records_of(plan) / f"trivial-{hashlib.sha256(content.encode()).hexdigest()[:10]}.json"
