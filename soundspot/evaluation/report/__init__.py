"""Reports of an evaluation: report.json for programs, report.html for people.

The JSON holds fractions, the page and the terminal percentages.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from soundspot import __version__
from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.common.progress import result_console
from soundspot.evaluation.metrics import SIZE, THRESHOLDS, success_curve
from soundspot.evaluation.protocols import PROTOCOLS
from soundspot.evaluation.report.html import html_page
from soundspot.evaluation.report.tables import detail_tables, headline_tables, overview
from soundspot.evaluation.rows import MAIN
from soundspot.evaluation.runner import Evaluation, Result
from soundspot.training.run_folder import git_commit


def show(evaluation: Evaluation) -> None:
    """Print the main tables to standard output."""
    console = result_console()
    for result in evaluation.results:
        for table in headline_tables(result):
            console.print(table.rich())
    if len(evaluation.results) > 1:
        console.print(overview(evaluation.results).rich())


def write_report(evaluation: Evaluation, folder: Path, command: str = "") -> None:
    """Write both files, each in one step; they name the command that repeats them."""
    check_folder(folder)
    facts = run_facts(evaluation, command)
    values = json_values(evaluation, facts)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "report.json", json.dumps(values, indent=1, allow_nan=False) + "\n")
    write_text(folder / "report.html", html_page(evaluation, facts))


def check_folder(folder: Path) -> None:
    """Refuse a path that cannot hold a report, before any work is done for it."""
    if folder.exists() and not folder.is_dir():
        raise SoundspotError(f"the report needs a folder, but {folder} is a file")


FORMAT = 1


def json_values(evaluation: Evaluation, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of all benchmarks, the details of each, and the facts of the run."""
    return {
        "format": FORMAT,
        "units": "fractions",
        "provenance": facts,
        # The measures of duets stand beside the others.
        "rows": [
            {key: value for key, value in asdict(row).items() if key != "listening"}
            | dict(row.listening)
            for result in evaluation.results
            for row in result.rows
        ],
        "benchmarks": [_details(result) for result in evaluation.results],
    }


def run_facts(evaluation: Evaluation, command: str = "") -> dict[str, Any]:
    """What anyone needs to get the same numbers again; `command` is what they type."""
    sets = {r.pairs.root: r.pairs for r in evaluation.results if r.pairs is not None}
    data = "; ".join(f"{root}, {pairs.fingerprint()[:16]}" for root, pairs in sets.items())
    return {
        "command": command,
        "version": __version__,
        "commit": git_commit(),
        "numpy": np.__version__,
        "data (folder, fingerprint)": data or "none",
        "annotations": str(evaluation.annotations or "none"),
        "protocols": {name: protocol.rule for name, protocol in PROTOCOLS.items()},
        "evaluation": f"maps resized to {SIZE} x {SIZE} by the protocol, stretched to 0..1",
        "cIoU threshold": 0.5,
        "AUC thresholds": "0, 0.05, ..., 1",
        "intervals": "95 %, percentile bootstrap over pairs (duets: over pictures)",
        "models": [
            {
                "name": model.name,
                "trained": model.card.trained,
                "epoch": model.card.epoch,
                "config": model.card.config,
                "features": to_dict(model.card.features),
                "provenance": model.card.provenance,
            }
            for model in evaluation.models
        ],
    }


def _details(result: Result) -> dict[str, Any]:
    return {
        "name": result.benchmark.name,
        "description": result.benchmark.description,
        "expected": result.benchmark.count,
        "evaluated": result.evaluated,
        "lost": result.lost,
        "missing": dict(result.missing),
        "flaws": asdict(result.flaws),
        "success_curves": {
            "protocol": MAIN,
            "thresholds": THRESHOLDS.tolist(),
            "curves": {c.name: success_curve(c.scores[MAIN]).tolist() for c in result.contenders},
        },
        "paired_tests": [asdict(comparison) for comparison in result.comparisons],
        "no_visible_source": [
            # The scores are called "found" in reports of this format.
            {"found" if key == "scores" else key: value for key, value in asdict(detection).items()}
            for detection in result.source_detections
        ],
        "verdicts": [asdict(verdict) for verdict in result.verdicts],
        "unseen_sounds": [asdict(measured) for measured in result.unseen],
        "tables_in_percent": [asdict(table) for table in detail_tables(result)],
        "pairs": {
            "ids": [scene.id for scene in result.scenes],
            "ciou": {
                contender.name: contender.scores[MAIN].round(4).tolist()
                for contender in result.contenders
                if contender.kind != "trivial"
            },
        },
    }
