"""Shards of a long job, and the journal beside each that lets a later run keep it.

A journal (.shard-000000.jsonl) starts with a digest of the shard's inputs and the size of its data
file; one line of JSON per item follows. As long as the first line matches, the shard is complete
and need not be made again.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from soundspot.common.files import write_text
from soundspot.common.plain_values import parse_json

T = TypeVar("T")


@dataclass(frozen=True)
class ShardJournal:
    """The journal (`path`) of one shard (`data`); `inputs` names and digests what it is made of."""

    path: Path
    data: Path
    inputs: tuple[str, str]

    def fits(self) -> bool:
        """Whether the shard is complete and made of these inputs, and the journal can be read."""
        try:
            with self.path.open(encoding="utf-8") as lines:
                head, *_ = map(parse_json, lines)
                return bool(head == self._head())
        except (OSError, ValueError):
            return False

    def lines(self) -> Iterator[str]:
        """One line of JSON per item."""
        with self.path.open(encoding="utf-8") as lines:
            yield from islice(lines, 1, None)

    def discard(self) -> None:
        """Declare the shard incomplete: to be called before its data file changes."""
        self.path.unlink(missing_ok=True)

    def write(self, rows: Iterable[Any]) -> None:
        """Declare the shard complete: to be called when its data file is."""
        # ASCII: a file name that is not valid UTF-8 survives as an escape.
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in (self._head(), *rows)))

    def _head(self) -> dict[str, Any]:
        name, digest = self.inputs
        return {name: digest, "size": self.data.stat().st_size}


def split_into_blocks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """The items of each shard."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def surplus_shards(paths: Iterable[Path], count: int) -> Iterator[Path]:
    """Of paths that end in a shard number, those that a run over more items left behind."""
    return (path for path in paths if int(path.stem.rpartition("-")[2]) >= count)
