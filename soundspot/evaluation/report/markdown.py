"""The report as Markdown."""

from collections.abc import Mapping
from typing import Any

from soundspot.evaluation.report.tables import detail_tables, headline_tables
from soundspot.evaluation.runner import Evaluation


def markdown_page(evaluation: Evaluation, facts: Mapping[str, Any]) -> str:
    """All tables, then how the evaluation was made."""
    parts = ["# Where does the sound come from?\n"]
    for result in evaluation.results:
        parts.append(f"## {result.benchmark.name}\n\n{result.benchmark.description}.\n")
        parts += [table.markdown() for table in headline_tables(result) + detail_tables(result)]
    lines = [f"- {key}: {value}" for key, value in facts.items() if not isinstance(value, list)]
    parts.append("## How it was made\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)
