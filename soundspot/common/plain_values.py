"""YAML and JSON as plain values of a bounded size; `ValueError` if anything is wrong with them."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

LARGEST = 2**28  # bytes of a file
DEEPEST = 32  # levels of nesting
MOST_SETTINGS = 100_000  # values of a YAML file, counted with all that its aliases stand for


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """The bytes of a file that is not too large to be what it should be."""
    with path.open("rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"it is larger than {largest / 2**20:.0f} MB")
    return data


def parse_yaml(text: str) -> Any:
    """The values of a YAML text."""
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(_reason(error)) from error
    _check_nesting(content, MOST_SETTINGS)
    return content


def parse_json(data: str | bytes) -> Any:
    """The values of a JSON text; they need no counting, since nothing in it stands for more."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(_reason(error)) from error
    _check_nesting(content)
    return content


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _check_nesting(content: Any, most: int | None = None) -> None:
    level, count = [content], 0
    for _ in range(DEEPEST):
        left = None if most is None else most - count + 1
        level = list(itertools.islice(_inner(level), left))
        count += len(level)
        if most is not None and count > most:
            raise ValueError(f"it has more than {most:,} values")
        if not level:
            return
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")


def _inner(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value
