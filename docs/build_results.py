"""Write docs/results.md from the committed results, so that no number in a table is typed by hand.

    python docs/build_results.py

Tables: results/reproduce/*.json, written by `soundspot reproduce TABLE -o results/reproduce`.
The center prior: results/center_prior.json, the rows of `soundspot evaluate --trivial`.
Commentary: docs/readings.yaml, one paragraph per table.
"""

import json
from pathlib import Path

import yaml

from soundspot.common.files import write_text
from soundspot.reproduce.experiments import PAPER_TESTS, find_table
from soundspot.reproduce.figures import SIZES, draw_curves
from soundspot.reproduce.results import COLUMNS, not_run, read_results

ROOT = Path(__file__).parents[1]
ORDER = (
    *("main", "reproductions", "false-negatives", "strategy", "augmentations", "scaling", "fusion"),
    *("cycles", "iterations", "steps", "ingredients", "success"),
)
ONCE = "95 % interval"  # a column that the head of the page describes for all tables
HEAD = """# Results on ESC-VOC

ESC-VOC pairs photographs with recorded sounds in eleven classes. It is not the paper's data, and
YAMNet replaces VGGish, so only rankings can be compared with the paper's. cIoU and AUC are
fractions under the protocol `sspl` on all {pairs} test pairs; every step was chosen on the val
split. "Duets" is the share of sounds, in pictures of two objects, whose peak is on the side of the
sounding object: a method with a high share listens. A number is the mean over the seeds ± their
standard deviation. The 95 % interval over test pairs is at most ±{interval} of a cIoU here, so
smaller differences may be chance.
"""


def build(results, readings):
    """The whole page."""
    words = yaml.safe_load(readings.read_text(encoding="utf-8"))
    tables = {name: read_results(results / f"{name}.json") for name in ORDER}
    main = tables["main"]
    intervals = [line.ciou_interval for table in tables.values() for line in table.lines]
    widest = max(interval.high - interval.low for interval in intervals) / 2
    parts = [
        HEAD.format(pairs=main.pairs, interval=f"{widest:.2f}"),
        f"## The paper's claims, here\n\n{words['claims']}",
        f"## What is undecided\n\n{words['undecided']}",
        f"## What needs no model\n\n{_rows(main.trivial)}\n{words['trivial']}",
        *(_section(name, table, words) for name, table in tables.items()),
        _center_prior(results.parent / "center_prior.json", words["center-prior"]),
        _commands(tables.values()),
    ]
    return "\n".join(parts)


def _section(name, results, words):
    """A table, its figure and what to read in it."""
    lines = results.lines
    if name == "main":
        lines = sorted(lines, key=lambda line: -line.ciou.mean)
        table = _rows(lines, [x.label + " °" * (x.label in words["ours"]) for x in lines])
    else:
        table = _rows(lines)
    figure = f"\n![{results.title}](figures/{name}.svg)\n" if results.figure in SIZES else ""
    missing = f"\n{not_run(results)}\n" if results.not_run else ""
    return f"## {results.title}\n\n`{name}`. {words[name]}\n{table}{missing}{figure}"


def _rows(lines, labels=None):
    """Lines as a Markdown table, with the columns in which any of them has a value."""
    cells = {name: [cell(line) for line in lines] for name, cell in COLUMNS.items() if name != ONCE}
    shown = {name: column for name, column in cells.items() if any(column)}
    header = ["", *shown]
    table = [f"| {' | '.join(header)} |", "|---" + "|---:" * len(shown) + "|"]
    rows = zip(labels or [line.label for line in lines], *shown.values(), strict=True)
    table += [f"| {' | '.join(cell or '–' for cell in row)} |" for row in rows]
    return "\n".join(table) + "\n"


def _center_prior(path, reading):
    """The centered disc on the paper's benchmarks beside the paper's SSPL."""
    content = json.loads(path.read_text(encoding="utf-8"))
    lines = [line for line in find_table("main").lines if line.label.startswith("SSPL (")]
    table = ["|  | cIoU | AUC |", "|---|---:|---:|"]
    for row in content["rows"]:
        if row["model"] != "centered disc" or row["protocol"] != "sspl":
            continue
        test = PAPER_TESTS[row["benchmark"]]
        low, high = row["ciou_low"], row["ciou_high"]
        name = f"{row['benchmark']}: centered disc, our measurement"
        table.append(f"| {name} | {row['ciou']:.3f} ({low:.3f}–{high:.3f}) | {row['auc']:.3f} |")
        for line in lines:
            for key, (ciou, auc) in line.published.items():
                training, tested = key.split("/")
                if tested == test:
                    name = f"{row['benchmark']}: {line.label}, published, trained on {training}"
                    table.append(f"| {name} | {ciou:.3f} | {auc:.3f} |")
    how = content["provenance"]
    made = f"`{how['command']}` (commit {how['commit']})"
    rows = "\n".join(table)
    return f"## The center prior of the paper's benchmarks\n\n{reading}\n{rows}\n\n{made}\n"


def _commands(tables):
    """How every table was made."""
    made = {}
    for table in tables:
        command = table.command.partition(" -o ")[0].replace(f" {table.table} ", " TABLE ")
        made.setdefault((command, table.commit), []).append(f"`{table.table}`")
    rows = [f"- {', '.join(names)}: `{how}` (commit {at})" for (how, at), names in made.items()]
    listed = "\n".join(rows)
    data = next(iter(tables)).data_fingerprint
    return (
        "## How to make it again\n\nFrom the records of all runs, which are in the repository, "
        f"without any data set; without `--no-training`, from ESC-VOC {data}.\n\n{listed}\n\n"
        "This page is written by `python docs/build_results.py`, its words are in "
        "docs/readings.yaml.\n"
    )


def main():
    """Draw the figures and write the page."""
    results = ROOT / "results" / "reproduce"
    (ROOT / "docs" / "figures").mkdir(exist_ok=True)
    for name in ORDER:
        draw_curves(read_results(results / f"{name}.json"), ROOT / "docs/figures" / f"{name}.svg")
    write_text(ROOT / "docs" / "results.md", build(results, ROOT / "docs" / "readings.yaml"))


if __name__ == "__main__":
    main()
