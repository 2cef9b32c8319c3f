"""The results of a table, with the paper's beside ours: from runs to JSON, and to text.

Numbers are fractions. Axes: n pairs.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from soundspot.common.console import result_console
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.evaluation import rows
from soundspot.evaluation.intervals import bootstrap, over_seeds
from soundspot.evaluation.metrics import THRESHOLDS, auc, ciou_at, success_curve
from soundspot.evaluation.predictions import open_cache, open_model, saliency_maps
from soundspot.evaluation.protocols import score
from soundspot.evaluation.report.tables import Table
from soundspot.evaluation.trivial import ORACLE
from soundspot.features.spec import FeatureSpec
from soundspot.reproduce import experiments, likeness, runs
from soundspot.reproduce.complexity import gflops
from soundspot.reproduce.drawing import draw_curves
from soundspot.reproduce.examples import Column, Examples, write_examples
from soundspot.reproduce.experiments import Experiment, Line
from soundspot.reproduce.runs import (
    ReproductionPlan,
    RunScores,
    TestSet,
    coverage,
    features_of,
    scenes_of,
)
from soundspot.training.data import check_batch

QUOTED = {"published": "paper", "original": "original"}


def write_table(plan: ReproductionPlan, out: Path, say: Callable[[str], None]) -> None:
    """Reproduce a table, print it, and write it as JSON and Markdown with its figure.

    Args:
        plan: What to reproduce.
        out: Folder for the files.
        say: Receives progress messages.
    """
    if out.exists() and not out.is_dir():
        raise SoundspotError(f"expected a folder for the tables, but {out} is a file")
    if plan.seeds < 1:
        raise SoundspotError(f"expected at least one seed, got --seeds {plan.seeds}")
    if plan.test_set.benchmarks:
        results = reproduce_table(plan, say)
        table = as_table(results)
    else:
        results = likeness.reproduce_likeness(plan, say)
        table = likeness.as_table(results)
    out.mkdir(parents=True, exist_ok=True)
    place = out / f"{plan.name}.json"
    write_text(place, json.dumps(results, indent=1, allow_nan=False) + "\n")
    write_text(out / f"{plan.name}.md", table.markdown())
    figure = _draw_figure(results, plan, out)
    result_console().print(table.rich())
    say(f"written: {place}" + (f", {figure}" if figure else ""))


def _draw_figure(results: Mapping[str, Any], plan: ReproductionPlan, out: Path) -> Path | None:
    """Draw the figure of a table; None if it has none or matplotlib is missing."""
    if results["figure"] is None:
        return None
    if results["figure"] != "examples":
        return draw_curves(results, out / f"{results['table']}.svg")
    whose = _examples if plan.test_set.benchmarks else likeness.likeness_examples
    return write_examples(whose(results, plan), results, out)


def _examples(results: Mapping[str, Any], plan: ReproductionPlan) -> Examples:
    """The maps of the first seed of every line on the test set, with their cIoU."""
    scenes, truths = scenes_of(plan.test_set.benchmarks[0], plan.test_set)
    columns = []
    for line in results["lines"]:
        model = open_model(plan.runs / line["seeds"][0]["run"], plan.device)
        maps = runs.maps_of(model, plan.test_set, scenes, line["guidance"])
        columns.append(Column(line["label"], maps, score(maps, truths)[rows.MAIN]))
    return Examples(plan.test_set.pairs, scenes, columns, "cIoU")


def reproduce_table(plan: ReproductionPlan, say: Callable[[str], None]) -> dict[str, Any]:
    """Train what is missing, test everything, and collect the numbers as plain values for JSON."""
    experiment = experiments.find_table(plan.name)
    lines = experiments.lines_for(experiment, plan.pairs)
    key = experiments.published_key(plan.pairs, plan.test_set.benchmarks[0].name)
    for benchmark in plan.test_set.benchmarks:  # do not train what cannot be tested
        scenes_of(benchmark, plan.test_set)
    if (part := coverage(plan.test_set)) is not None:
        say(f"only a part of the test set is here: {part}")
    for line in lines:
        check_batch(plan.pairs, experiments.recipe_of(line, plan.pairs, 0, plan.quick).train.batch)
    entries = []
    for number, line in enumerate(lines, 1):
        entry, folder = _reproduce_line(plan, experiment, line, f"[{number}/{len(lines)}]", say)
        for name, quoted in (("published", line.published), ("original", line.original)):
            if quoted and key in quoted:
                entry[name] = dict(zip(("ciou", "auc"), quoted[key], strict=True))
        entries.append(entry)
    trivial = _trivial_entries(plan.test_set, folder)
    if experiment.bench:
        _add_mean_ranks([*entries, *trivial])
    return runs.describe(plan, experiment) | {
        "benchmarks": [benchmark.name for benchmark in plan.test_set.benchmarks],
        "protocol": rows.MAIN,
        "coverage": part,
        "lines": entries,
        "trivial": trivial,
    }


def _reproduce_line(
    plan: ReproductionPlan,
    experiment: Experiment,
    line: Line,
    place: str,
    say: Callable[[str], None],
) -> tuple[dict[str, Any], Path]:
    """Train and test all seeds of a line: its entry, and the folder of its last run."""
    scored, seeds = [], []
    for seed in experiments.seeds_of(line, plan.pairs, plan.seeds):
        recipe = experiments.recipe_of(line, plan.pairs, seed, plan.quick)
        folder = runs.run_folder(plan.runs, recipe, plan.pairs)
        say(f"{place} {line.label}, seed {seed}: {folder}")
        run = runs.train_missing(recipe, folder, say, plan.device)
        passes = experiment.figure == "iterations"
        steps = experiment.figure == "steps"
        options = line.guidance, passes, experiment.bench, plan.device, steps
        scored.append(runs.score_run(folder, plan.test_set, *options))
        seeds.append(_seed_entry(seed, folder, run, scored[-1]))
        if steps:
            seeds[-1]["validations"] = _validations(run)
    entry = _line_entry(line, scored, seeds, experiment)
    entry["recipe"] = run["recipe"]
    if experiment.gflops:
        entry["gflops"] = gflops(recipe)
    if experiment.bench:
        entry |= _bench_entry(scored, folder)
    return entry, folder


def _seed_entry(
    seed: int, folder: Path, run: Mapping[str, Any], scores: RunScores
) -> dict[str, Any]:
    epochs = run["epochs"]
    chosen = [line for line in epochs if line["best"]][-1]
    return {
        "seed": seed,
        "run": folder.name,
        "commit": run["provenance"]["commit"],
        "step": run["best_step"],
        "steps": run["steps"],
        "z_std": [round(epoch["train_z_std"], 3) for epoch in epochs if "train_z_std" in epoch],
        "seconds": round(sum(epoch["seconds"] for epoch in epochs)),
        "val": {k.removeprefix("val_"): v for k, v in chosen.items() if k.startswith("val_")},
        "ciou": ciou_at(scores.ciou),
        "auc": auc(scores.ciou),
        "peak_side": None if scores.duets is None else float(scores.duets.mean()),
    }


def _validations(run: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What a run logged at each validation, by name."""
    names = {"step": "step", "train_z_std": "z_std"}
    names |= {f"val_{name}": name for name in ("ciou", "auc", "duets")}
    log = run["epochs"]
    return {
        name: [round(line[key], 4) for line in log] for key, name in names.items() if key in log[0]
    }


def _line_entry(
    line: Line, scored: Sequence[RunScores], seeds: Sequence[dict[str, Any]], experiment: Experiment
) -> dict[str, Any]:
    """A line over its seeds; the interval is over pairs, each averaged over the seeds."""
    success = np.mean([scores.ciou >= 0.5 for scores in scored], axis=0)
    entry: dict[str, Any] = {
        "label": line.label,
        "settings": list(line.settings),
        "guidance": line.guidance,
        "ciou": asdict(over_seeds([seed["ciou"] for seed in seeds])),
        "auc": asdict(over_seeds([seed["auc"] for seed in seeds])),
        "ciou_interval": asdict(bootstrap(success)),
    }
    duets = [scores.duets for scores in scored if scores.duets is not None]
    if duets:
        entry["peak_side"] = asdict(over_seeds([seed["peak_side"] for seed in seeds]))
        entry["peak_side_interval"] = asdict(bootstrap(np.mean(duets, axis=0)))
    if experiment.figure == "success":
        curves = [success_curve(scores.ciou) for scores in scored]
        entry["curve"] = {"x": THRESHOLDS.tolist(), "y": np.mean(curves, axis=0).tolist()}
    if scored[0].inverted is not None:
        upside_down = [ciou_at(s.inverted) for s in scored if s.inverted is not None]
        entry["inverted"] = asdict(over_seeds(upside_down))
    if experiment.figure == "iterations":
        passes = range(len(scored[0].by_cycle))
        entry["passes"] = {
            "x": [t + 1 for t in passes],
            "ciou": [float(np.mean([ciou_at(s.by_cycle[t]) for s in scored])) for t in passes],
            "auc": [float(np.mean([auc(s.by_cycle[t]) for s in scored])) for t in passes],
        }
    entry["seeds"] = list(seeds)
    return entry


def _bench_entry(scored: Sequence[RunScores], folder: Path) -> dict[str, Any]:
    """What a comparison of methods says of a line beyond the paper's measures."""
    method = open_model(folder).method
    used = [p for name, p in method.named_parameters() if not name.startswith(method.training_only)]
    f1 = [scores.no_source_f1 for scores in scored if scores.no_source_f1 is not None]
    return {
        "parameters": sum(parameter.numel() for parameter in used),
        "ms": float(np.mean([scores.ms for scores in scored])),
        "no_source_f1": float(np.mean(f1)) if f1 else None,
        "protocols": _protocol_means([scores.by_protocol for scores in scored]),
    }


def _protocol_means(scored: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Protocol -> cIoU and AUC, each the mean over the seeds."""
    return {
        name: [float(np.mean([measure(by[name]) for by in scored])) for measure in (ciou_at, auc)]
        for name in scored[0]
    }


def _add_mean_ranks(entries: Sequence[dict[str, Any]]) -> None:
    """Rank all lines by cIoU and by AUC under every protocol; 1 is the best, equal ones share.

    The oracle, which knows the truth, takes no part.
    """
    ranked = [entry for entry in entries if entry["label"] != ORACLE]
    columns = np.array([np.ravel(list(entry["protocols"].values())) for entry in ranked])
    better = (columns[None] > columns[:, None]).sum(axis=1)
    equal = (columns[None] == columns[:, None]).sum(axis=1)
    for entry, ranks in zip(ranked, better + (equal + 1) / 2, strict=True):
        entry["mean_rank"] = float(ranks.mean())


def _trivial_entries(test_set: TestSet, run: Path) -> list[dict[str, Any]]:
    """How the trivial baselines do on the test set, for comparison.

    The image saliency is of the default encoder, or of a run's if its features are not on disk.
    """
    scenes, truths = scenes_of(test_set.benchmarks[0], test_set)
    frames = [scene.frame for scene in scenes]
    cache = open_cache(test_set.pairs, FeatureSpec(), frames)
    seen = cache or features_of(open_model(run), test_set, scenes)[0]
    entries = []
    for baseline in rows.baselines(truths, saliency_maps(seen, frames)):
        scores = baseline.scores[rows.MAIN]
        interval = bootstrap((scores >= 0.5).astype(np.float64))
        numbers = {"ciou": ciou_at(scores), "auc": auc(scores), "ciou_interval": asdict(interval)}
        protocols = _protocol_means([baseline.scores])
        entries.append({"label": baseline.name, **numbers, "protocols": protocols})
    return entries


def as_table(results: Mapping[str, Any]) -> Table:
    """The printed table of some results."""
    lines, trivial = results["lines"], results["trivial"]
    duets = any("peak_side" in line for line in lines)
    costs = any("gflops" in line for line in lines)
    inverted = any("inverted" in line for line in lines)
    bench = any("mean_rank" in line for line in lines)
    quoted = [name for name in QUOTED if any(name in line for line in lines)]
    header = ["", "steps", "seeds", "cIoU", "95 % interval", "AUC"]
    header += ["duets"] if duets else []
    header += ["cIoU, inverted map"] if inverted else []
    header += ["GFLOPs"] if costs else []
    header += ["mean rank", "no source, F1", "parameters", "ms"] if bench else []
    header += [f"{QUOTED[name]} {measure}" for name in quoted for measure in ("cIoU", "AUC")]
    body = []
    for line in lines:
        row = [line["label"], f"{line['seeds'][0]['steps']:,}", str(len(line["seeds"]))]
        row += [_spread(line["ciou"]), _interval(line), _spread(line["auc"])]
        row += [_spread(line["peak_side"]) if "peak_side" in line else "–"] if duets else []
        row += [_spread(line["inverted"])] if inverted else []
        row += [f"{line['gflops']:.1f}"] if costs else []
        row += _bench_cells(line) if bench else []
        for name in quoted:
            theirs = line.get(name)
            row += [f"{theirs['ciou']:.3f}", f"{theirs['auc']:.3f}"] if theirs else ["–", "–"]
        body.append(tuple(row))
    for line in trivial:
        row = [line["label"], "–", "–", f"{line['ciou']:.3f}", _interval(line)]
        row.append(f"{line['auc']:.3f}")
        row += ["–"] * (len(header) - len(row))
        if "mean_rank" in line and bench:
            row[header.index("mean rank")] = f"{line['mean_rank']:.1f}"
        body.append(tuple(row))
    several = any(len(line["seeds"]) > 1 for line in lines)
    tested = "Mean ± standard deviation over the seeds, tested" if several else "Tested"
    tested_part = f" (only {results['coverage']})" if results.get("coverage") else ""
    note = (
        f"{results['note']} {tested} on {' and '.join(results['benchmarks'])} by protocol "
        f"{results['protocol']}{tested_part}; the step was chosen on validation data"
        f"{'; a quick run: fewer steps' if results['quick'] else ''}. The interval is over test "
        "pairs."
    )
    return Table(f"{results['title']} ({results['data']})", note, tuple(header), tuple(body))


def _bench_cells(line: Mapping[str, Any]) -> list[str]:
    f1 = "–" if line["no_source_f1"] is None else f"{line['no_source_f1']:.2f}"
    return [f"{line['mean_rank']:.1f}", f1, f"{line['parameters']:,}", f"{line['ms']:.1f}"]


def _spread(value: Mapping[str, Any]) -> str:
    deviation = "" if value["std"] is None else f" ± {value['std']:.3f}"
    return f"{value['mean']:.3f}{deviation}"


def _interval(line: Mapping[str, Any]) -> str:
    return f"{line['ciou_interval']['low']:.3f}–{line['ciou_interval']['high']:.3f}"


def read_results(path: Path) -> dict[str, Any]:
    """Read results that `soundspot reproduce` wrote."""
    try:
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} was not written by `soundspot reproduce`") from error
    if results.get("format") != runs.FORMAT:
        raise SoundspotError(f"{path} has format {results.get('format')}, expected {runs.FORMAT}")
    return results
