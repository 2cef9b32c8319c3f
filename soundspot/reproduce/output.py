"""Print a reproduced table and write it to disk."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.reproduce.drawing import draw_figure
from soundspot.reproduce.results import ReproductionPlan, as_table, reproduce_table


def write_table(plan: ReproductionPlan, out: Path, say: Callable[[str], None]) -> None:
    """Reproduce a table, print it, and write it as JSON and Markdown with its figure.

    Args:
        plan: What to reproduce.
        out: Folder for the files.
        say: Receives progress messages.
    """
    if out.exists() and not out.is_dir():
        raise SoundspotError(f"expected a folder for the tables, but {out} is a file")
    results = reproduce_table(plan, say)
    out.mkdir(parents=True, exist_ok=True)
    table = as_table(results)
    place = out / f"{plan.name}.json"
    write_text(place, json.dumps(results, indent=1, allow_nan=False) + "\n")
    write_text(out / f"{plan.name}.md", table.markdown())
    picture = draw_figure(results, plan, out)
    Console(file=sys.stdout).print(table.rich())
    say(f"written: {place}" + (f", {picture}" if picture else ""))
