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
NEVER = ("95 % interval", "ms")  # the head of the page has the one, other work slowed the other
IN_MAIN_ALONE = ("AUC",)
BUDGET = ("steps", "seeds")  # columns that are left out where all lines agree
HEAD = """ESC-VOC pairs photographs with recorded sounds in eleven classes. It is not the paper's
data, and YAMNet replaces VGGish, so only rankings can be compared with the paper's. cIoU and AUC
are fractions under the protocol `sspl` on all {pairs} test pairs; every step was chosen on the val
split. "Duets" is the share of sounds, in pictures of two objects, whose peak is on the side of the
sounding object: a method with a high share listens. A number is the mean over the seeds ± their
standard deviation. The 95 % interval over test pairs is at most ±{interval} of a cIoU here, so
smaller differences may be chance. What is left out of a table is in results/reproduce.
"""


def build(results, readings):
    """The whole page."""
    words = yaml.safe_load(readings.read_text(encoding="utf-8"))
    tables = {name: read_results(results / f"{name}.json") for name in ORDER}
    main = tables["main"]
    intervals = [line.ciou_interval for table in tables.values() for line in table.lines]
    widest = max(interval.high - interval.low for interval in intervals) / 2
    prior = json.loads((results.parent / "center_prior.json").read_text(encoding="utf-8"))
    parts = [
        f"# Results on ESC-VOC\n\n## The paper's claims, here\n\n{words['claims']}",
        f"Three claims are undecided; this would decide them:\n\n{words['undecided']}",
        f"## How to read the tables\n\n{HEAD.format(pairs=main.pairs, interval=f'{widest:.2f}')}",
        f"## What needs no model\n\n{_rows(main.trivial)}\n{words['trivial']}",
        *(_section(name, table, words, main) for name, table in tables.items()),
        _center_prior(prior["rows"], words["center-prior"]),
        f"## Systems that cannot run here\n\n{words['published']}",
        _commands(tables.values(), prior["provenance"]),
    ]
    return "\n".join(parts)


def _section(name, results, words, main):
    """A table, its figure and what to read in it."""
    lines, labels, without = results.lines, None, IN_MAIN_ALONE
    if results is main:
        lines, without = sorted(lines, key=lambda line: -line.ciou.mean), ()
        marks = {label: mark for mark in ("°", "†") for label in words[mark]}
        labels = [f"{line.label} {marks.get(line.label, '')}".strip() for line in lines]
    elif {line.label for line in lines} <= {line.label for line in main.lines}:
        lines = ()  # all were there
    figure = f"\n![{results.title}](figures/{name}.svg)\n" if results.figure in SIZES else ""
    missing = f"\n{not_run(results)}\n" if results.not_run else ""
    table = "\n" + _rows(lines, labels, without) if lines else ""
    return f"## {results.title}\n\n`{name}`{_alike(lines)}. {words[name]}{table}{missing}{figure}"


def _alike(lines):
    """The budget, if all lines have the same."""
    told = []
    for name in BUDGET:
        values = {COLUMNS[name](line) for line in lines}
        if len(values) == 1 and None not in values:
            (value,) = values
            told.append(f"{value} {name.removesuffix('s') if value == '1' else name}")
    return f", {', '.join(told)}" if told else ""


def _rows(lines, labels=None, without=()):
    """Lines as a Markdown table, with the columns in which any of them has a value."""
    wanted = {name: cell for name, cell in COLUMNS.items() if name not in (*NEVER, *without)}
    cells = {name: [cell(line) for line in lines] for name, cell in wanted.items()}
    shown = {
        name: column
        for name, column in cells.items()
        if any(column) and not (name in BUDGET and len(set(column)) == 1)
    }
    header = ["", *shown]
    table = [f"| {' | '.join(header)} |", "|---" + "|---:" * len(shown) + "|"]
    rows = zip(labels or [line.label for line in lines], *shown.values(), strict=True)
    table += [f"| {' | '.join(cell or '–' for cell in row)} |" for row in rows]
    return "\n".join(table) + "\n"


def _center_prior(rows, reading):
    """The centered disc on the paper's benchmarks beside the paper's SSPL."""
    discs = [r for r in rows if (r["model"], r["protocol"]) == ("centered disc", "sspl")]
    names = [row["benchmark"] for row in discs]
    table = [f"| cIoU / AUC | {' | '.join(names)} |", "|---" + "|---:" * len(names) + "|"]
    cells = [
        f"{row['ciou']:.3f} ({row['ciou_low']:.3f}–{row['ciou_high']:.3f}) / {row['auc']:.3f}"
        for row in discs
    ]
    table.append(f"| centered disc, our measurement | {' | '.join(cells)} |")
    for line in find_table("main").lines:
        if line.label.startswith("SSPL ("):
            for training in dict.fromkeys(key.split("/")[0] for key in line.published):
                keys = [f"{training}/{PAPER_TESTS[name]}" for name in names]
                found = [line.published.get(key) for key in keys]
                cells = ["–" if pair is None else "{:.3f} / {:.3f}".format(*pair) for pair in found]
                table.append(f"| {line.label}, published, {training} | {' | '.join(cells)} |")
    shown = "\n".join(table)
    return f"## The center prior of the paper's benchmarks\n\n{reading}\n{shown}\n"


def _commands(tables, prior):
    """How every table was made."""
    made = {}
    for table in tables:
        command = table.command.partition(" -o ")[0].replace(f" {table.table} ", " TABLE ")
        made.setdefault((command, table.commit), []).append(f"`{table.table}`")
    rows = [f"- {', '.join(names)}: `{how}` (commit {at})" for (how, at), names in made.items()]
    rows.append(f"- The center prior: `{prior['command']}` (commit {prior['commit']})")
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
