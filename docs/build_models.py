"""Write the model cards in soundspot/pretrained from measured results; no number is typed by hand.

    python docs/build_models.py

Numbers: results/models_escvoc.json, the report.json of `soundspot evaluate` on all shipped models;
results/models_other_seeds.json, its rows for runs with other seeds; the JSON beside each
checkpoint. Prose: docs/models.yaml.
"""

import json
from pathlib import Path

import yaml

from soundspot.common.config import from_dict
from soundspot.common.files import write_text
from soundspot.evaluation.report.tables import percent
from soundspot.features.spec import FeatureSpec
from soundspot.inference.maps import FINER

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "soundspot" / "pretrained"
RESULTS = ROOT / "results" / "models_escvoc.json"
SEEDS = ROOT / "results" / "models_other_seeds.json"
WORDS = ROOT / "docs" / "models.yaml"


def card(name, report, words):
    """The card of one model as Markdown."""
    about = json.loads((MODELS / f"{name}.json").read_text())
    own = words["models"][name]
    measured = own.get("row", name)  # the name in the report, if it had another one then
    rows = {r["benchmark"]: r for r in report["rows"] if r["model"] == measured and _main(r)}
    disc = next(row for row in report["rows"] if row["model"] == "centered disc" and _main(row))
    test, duets = rows["escvoc"], rows["escvoc-duets"]
    made = about["provenance"]
    size = (MODELS / f"{name}.safetensors").stat().st_size / 1e6
    val = {key.removeprefix("val_"): value for key, value in about["metrics"].items()}
    parts = [
        f"# {name}",
        f"Version {about['version']} of {about['date']}. " + own["summary"].strip(),
        "## Numbers",
        "| ESC-VOC | cIoU | 95 % interval | AUC | duets, peak on the sounding side |",
        "|---|---:|---:|---:|---:|",
        f"| test | {test['ciou']:.3f} | {test['ciou_low']:.3f}–{test['ciou_high']:.3f} "
        f"| {test['auc']:.3f} | {_duets(duets)} |",
        f"| {_val_name(about)} | {val['ciou']:.3f} | | {val['auc']:.3f} "
        f"| {percent(val['duets'])} % |",
        f"| test, centered disc | {disc['ciou']:.3f} | {disc['ciou_low']:.3f}–"
        f"{disc['ciou_high']:.3f} | {disc['auc']:.3f} | – |",
        "",
        f"Protocol `sspl`, {test['n']} pairs and {duets['n'] // 2} duets. "
        f"`{report['provenance']['command']}`, commit {report['provenance']['commit']}. "
        + own.get("measured", "")
        + _other_seeds(own),
        "",
        _classes(measured, report),
        "",
        _absence(measured, report, about),
        "## How it was made",
        f"- Recipe: `{own['recipe']}`, seed {made['seed']}, {_when(about)}, commit "
        f"{_commit(made)}, data {made['data_fingerprint']}, encoders {made['encoder_weights']}.",
        f"- Command: `soundspot train {own['recipe']} train.seed={made['seed']}`.",
        f"- {size:.1f} MB of heads in half precision; the encoders come from the weight cache.",
        *(f"- {line}" for line in words["data"]),
        "## Limits",
        *(f"- {line}" for line in [*own["limits"], *_shared_limits(about, words)]),
        "## License",
        words["license"].strip(),
    ]
    text = "\n".join(parts)
    for heading in ("## Numbers", "## How it was made", "## Limits", "## License"):
        text = text.replace(f"\n{heading}\n", f"\n\n{heading}\n\n")
    return text + "\n"


def _shared_limits(about, words):
    """The limits of all models, with the cells of this one's map."""
    finer = FINER if (about.get("zoom") or about.get("second_look")) else 1
    grid = from_dict(FeatureSpec, about["features"], "features").grid * finer
    return [line.replace("GRID", f"{grid} x {grid}") for line in words["limits"]]


def _other_seeds(own):
    """Scores of the same recipe with other seeds, if measured."""
    runs = own.get("other_seeds", [])
    if not runs:
        return "One seed."
    rows = json.loads(SEEDS.read_text())["rows"]
    shown = []
    for run in runs:
        mine = {row["benchmark"]: row for row in rows if row["model"] == run and _main(row)}
        test, duets = mine["escvoc"], mine["escvoc-duets"]
        shown.append(
            f"{test['ciou']:.3f} / {test['auc']:.3f} / {percent(duets['peak_side'])} % "
            f"(seed {Path(run).stem[-1]})"
        )
    return f"The same recipe with other seeds: {', '.join(shown)}."


def _when(about):
    return f"step {about['step']}" if about.get("step") else f"epoch {about['epoch']}"


def _val_name(about):
    """Zooming in, like other changes of the finished maps, is no part of training."""
    return "val (chose the step)" + (
        ", without zooming in" if (about.get("zoom") or about.get("second_look")) else ""
    )


def _commit(made):
    """The commit that trained, in words if it had changes."""
    clean = made["commit"].removesuffix("-dirty")
    return clean if clean == made["commit"] else f"{clean} with changes that were not committed"


def _main(row):
    return row["protocol"] == "sspl"


def _duets(row):
    low, high = percent(row["peak_side_low"]), percent(row["peak_side_high"])
    return f"{percent(row['peak_side'])} % ({low}–{high})"


def _classes(name, report):
    """The classes from worst to best."""
    table = next(
        table
        for table in report["benchmarks"][0]["tables_in_percent"]
        if table["title"].lower().startswith("by class")
    )
    column = table["header"].index(name)
    rows = sorted(table["rows"], key=lambda row: float(row[column].split(" / ")[0]))
    shown = ", ".join(f"{row[0]} {row[column].split(' / ')[0]} ({row[1]})" for row in rows)
    worst = " and ".join(row[0] for row in rows[:2])
    return f"cIoU in % by class (number of pairs), worst first ({worst} fail most often): {shown}."


def _absence(name, report, about):
    row = next(
        row
        for row in report["benchmarks"][0]["no_visible_source"]
        if row["model"] == name and row["negatives"] == "all negatives"
    )
    return (
        f'"No visible source" is reported if the peak cosine is below '
        f"{about['calibration']['threshold']:.2f} (chosen on val). On test, with as many synthetic "
        f"negatives, F1 is {row['f1']:.2f} and average precision {row['found']['ap']:.2f}: a hint, "
        "not proof."
    )


def read_words():
    """The prose of the cards."""
    return yaml.safe_load(WORDS.read_text(encoding="utf-8"))


def main():
    """Write every card."""
    report, words = json.loads(RESULTS.read_text()), read_words()
    for name in words["models"]:
        write_text(MODELS / f"{name}.md", card(name, report, words))


if __name__ == "__main__":
    main()
