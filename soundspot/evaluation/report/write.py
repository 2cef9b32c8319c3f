"""What an evaluation leaves behind: report.json for programs, report.md and report.html for people.

The JSON holds fractions, the others %.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from soundspot import __version__
from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.evaluation.metrics import SIZE, THRESHOLDS, auc, ciou_at, success_curve
from soundspot.evaluation.protocols import PROTOCOLS
from soundspot.evaluation.report.page import page
from soundspot.evaluation.report.tables import detail_tables, headline_tables
from soundspot.evaluation.rows import MAIN, Row
from soundspot.evaluation.runner import Evaluation, Result
from soundspot.training.provenance import git_commit

FORMAT = 1


def show(evaluation: Evaluation) -> None:
    """Print the main tables to standard output."""
    console = Console(file=sys.stdout)
    for result in evaluation.results:
        for table in headline_tables(result):
            console.print(table.rich())


def write(evaluation: Evaluation, folder: Path) -> None:
    """Write the three reports; each appears whole or not at all."""
    check_folder(folder)
    facts = provenance(evaluation)
    found = {"format": FORMAT, "units": "fractions", "provenance": facts, **summary(evaluation)}
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "report.json", json.dumps(found, indent=1, allow_nan=False) + "\n")
    write_text(folder / "report.md", markdown(evaluation, facts))
    write_text(folder / "report.html", page(evaluation, facts))


def check_folder(folder: Path) -> None:
    """Refuse a place that no report can be written to, before any work is done for it."""
    if folder.exists() and not folder.is_dir():
        raise SoundspotError(f"the report is a folder, but {folder} is a file")


def provenance(evaluation: Evaluation) -> dict[str, Any]:
    """What anyone needs to get the same numbers again."""
    request = evaluation.request
    sets = {r.pairs.root: r.pairs for r in evaluation.results if r.pairs is not None}
    data = "; ".join(f"{root}, {pairs.fingerprint()[:16]}" for root, pairs in sets.items())
    return {
        "command": " ".join(["soundspot", *sys.argv[1:]]),
        "version": __version__,
        "commit": git_commit(),
        "numpy": np.__version__,
        "data (folder, fingerprint)": data or "none",
        "annotations": str(request.annotations) if request.annotations else "none",
        "protocols": {name: protocol.rule for name, protocol in PROTOCOLS.items()},
        "evaluation": f"maps resized bilinearly to {SIZE} x {SIZE}, stretched to 0..1",
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


def summary(evaluation: Evaluation) -> dict[str, Any]:
    """The rows of all benchmarks, and the details of each."""
    rows = [flat(row) for result in evaluation.results for row in result.rows]
    return {"rows": rows, "benchmarks": [_details(result) for result in evaluation.results]}


def flat(row: Row) -> dict[str, Any]:
    """A row with its duet measures beside the others."""
    values = asdict(row)
    listening: dict[str, float] = values.pop("listening")
    return values | listening


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
        "pcm_passes": {
            one.name: [
                {"t": t, "ciou": ciou_at(scores), "auc": auc(scores)}
                for t, scores in enumerate(one.cycle_scores, start=1)
            ]
            for one in result.contenders
            if one.cycle_scores
        },
        "paired_tests": [asdict(one) for one in result.comparisons],
        "no_visible_source": [
            {
                "model": detection.model,
                "negatives": detection.negatives,
                "found": asdict(detection.scores),  # the key that old reports have
                "calibrated": detection.calibrated,
                "f1": detection.f1,
            }
            for detection in result.source_detections
        ],
        "tables_in_percent": [asdict(table) for table in detail_tables(result)],
        "pairs": {
            "ids": [scene.item.id for scene in result.scenes],
            "ciou": {
                one.name: one.scores[MAIN].round(4).tolist()
                for one in result.contenders
                if one.kind != "trivial"
            },
        },
    }


def markdown(evaluation: Evaluation, facts: dict[str, Any]) -> str:
    """The tables as Markdown."""
    parts = ["# Where does the sound come from?\n"]
    for result in evaluation.results:
        parts.append(f"## {result.benchmark.name}\n\n{result.benchmark.description}.\n")
        parts += [table.markdown() for table in headline_tables(result) + detail_tables(result)]
    lines = [f"- {key}: {value}" for key, value in facts.items() if not isinstance(value, list)]
    parts.append("## How it was made\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)
