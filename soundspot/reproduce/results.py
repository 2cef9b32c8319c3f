"""The results of a table, with the paper's beside ours: from runs to JSON, and to text.

Numbers are fractions. Axes: n pairs.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from soundspot.common.config import parse_json, read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.common.progress import result_console
from soundspot.evaluation import rows
from soundspot.evaluation.intervals import bootstrap, over_seeds
from soundspot.evaluation.metrics import THRESHOLDS, auc, ciou_at, success_curve
from soundspot.evaluation.predictions import Features, open_cache, open_model, saliency_maps
from soundspot.evaluation.report.tables import Table
from soundspot.evaluation.trivial import ORACLE
from soundspot.features.cache import AnyCache
from soundspot.features.spec import FeatureSpec
from soundspot.model.checkpoint import build_method
from soundspot.reproduce import experiments, gather, likeness, records, runs
from soundspot.reproduce.complexity import gflops
from soundspot.reproduce.experiments import Experiment, Line
from soundspot.reproduce.figures import draw_figure
from soundspot.reproduce.gather import ScoredRun, records_of, take_run
from soundspot.reproduce.records import Asked, TestedOn
from soundspot.reproduce.runs import (
    ReproductionPlan,
    RunResult,
    RunScores,
    coverage,
    features_of,
    scenes_of,
)
from soundspot.training.data import check_batch
from soundspot.training.recipe import Recipe

QUOTED = {"published": "paper", "original": "original"}


def write_table(plan: ReproductionPlan, out: Path, say: Callable[[str], None]) -> None:
    """Reproduce a table, print it, and write it as JSON and Markdown with its figure.

    Args:
        plan: What to reproduce.
        out: Folder for the files.
        say: Receives progress messages.
    """
    for folder, content in ((out, "tables"), (records_of(plan), "records")):
        if folder.exists() and not folder.is_dir():
            raise SoundspotError(f"expected a folder for the {content}, but {folder} is a file")
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
    missing = not_run(results)
    write_text(out / f"{plan.name}.md", table.markdown() + (f"\n{missing}\n" if missing else ""))
    figure = draw_figure(results, plan, out, say)
    result_console().print(table.rich())
    if missing:
        say(missing)
    say(f"written: {place}" + (f", {figure}" if figure else ""))


def reproduce_table(plan: ReproductionPlan, say: Callable[[str], None]) -> dict[str, Any]:
    """Train what is missing, test everything, and collect the numbers as plain values for JSON."""
    experiment = experiments.find_table(plan.name)
    lines = experiments.lines_for(experiment, plan.pairs)
    key = experiments.published_key(plan.pairs, plan.test_set.benchmarks[0].name)
    for benchmark in plan.test_set.benchmarks:  # do not train what cannot be tested
        scenes_of(benchmark, plan.test_set)
    if (part := coverage(plan.test_set)) is not None:
        say(f"only part of the test set is available: {part}")
    for line in lines:
        recipe = experiments.recipe_of(line, plan.pairs, 0, plan.quick)
        check_batch(plan.pairs, recipe.train.batch, advice="give a larger set with --data")
    tested_on = records.identify(plan.test_set, part)
    entries, missing, taken = [], [], list[ScoredRun]()
    for number, line in enumerate(lines, 1):
        place = f"[{number}/{len(lines)}] {line.label}"
        seeds = _take_seeds(plan, experiment, line, tested_on, place, say)
        if not seeds:
            missing.append(line.label)
            continue
        taken += seeds.values()
        entry = _line_entry(line, seeds, experiment)
        for name, quoted in (("published", line.published), ("original", line.original)):
            if quoted and key in quoted:
                entry[name] = dict(zip(("ciou", "auc"), quoted[key], strict=True))
        entries.append(entry)
    runs.check_some(entries, plan)
    if recorded := sum(run.recorded for run in taken):
        say(f"{recorded} of {len(taken)} runs were taken from their records in {records_of(plan)}")
    trivial = _trivial_entries(plan, tested_on, taken, say)
    if experiment.bench:
        _add_mean_ranks([*entries, *trivial])
    return runs.describe(plan, experiment) | {
        "benchmarks": [benchmark.name for benchmark in plan.test_set.benchmarks],
        "protocol": rows.MAIN,
        "coverage": part,
        "lines": entries,
        "not_run": missing,
        "trivial": trivial,
    }


def _take_seeds(
    plan: ReproductionPlan,
    experiment: Experiment,
    line: Line,
    tested_on: TestedOn,
    place: str,
    say: Callable[[str], None],
) -> dict[int, ScoredRun]:
    """The runs of a line by seed."""
    found = {}
    plan = plan.for_line(line.label)
    for seed in experiments.seeds_of(line, plan.pairs, plan.seeds):
        asked = Asked(
            guidance=line.guidance,
            passes=experiment.figure == "iterations",
            bench=experiment.bench,
            inverted=experiment.figure == "steps",
            maps=experiment.figure == "examples" and seed == 0,
        )
        recipe = experiments.recipe_of(line, plan.pairs, seed, plan.quick)
        run = take_run(plan, recipe, tested_on, asked, say, f"{place}, seed {seed}")
        if run is not None:
            found[seed] = run
    return found


def _seed_entry(seed: int, scored: ScoredRun) -> dict[str, Any]:
    run, scores = scored.result, scored.scores
    chosen = [line for line in run.epochs if line["best"]][-1]
    return {
        "seed": seed,
        "run": scored.folder.name,
        "commit": run.provenance["commit"],
        "step": run.best_step,
        "steps": run.steps,
        "z_std": [round(line["train_z_std"], 3) for line in run.epochs if "train_z_std" in line],
        "seconds": round(sum(line["seconds"] for line in run.epochs)),
        "val": {k.removeprefix("val_"): v for k, v in chosen.items() if k.startswith("val_")},
        "ciou": ciou_at(scores.ciou),
        "auc": auc(scores.ciou),
        "peak_side": None if scores.duets is None else float(scores.duets.mean()),
    }


def _validations(run: RunResult) -> dict[str, list[Any]]:
    """What a run logged at each validation, by name."""
    names = {"step": "step", "train_z_std": "z_std"}
    names |= {f"val_{name}": name for name in ("ciou", "auc", "duets")}
    return {
        name: [round(line[key], 4) for line in run.epochs]
        for key, name in names.items()
        if all(key in line for line in run.epochs)
    }


def _line_entry(
    line: Line, by_seed: Mapping[int, ScoredRun], experiment: Experiment
) -> dict[str, Any]:
    """A line over its seeds; the interval is over pairs, each averaged over the seeds."""
    seeds = [_seed_entry(seed, run) for seed, run in by_seed.items()]
    scored = [run.scores for run in by_seed.values()]
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
    if experiment.figure == "steps":
        for seed, run in zip(seeds, by_seed.values(), strict=True):
            seed["validations"] = _validations(run.result)
        upside_down = [ciou_at(s.inverted) for s in scored if s.inverted is not None]
        entry["inverted"] = asdict(over_seeds(upside_down))
    if experiment.figure == "iterations":
        passes = range(len(scored[0].by_cycle))
        entry["passes"] = {
            "x": [t + 1 for t in passes],
            "ciou": [float(np.mean([ciou_at(s.by_cycle[t]) for s in scored])) for t in passes],
            "auc": [float(np.mean([auc(s.by_cycle[t]) for s in scored])) for t in passes],
        }
    entry["seeds"] = seeds
    last = list(by_seed.values())[-1]
    entry["recipe"] = last.result.recipe
    if experiment.gflops:
        entry["gflops"] = gflops(last.recipe)
    if experiment.bench:
        entry |= _bench_entry(scored, last.recipe)
    return entry


def _bench_entry(scored: Sequence[RunScores], recipe: Recipe) -> dict[str, Any]:
    """What a comparison of methods says of a line beyond the paper's measures."""
    method = build_method(recipe.method, recipe.model)
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


def _trivial_entries(
    plan: ReproductionPlan,
    tested_on: TestedOn,
    taken: Sequence[ScoredRun],
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """How the trivial baselines do on the test set, for comparison.

    The image saliency is of the default encoder or, if its features are not on disk, as recorded,
    or of a run's encoder.
    """
    scenes, truths = scenes_of(plan.test_set.benchmarks[0], plan.test_set)
    frames = [scene.frame for scene in scenes]
    seen: Features | AnyCache | None = open_cache(plan.test_set.pairs, FeatureSpec(), frames)
    if seen is None and (known := gather.read_baselines(plan, tested_on)) is not None:
        return known
    finished = [run.folder for run in taken if runs.is_finished(run.folder)]
    if seen is None and finished:
        seen = features_of(open_model(finished[-1]), plan.test_set, scenes)[0]
    if seen is None:
        say("image saliency is left out: there are no features, runs or records to take it from")
    salient = None if seen is None else saliency_maps(seen, frames)
    entries = []
    for baseline in rows.baselines(truths, salient):
        scores = baseline.scores[rows.MAIN]
        interval = bootstrap((scores >= 0.5).astype(np.float64))
        numbers = {"ciou": ciou_at(scores), "auc": auc(scores), "ciou_interval": asdict(interval)}
        protocols = _protocol_means([baseline.scores])
        entries.append({"label": baseline.name, **numbers, "protocols": protocols})
    if seen is not None:
        gather.write_baselines(plan, tested_on, entries)
    return entries


def not_run(results: Mapping[str, Any]) -> str:
    """A sentence that names the lines without a run; empty if there are none."""
    missing = results.get("not_run", ())
    return f"Not run: {'; '.join(missing)}." if missing else ""


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
        results: dict[str, Any] = dict(parse_json(read_bytes(path)))
    except (OSError, ValueError, TypeError) as error:
        raise SoundspotError(f"{path} was not written by `soundspot reproduce`") from error
    if results.get("format") != runs.FORMAT:
        raise SoundspotError(f"{path} has format {results.get('format')}, expected {runs.FORMAT}")
    return results
