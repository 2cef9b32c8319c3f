"""The figure of a table: curves of its numbers, or examples of its maps."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from soundspot.evaluation.predictions import open_model
from soundspot.evaluation.protocols import score
from soundspot.evaluation.rows import MAIN
from soundspot.reproduce import likeness, runs
from soundspot.reproduce.drawing import draw_curves
from soundspot.reproduce.examples import Column, Examples, write_examples
from soundspot.reproduce.runs import ReproductionPlan


def draw_figure(
    results: Mapping[str, Any], plan: ReproductionPlan, out: Path, say: Callable[[str], None]
) -> Path | None:
    """Draw the figure of a table into a folder.

    Maps can only be drawn for runs that have a folder; lines with nothing but a record are left
    out and named.

    Returns:
        The file, or None if the table has no figure, no run of it has a folder, or matplotlib is
        missing.
    """
    if results["figure"] is None:
        return None
    if results["figure"] != "examples":
        return draw_curves(results, out / f"{results['table']}.svg")
    lines, absent = _split_by_folder(results, plan)
    if absent:
        named = "; ".join(f"{line['label']} ({line['seeds'][0]['run']})" for line in absent)
        effect = "leaves out these lines, which" if lines else "cannot be drawn: its lines"
        say(f"the figure of examples {effect} have a record, but no folder in {plan.runs}: {named}")
    if not lines:
        return None
    whose = _examples if plan.test_set.benchmarks else likeness.likeness_examples
    examples = whose({**results, "lines": lines}, plan)
    labels = [*(line["label"] for line in absent), *results["not_run"]]
    return write_examples(replace(examples, absent=labels), results, out)


def _split_by_folder(
    results: Mapping[str, Any], plan: ReproductionPlan
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines with a run that has a folder, reduced to such runs, and those without."""
    present, absent = [], []
    for line in results["lines"]:
        seeds = [seed for seed in line["seeds"] if runs.is_finished(plan.runs / seed["run"])]
        if seeds:
            present.append({**line, "seeds": seeds})
        else:
            absent.append(line)
    return present, absent


def _examples(results: Mapping[str, Any], plan: ReproductionPlan) -> Examples:
    """The maps of the first seed of every line on the test set, with their cIoU."""
    scenes, truths = runs.scenes_of(plan.test_set.benchmarks[0], plan.test_set)
    columns = []
    for line in results["lines"]:
        model = open_model(plan.runs / line["seeds"][0]["run"], plan.device)
        maps = runs.maps_of(model, plan.test_set, scenes, line["guidance"])
        columns.append(Column(line["label"], maps, score(maps, truths)[MAIN]))
    return Examples(plan.test_set.pairs, scenes, columns, "cIoU")
