"""The log of a run: one line of JSON per validation."""

from pathlib import Path
from typing import Any

from soundspot.common.config import parse_json, read_bytes
from soundspot.common.errors import SoundspotError

LOG = "log.jsonl"


def read_log(run: Path, count: int | None = None) -> list[dict[str, Any]]:
    """The lines of a run's log; only the first `count`, which must all be there, if given."""
    path = run / LOG
    try:
        rows = read_bytes(path).decode().splitlines() if path.exists() else []
        lines = [parse_json(row) for row in rows[:count]]
        if not all(isinstance(line, dict) and "epoch" in line for line in lines):
            raise ValueError("a line is not that of a validation")
        if len(lines) < (count or 0):
            raise ValueError(f"it has {len(lines)} lines, but there were {count} validations")
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} is damaged ({error}); delete {run} to start again") from error
    return lines
