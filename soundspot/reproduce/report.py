"""A reproduced table on the screen and on disk."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.reproduce.drawing import draw
from soundspot.reproduce.table import Plan, as_table, reproduce


def run(plan: Plan, out: Path, say: Callable[[str], None]) -> None:
    """Reproduce a table, print it, and keep it as JSON and Markdown with its figure.

    Args:
        plan: What to reproduce.
        out: Folder for the files.
        say: Told what happens, a line at a time.
    """
    if out.exists() and not out.is_dir():
        raise SoundspotError(f"the tables go into a folder, but {out} is a file")
    found = reproduce(plan, say)
    out.mkdir(parents=True, exist_ok=True)
    table = as_table(found)
    place = out / f"{plan.name}.json"
    write_text(place, json.dumps(found, indent=1, allow_nan=False) + "\n")
    write_text(out / f"{plan.name}.md", table.markdown())
    picture = draw(found, plan, out)
    Console(file=sys.stdout).print(table.rich())
    say(f"kept: {place}" + (f", {picture}" if picture else ""))
