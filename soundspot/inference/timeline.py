"""What sounds from when to when, and where: as subtitles, markers for editors, or JSON."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from soundspot.common.files import write_text
from soundspot.inference.outputs import TIMELINES, check_file
from soundspot.inference.result import Localization

BESIDE = 12  # % of the frame that a line of text needs below or above a box
THIRDS = 34, 66  # % of the frame: text begins or ends at what is farther left or right

COLUMNS = "start", "end", "sound", "score", "visible", "probability", "x1", "y1", "x2", "y2"


def write_timeline(path: str | Path, found: Sequence[Localization]) -> None:
    """Write results that have a span as .srt, .vtt, .csv or .json."""
    check_file(Path(path), endings=TIMELINES)
    write_text(Path(path), WRITERS[Path(path).suffix.lower()](found))


def _srt(found: Sequence[Localization]) -> str:
    cues = (f"{number}\n{_times(one, ',')}\n{one.caption}\n" for number, one in enumerate(found, 1))
    return "\n".join(cues)


def _vtt(found: Sequence[Localization]) -> str:
    cues = (f"{_times(one, '.')}{_beside(one)}\n{one.caption}\n" for one in found)
    return "\n".join(("WEBVTT\n", *cues))


def _times(one: Localization, point: str) -> str:
    return " --> ".join(_clock(seconds, point) for seconds in one.span or (0.0, 0.0))


def _clock(seconds: float, point: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{thousandths:03}"


def _beside(one: Localization) -> str:
    """Where a cue stands: below the box or, where there is no room, above it or inside."""
    if one.box is None or one.size is None:
        return ""
    height, width = one.size
    x1, y1, x2, y2 = (
        round(100 * v / side) for v, side in zip(one.box, (width, height) * 2, strict=True)
    )
    line = y2 if y2 + BESIDE <= 100 else y1 - BESIDE if y1 >= BESIDE else 100 - BESIDE
    middle = (x1 + x2) // 2
    if middle < THIRDS[0]:
        return f" position:{x1}%,line-left align:start line:{line}%"
    if middle > THIRDS[1]:
        return f" position:{x2}%,line-right align:end line:{line}%"
    return f" position:{middle}%,center align:center line:{line}%"


def _csv(found: Sequence[Localization]) -> str:
    """Boxes are in pixels."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for one in found:
        name, score = one.labels[0] if one.labels else ("", 0.0)
        known = [name, f"{score:.2f}", one.verdict, f"{one.score:.2f}"]
        rows.writerow([*(f"{t:.2f}" for t in one.span or ()), *known, *(one.box or [""] * 4)])
    return text.getvalue()


def _json(found: Sequence[Localization]) -> str:
    return json.dumps([one.summary() for one in found]) + "\n"


WRITERS: dict[str, Callable[[Sequence[Localization]], str]] = {
    ".srt": _srt,
    ".vtt": _vtt,
    ".csv": _csv,
    ".json": _json,
}
