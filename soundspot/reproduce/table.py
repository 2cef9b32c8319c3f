"""A table of the paper, ours beside theirs: from runs to numbers, to JSON, to text.

Numbers are fractions. Axes: n pairs.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import rows
from soundspot.evaluation.intervals import bootstrap, over_seeds
from soundspot.evaluation.metrics import THRESHOLDS, auc, ciou_at, success_curve
from soundspot.evaluation.predictions import open_cache, saliency_maps
from soundspot.evaluation.report.tables import Table
from soundspot.features.spec import FeatureSpec
from soundspot.reproduce import experiments
from soundspot.reproduce.complexity import gflops
from soundspot.reproduce.experiments import Experiment, Line
from soundspot.reproduce.runs import (
    Scored,
    TestSet,
    run_folder,
    scenes_of,
    score_run,
    train_missing,
)
from soundspot.training.provenance import git_commit

FORMAT = 1


@dataclass(frozen=True)
class Plan:
    """What to reproduce.

    Attributes:
        name: Of the table or figure.
        pairs: The training set.
        exam: The test set.
        seeds: How many, from 0 on.
        quick: Fewer epochs; one seed unless more are asked for.
        runs: Folder of all runs.
    """

    name: str
    pairs: PairSet
    exam: TestSet
    seeds: int
    quick: bool
    runs: Path


def reproduce(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """Train what is missing, test all of it, and put the numbers together.

    Args:
        plan: What to do.
        say: Told what happens, a line at a time.

    Returns:
        Plain values for JSON; `as_table` makes a table of them.
    """
    if plan.seeds < 1:
        raise SoundspotError(f"a table needs at least one seed, not --seeds {plan.seeds}")
    experiment = experiments.find(plan.name)
    lines = experiments.lines_for(experiment, plan.pairs)
    key = experiments.published_key(plan.pairs, plan.exam.benchmarks[0].name)
    for benchmark in plan.exam.benchmarks:  # what cannot be tested is not trained
        scenes_of(benchmark, plan.exam)
    trivial = _trivial(plan.exam)
    total, done = len(lines) * plan.seeds, 0
    found = []
    for line in lines:
        scored, seeds = [], []
        for seed in range(plan.seeds):
            recipe = experiments.recipe_of(line, plan.pairs, seed, plan.quick)
            folder = run_folder(plan.runs, recipe, plan.pairs)
            done += 1
            say(f"[{done}/{total}] {line.label}, seed {seed}: {folder}")
            run = train_missing(recipe, folder, say)
            one = score_run(folder, plan.exam, line.guidance, experiment.figure == "iterations")
            scored.append(one)
            seeds.append(_of_seed(seed, folder, run, one))
        entry = _of_line(line, scored, seeds, experiment)
        entry["recipe"] = run["recipe"]
        if experiment.gflops:
            entry["gflops"] = gflops(recipe)
        published = (line.published or {}).get(key or "")
        if published is not None:
            entry["published"] = {"ciou": published[0], "auc": published[1]}
        found.append(entry)
    return {
        "format": FORMAT,
        "table": plan.name,
        "title": experiment.title,
        "note": experiment.note,
        "figure": experiment.figure,
        "command": " ".join(["soundspot", *sys.argv[1:]]),
        "commit": git_commit(),
        "data": plan.pairs.name,
        "data_fingerprint": plan.pairs.fingerprint()[:16],
        "benchmarks": [benchmark.name for benchmark in plan.exam.benchmarks],
        "protocol": rows.MAIN,
        "quick": plan.quick,
        "lines": found,
        "trivial": trivial,
    }


def _of_seed(seed: int, folder: Path, run: Mapping[str, Any], one: Scored) -> dict[str, Any]:
    epochs = run["epochs"]
    chosen = epochs[run["best_epoch"] - 1]
    return {
        "seed": seed,
        "run": folder.name,
        "commit": run["provenance"]["commit"],
        "epoch": run["best_epoch"],
        "of": len(epochs),
        "z_std": [round(one["train_z_std"], 3) for one in epochs if "train_z_std" in one],
        "seconds": round(sum(epoch["seconds"] for epoch in epochs)),
        "val": {k.removeprefix("val_"): v for k, v in chosen.items() if k.startswith("val_")},
        "ciou": ciou_at(one.ciou),
        "auc": auc(one.ciou),
        "peak_side": None if one.duets is None else float(one.duets.mean()),
    }


def _of_line(
    line: Line, scored: Sequence[Scored], seeds: Sequence[dict[str, Any]], experiment: Experiment
) -> dict[str, Any]:
    """A line over its seeds; the interval is over pairs, each with its mean over the seeds."""
    success = np.mean([one.ciou >= 0.5 for one in scored], axis=0)
    entry: dict[str, Any] = {
        "label": line.label,
        "settings": list(line.settings),
        "guidance": line.guidance,
        "ciou": asdict(over_seeds([one["ciou"] for one in seeds])),
        "auc": asdict(over_seeds([one["auc"] for one in seeds])),
        "ciou_interval": asdict(bootstrap(success)),
    }
    heard = [one.duets for one in scored if one.duets is not None]
    if heard:
        entry["peak_side"] = asdict(over_seeds([one["peak_side"] for one in seeds]))
        entry["peak_side_interval"] = asdict(bootstrap(np.mean(heard, axis=0)))
    if experiment.figure == "success":
        curves = [success_curve(one.ciou) for one in scored]
        entry["curve"] = {"x": THRESHOLDS.tolist(), "y": np.mean(curves, axis=0).tolist()}
    if experiment.figure == "iterations":
        passes = range(len(scored[0].by_cycle))
        entry["passes"] = {
            "x": [t + 1 for t in passes],
            "ciou": [float(np.mean([ciou_at(one.by_cycle[t]) for one in scored])) for t in passes],
            "auc": [float(np.mean([auc(one.by_cycle[t]) for one in scored])) for t in passes],
        }
    entry["seeds"] = list(seeds)
    return entry


def _trivial(exam: TestSet) -> list[dict[str, Any]]:
    """What the test set gives away without a model."""
    scenes, truths = scenes_of(exam.benchmarks[0], exam)
    frames = [scene.frame for scene in scenes if scene.frame is not None]
    cache = open_cache(exam.pairs, FeatureSpec(), frames)
    seen = None if cache is None else saliency_maps(cache, frames)
    return [
        {
            "label": one.name,
            "ciou": ciou_at(one.scores[rows.MAIN]),
            "auc": auc(one.scores[rows.MAIN]),
            "ciou_interval": asdict(bootstrap((one.scores[rows.MAIN] >= 0.5).astype(np.float64))),
        }
        for one in rows.baselines(truths, seen)
    ]


def as_table(found: Mapping[str, Any]) -> Table:
    """The table that is printed, from the plain values that are kept."""
    lines, trivial = found["lines"], found["trivial"]
    duets = any("peak_side" in line for line in lines)
    costs = any("gflops" in line for line in lines)
    published = any("published" in line for line in lines)
    header = ["", "cIoU", "95 % interval", "AUC"]
    header += ["duets"] if duets else []
    header += ["GFLOPs"] if costs else []
    header += ["paper cIoU", "paper AUC"] if published else []
    body = []
    for line in lines:
        row = [line["label"], _spread(line["ciou"]), _range(line), _spread(line["auc"])]
        row += [_spread(line["peak_side"]) if "peak_side" in line else "–"] if duets else []
        row += [f"{line['gflops']:.1f}"] if costs else []
        if published:
            theirs = line.get("published")
            row += [f"{theirs['ciou']:.3f}", f"{theirs['auc']:.3f}"] if theirs else ["–", "–"]
        body.append(tuple(row))
    for line in trivial:
        row = [line["label"], f"{line['ciou']:.3f}", _range(line), f"{line['auc']:.3f}"]
        body.append(tuple(row + ["–"] * (len(header) - len(row))))
    seeds = len(lines[0]["seeds"])
    many = "mean ± standard deviation over" if seeds > 1 else "of"
    note = (
        f"{found['note']} {many.capitalize()} {seeds} seed{'s' if seeds > 1 else ''}, tested on "
        f"{' and '.join(found['benchmarks'])} by protocol {found['protocol']}; epochs chosen on "
        f"validation data{'; a quick run: fewer epochs' if found['quick'] else ''}. The interval "
        "is over test pairs."
    )
    return Table(f"{found['title']} ({found['data']})", note, tuple(header), tuple(body))


def _spread(value: Mapping[str, Any]) -> str:
    deviation = "" if value["std"] is None else f" ± {value['std']:.3f}"
    return f"{value['mean']:.3f}{deviation}"


def _range(line: Mapping[str, Any]) -> str:
    return f"{line['ciou_interval']['low']:.3f}–{line['ciou_interval']['high']:.3f}"


def read(path: Path) -> dict[str, Any]:
    """A table that was kept as JSON."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} is not a table kept by `soundspot reproduce`") from error
    if found.get("format") != FORMAT:
        raise SoundspotError(f"{path} is a table of format {found.get('format')}, not {FORMAT}")
    return found
