"""Reports of an evaluation: report.json for programs, report.html for people.

The JSON holds fractions, the page and the terminal percentages.
"""

import json
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.common.progress import result_console
from soundspot.evaluation.report.html import html_page
from soundspot.evaluation.report.json_file import json_values, run_facts
from soundspot.evaluation.report.tables import headline_tables
from soundspot.evaluation.runner import Evaluation


def show(evaluation: Evaluation) -> None:
    """Print the main tables to standard output."""
    console = result_console()
    for result in evaluation.results:
        for table in headline_tables(result):
            console.print(table.rich())


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
