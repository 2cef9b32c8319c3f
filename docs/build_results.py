"""Write docs/results.md from the results that are committed, so that no number in it is typed.

    python docs/build_results.py

Tables: results/reproduce/*.json, kept by `soundspot reproduce TABLE -o results/reproduce`. What
they say in words: docs/readings.yaml, one paragraph a table.
"""

from pathlib import Path

import yaml

from soundspot.common.files import write_text
from soundspot.reproduce.drawing import curves
from soundspot.reproduce.table import as_table, read

ROOT = Path(__file__).parents[1]
ORDER = (
    "main",
    "reproductions",
    "strategy",
    "augmentations",
    "scaling",
    "fusion",
    "cycles",
    "success",
    "iterations",
    "false-negatives",
)
HEAD = """# Results on ESC-VOC

This page is made by `python docs/build_results.py` from the JSON files in results/reproduce and
the readings in docs/readings.yaml; no number in a table is typed. ESC-VOC is not the paper's data,
and YAMNet stands in for VGGish, so the paper's numbers do not stand beside ours: what can be
compared is who wins. cIoU and AUC are fractions, protocol `sspl`, on the test split; every epoch
was chosen on the val split. "Duets" is the share of sounds whose peak lies on the side of the thing
that sounds, in pictures of two things.
"""


def build(results: Path, readings: Path) -> str:
    """The whole page."""
    words = yaml.safe_load(readings.read_text(encoding="utf-8"))
    parts = [HEAD]
    for name in ORDER:
        path = results / f"{name}.json"
        if path.exists():
            parts.append(_section(name, read(path), words[name]))
    missing = [name for name in ORDER if not (results / f"{name}.json").exists()]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        parts.append(f"## Not run here\n\n{names}. {words['missing'].strip()}\n")
    return "\n".join(parts)


def _section(name, found, reading):
    table = as_table(found).markdown().replace("### ", "## ", 1)
    figure = f"\n![{found['title']}](figures/{name}.svg)\n" if _drawn(found) else ""
    epochs = sorted({seed["of"] for line in found["lines"] for seed in line["seeds"]})
    how = (
        f"Command: `{found['command']}` (commit {found['commit']}, data "
        f"{found['data_fingerprint']}, {' or '.join(map(str, epochs))} epochs)."
    )
    return f"{table}{figure}\n{reading.strip()}\n\n{how}\n"


def _drawn(found):
    return found["figure"] in ("success", "iterations")


def main():
    """Draw the figures and write the page."""
    results = ROOT / "results" / "reproduce"
    (ROOT / "docs" / "figures").mkdir(exist_ok=True)
    for name in ORDER:
        path = results / f"{name}.json"
        if path.exists() and _drawn(found := read(path)):
            curves(found, ROOT / "docs" / "figures" / f"{name}.svg")
    write_text(ROOT / "docs" / "results.md", build(results, ROOT / "docs" / "readings.yaml"))


if __name__ == "__main__":
    main()
