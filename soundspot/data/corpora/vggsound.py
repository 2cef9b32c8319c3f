"""VGG-Sound -> a pair set: the middle frame of each 10 s clip and the 3 s around it.

An id is <YouTube id>_<start second, six digits>. The usual variants of file names are recognized:

    -_gaZzFfzDQ_000517.mp4      as in VGG-Sound itself
    -_gaZzFfzDQ_517.mp4         without the zeros
    -_gaZzFfzDQ_517_527.mp4     start and end in seconds
    -_gaZzFfzDQ_517000_527000.mp4    start and end in milliseconds

as are frames and sounds with such names, flat or in folders.
"""

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from soundspot.common.errors import SoundspotError
from soundspot.data.corpus_files import find_items, hold_out
from soundspot.data.options import HERE_SPLIT, SplitOptions, digest_of
from soundspot.data.preparation import MIDDLE, PreparePlan, run_plan
from soundspot.data.writer import Summary

EXAMPLE = "-_gaZzFfzDQ_000517.mp4"
SECOND = r"(\d+)(?:\.0+)?"
NAME = re.compile(rf"([A-Za-z0-9_-]{{11}})[_-]{SECOND}(?:[_-]{SECOND})?")


def parse(name: str) -> str | None:
    """The id in a name without its suffix."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    start, end = int(match[2]), int(match[3] or 0)
    if end - start >= 1000:  # no clip is that many seconds long
        if start % 1000:
            return None
        start //= 1000
    return f"{match[1]}_{start:06d}" if start < 10**6 else None


def prepare(
    source: Path, out: Path, options: SplitOptions = HERE_SPLIT, labels: Path | None = None
) -> Summary:
    """Turn VGG-Sound, or the part of it that you have, into a pair set.

    `labels` is VGG-Sound's own vggsound.csv, for classes and its test split.
    """
    items, notes = find_items(source, out, parse, EXAMPLE, options)
    rules: dict[str, Any] = {"corpus": "vggsound", **MIDDLE}
    if labels is not None:
        known = read_labels(labels)
        rules["labels"] = digest_of(repr(sorted(known.items())))
        for number, item in enumerate(items):
            cls, split = known.get(item.id, (None, ""))
            items[number] = replace(item, cls=cls, split="test" if split == "test" else item.split)
    items, held = hold_out(items)
    rules |= options.rules() | held
    return run_plan(PreparePlan("vggsound", source, rules, items, notes), out, options)


def read_labels(path: Path) -> dict[str, tuple[str, str]]:
    """Read vggsound.csv (YouTube id, start second, class, split): class and split of each id."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SoundspotError(f"{path} is not a readable csv of labels ({error})") from error
    for row in rows:
        if len(row) != 4 or not row[1].isdigit() or row[3] not in ("train", "test"):
            raise SoundspotError(f"{path} is not vggsound.csv: it has the row {','.join(row)!r}")
    return {f"{id}_{int(start):06d}": (cls, split) for id, start, cls, split in rows}
