"""The results of a table, with the paper's beside ours: from runs to lines, JSON and text.

Numbers are fractions.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from soundspot.common.config import read_typed
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.common.progress import result_console
from soundspot.evaluation.intervals import Spread, bootstrap, over_seeds
from soundspot.evaluation.metrics import auc, ciou_at, success_curve
from soundspot.evaluation.report.tables import Table
from soundspot.evaluation.rows import MAIN
from soundspot.evaluation.trivial import ORACLE
from soundspot.model.checkpoint import build_method
from soundspot.reproduce import experiments, figures, records, runs
from soundspot.reproduce.complexity import measure
from soundspot.reproduce.experiments import Experiment, Line
from soundspot.reproduce.records import TABLE_FORMAT, Results, Scores, TableLine
from soundspot.reproduce.runs import ReproductionPlan, Say
from soundspot.training.recipe import Recipe
from soundspot.training.run_folder import git_commit

LOGGED = {"step": "step", "ciou": "val_ciou", "auc": "val_auc", "duets": "val_duets"}
LOGGED["z_std"] = "train_z_std"


def write_table(plan: ReproductionPlan, out: Path, say: Say, command: str = "") -> None:
    """Reproduce a table, print it, and write it as JSON and Markdown with its figure.

    Args:
        plan: What to reproduce.
        out: Folder for the files.
        say: Receives progress messages.
        command: What repeats this; the JSON tells it.
    """
    for path, is_right in ((out, out.is_dir), (plan.records, plan.records.is_file)):
        if path.exists() and not is_right():
            raise SoundspotError(f"{path} should be a {'folder' if path == out else 'file'}")
    if plan.seeds < 1:
        raise SoundspotError(f"expected at least one seed, got --seeds {plan.seeds}")
    results = reproduce_table(plan, say, command)
    out.mkdir(parents=True, exist_ok=True)
    place = out / f"{plan.name}.json"
    write_text(place, as_json(results))
    write_text(out / f"{plan.name}.md", as_markdown(results))
    if results.figure == "examples":
        figure = figures.draw_examples(results, plan, out / f"{plan.name}.png")
    else:
        figure = figures.draw_curves(results, out / f"{plan.name}.svg")
    result_console().print(as_table(results).rich())
    if results.not_run:
        say(not_run(results))
    say(f"written: {place}" + (f", {figure}" if figure else ""))


def reproduce_table(plan: ReproductionPlan, say: Say, command: str = "") -> Results:
    """Train what is missing, test everything, and summarize it."""
    experiment = experiments.find_table(plan.name)
    known = records.read_records(plan.records)
    if plan.tested_on.coverage is not None:
        say(f"only part of the test set is available: {plan.tested_on.coverage}")
    # Take the runs of every line.
    lines, missing, folders = [], [], []
    for line in experiments.lines_for(experiment, plan.data):
        found = []
        for seed in experiments.seeds_of(line, plan.data, plan.seeds):
            needs_folder = experiment.figure == "examples" and seed == 0
            scores = runs.take_run(plan, known, line, seed, say, needs_folder)
            # Some were recorded without their passes.
            if scores and (scores.by_cycle or experiment.figure != "iterations"):
                found.append(scores)
                folders.append(plan.finished(line, seed))
        if found:
            lines.append(summarize(line.label, found, line, experiment))
        else:
            missing.append(line.label)
    if not lines:
        raise SoundspotError(f"no run of {plan.name} is recorded in {plan.records}")
    # Compare them with what needs no model, and with each other.
    trivial = _baselines(plan, known, list(filter(None, folders)))
    if experiment.bench:
        ranked = with_mean_ranks([*lines, *trivial])
        lines, trivial = ranked[: len(lines)], ranked[len(lines) :]
    return Results(
        format=TABLE_FORMAT,
        table=plan.name,
        title=experiment.title,
        note=experiment.note,
        command=command,
        commit=git_commit(),
        data=plan.data.name,
        data_fingerprint=plan.data.fingerprint,
        quick=plan.quick,
        benchmarks=plan.tested_on.benchmarks,
        pairs=plan.tested_on.pairs,
        lines=tuple(lines),
        trivial=tuple(trivial),
        figure=experiment.figure,
        coverage=plan.tested_on.coverage,
        not_run=tuple(missing),
    )


def _baselines(
    plan: ReproductionPlan, known: Sequence[Scores], folders: Sequence[Path]
) -> list[TableLine]:
    """What scores on the test set without a model, from the records or scored now."""
    found = [s for s in known if s.recipe is None and s.place == (plan.tested_on, 0.0)]
    if not found and plan.media is not None:
        found = runs.score_baselines(plan.media, folders[-1:])
        for scores in found:
            records.add_record(plan.records, scores)
    return [summarize(scores.label, [scores]) for scores in found]


def summarize(
    label: str,
    scored: Sequence[Scores],
    line: Line | None = None,
    experiment: Experiment | None = None,
) -> TableLine:
    """A line over its seeds: what every table shows and, of runs, what this one does."""
    ciou = [np.array(scores.by_protocol[MAIN]) for scores in scored]
    duets = [float(np.mean(scores.duets)) for scores in scored if scores.duets is not None]
    protocols = {
        name: _means([scores.by_protocol[name] for scores in scored])
        for name in scored[0].by_protocol
        if all(name in scores.by_protocol for scores in scored)
    }
    more = {} if line is None or experiment is None else _shown(scored, line, experiment)
    return TableLine(
        label=label,
        ciou=over_seeds([ciou_at(each) for each in ciou]),
        auc=over_seeds([auc(each) for each in ciou]),
        ciou_interval=bootstrap(np.mean([each >= 0.5 for each in ciou], axis=0)),
        protocols=protocols,
        peak_side=over_seeds(duets) if duets else None,
        **more,
    )


def _shown(scored: Sequence[Scores], line: Line, experiment: Experiment) -> dict[str, Any]:
    """What a table shows of runs beyond their scores."""
    recipe, figure = scored[-1].made_by, experiment.figure
    assert recipe is not None  # runs of settings that are no more are not found
    more: dict[str, Any] = {"seeds": tuple(_seed_result(s, figure == "steps") for s in scored)}
    for name, quoted in (("published", line.published), ("original", line.original)):
        if quoted and scored[0].published in quoted:
            more[name] = tuple(quoted[scored[0].published])
    if experiment.gflops:
        more["gflops"] = measure(recipe).total.step
    if figure == "success":
        curves = [success_curve(np.array(scores.by_protocol[MAIN])) for scores in scored]
        more["curve"] = tuple(np.mean(curves, axis=0).tolist())
    if figure == "iterations":
        passes = [_means(of_seeds) for of_seeds in zip(*(s.by_cycle for s in scored), strict=True)]
        more["passes"] = {"ciou": tuple(p[0] for p in passes), "auc": tuple(p[1] for p in passes)}
    if figure == "steps":
        inverted = [ciou_at(np.array(s.inverted)) for s in scored if s.inverted is not None]
        more["inverted"] = over_seeds(inverted) if inverted else None
    if experiment.bench:
        more["parameters"] = _used_parameters(recipe)
        for name in ("no_source_f1", "ms"):
            values = [value for s in scored if (value := getattr(s, name)) is not None]
            more[name] = float(np.mean(values)) if values else None
    return more


def _means(ciou: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """CIoU and AUC, each the mean over the seeds."""
    columns = [np.array(each) for each in ciou]
    return tuple(float(np.mean([measure(c) for c in columns])) for measure in (ciou_at, auc))


def _used_parameters(recipe: Recipe) -> int:
    """The trained parameters, without those that only training needs."""
    method = build_method(recipe.method, recipe.model)
    named = method.named_parameters()
    return sum(p.numel() for name, p in named if not name.startswith(method.training_only))


def _seed_result(run: Scores, logs: bool) -> dict[str, Any]:
    ciou = np.array(run.by_protocol[MAIN])
    result = {
        "seed": run.made_by.train.seed if run.made_by else 0,
        "commit": run.provenance["commit"],
        "step": run.best_step,
        "steps": run.steps,
        "ciou": ciou_at(ciou),
        "auc": auc(ciou),
    }
    if run.duets is not None:
        result["peak_side"] = float(np.mean(run.duets))
    if logs:
        result["validations"] = {
            name: [round(float(line[key]), 4) for line in run.epochs]
            for name, key in LOGGED.items()
            if all(key in line for line in run.epochs)
        }
    return result


def with_mean_ranks(lines: Sequence[TableLine]) -> list[TableLine]:
    """Rank lines by cIoU and AUC under every protocol; 1 is the best, equal ones share.

    The oracle, which knows the truth, takes no part.
    """
    ranked = [line for line in lines if line.label != ORACLE]
    shared = [name for name in ranked[0].protocols if all(name in x.protocols for x in ranked)]
    columns = np.array([np.ravel([line.protocols[name] for name in shared]) for line in ranked])
    better = (columns[None] > columns[:, None]).sum(axis=1)
    equal = (columns[None] == columns[:, None]).sum(axis=1)
    means = iter((better + (equal + 1) / 2).mean(axis=1).tolist())
    return [x if x.label == ORACLE else replace(x, mean_rank=next(means)) for x in lines]


def not_run(results: Results) -> str:
    """A sentence that names the lines without a run; empty if there are none."""
    return f"Not run: {'; '.join(results.not_run)}." if results.not_run else ""


def _spread(value: Spread | None) -> str | None:
    if value is None:
        return None
    return f"{value.mean:.3f}" + ("" if value.std is None else f" ± {value.std:.3f}")


def _number(value: int | float | None, form: str) -> str | None:
    return None if value is None else format(value, form)


def _quoted(values: tuple[float, ...] | None, place: int) -> str | None:
    return None if values is None else f"{values[place]:.3f}"


# A column is shown if any line has something to say in it.
COLUMNS: dict[str, Callable[[TableLine], str | None]] = {
    "steps": lambda line: f"{line.seeds[0]['steps']:,}" if line.seeds else None,
    "seeds": lambda line: str(len(line.seeds)) if line.seeds else None,
    "cIoU": lambda line: _spread(line.ciou),
    "95 % interval": lambda x: f"{x.ciou_interval.low:.3f}–{x.ciou_interval.high:.3f}",
    "AUC": lambda line: _spread(line.auc),
    "duets": lambda line: _spread(line.peak_side),
    "cIoU, inverted map": lambda line: _spread(line.inverted),
    "GFLOPs": lambda line: _number(line.gflops, ".1f"),
    "mean rank": lambda line: _number(line.mean_rank, ".1f"),
    "no source, F1": lambda line: _number(line.no_source_f1, ".2f"),
    "parameters": lambda line: _number(line.parameters, ",d"),
    "ms": lambda line: _number(line.ms, ".1f"),
    "paper cIoU": lambda line: _quoted(line.published, 0),
    "paper AUC": lambda line: _quoted(line.published, 1),
    "original cIoU": lambda line: _quoted(line.original, 0),
    "original AUC": lambda line: _quoted(line.original, 1),
}


def as_table(results: Results) -> Table:
    """The printed table of some results."""
    lines = (*results.lines, *results.trivial)
    cells = {name: [cell(line) for line in lines] for name, cell in COLUMNS.items()}
    shown = {name: column for name, column in cells.items() if any(column)}
    body = tuple(
        (line.label, *(column[number] or "–" for column in shown.values()))
        for number, line in enumerate(lines)
    )
    several = any(len(line.seeds) > 1 for line in lines)
    tested = "Mean ± standard deviation over the seeds, tested" if several else "Tested"
    part = f" (only {results.coverage})" if results.coverage else ""
    quick = "; a quick run: fewer steps" if results.quick else ""
    note = (
        f"{results.note} {tested} on {' and '.join(results.benchmarks)} by protocol {MAIN}{part}; "
        f"the step was chosen on validation data{quick}. The interval is over test pairs."
    )
    return Table(f"{results.title} ({results.data})", note, ("", *shown), body)


def as_markdown(results: Results) -> str:
    """The printed table, and what was not run, as Markdown."""
    missing = not_run(results)
    return as_table(results).markdown() + (f"\n{missing}\n" if missing else "")


def as_json(results: Results) -> str:
    """The results as JSON, without what a line does not have."""

    def known(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in items if value is not None or key == "std"}

    return json.dumps(asdict(results, dict_factory=known), indent=1, allow_nan=False) + "\n"


def read_results(path: Path) -> Results:
    """Read results that `soundspot reproduce` wrote."""
    results = read_typed(path, Results, "make it again with `soundspot reproduce`")
    if results.format != TABLE_FORMAT:
        raise SoundspotError(f"{path} has format {results.format}, expected {TABLE_FORMAT}")
    return results
