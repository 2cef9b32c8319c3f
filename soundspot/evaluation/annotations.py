"""Read the published annotation files of a benchmark into items."""

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from soundspot.common.config import parse_json
from soundspot.common.errors import SoundspotError
from soundspot.data.manifest import Box
from soundspot.evaluation.listening import Side

Boxes = tuple[tuple[Box, ...], ...]


@dataclass(frozen=True, slots=True)
class BenchmarkItem:
    """One pair of a benchmark; its id is also that of the pair in a pair set.

    `boxes` has a tuple per annotator, in 0..1 of the frame, and is empty if the source is not
    visible. Items of one `group` show one picture with different sounds (a duet, whose sounding
    half is `side`).
    """

    id: str
    frame: str
    audio: str
    boxes: Boxes
    cls: str | None = None
    group: str | None = None
    side: Side | None = None

    @property
    def visible(self) -> bool:
        """Whether the source is visible: False for the negatives of the extended protocol."""
        return bool(self.boxes)


def vggss(folder: Path) -> list[BenchmarkItem]:
    """VGG-SS: one annotator, several boxes per clip."""
    path = folder / "vggss.json"
    rows = _rows(path, "file class bbox")
    return [_clip(row["file"], (_boxes(row["bbox"], path),), row["class"]) for row in rows]


def vggss_subset(file: str, folder: Path) -> list[BenchmarkItem]:
    """The clips of VGG-SS that a CSV file lists, in its order."""
    return _select(vggss(folder), folder / file)


def flickr250(folder: Path) -> list[BenchmarkItem]:
    """SoundNet-Flickr: several annotators per picture."""
    path = folder / "flickr_test250_boxes_256.json"
    votes = _json(path)
    if not isinstance(votes, dict):
        raise SoundspotError(f"{path} must map ids to boxes, but holds a {type(votes).__name__}")
    # The file does not say who drew which box: as in released evaluations, each box is one vote.
    # 256ths are exact in binary, so int(224 * (v / 256)) is the published int(224 * v / 256).
    return [
        _clip(id, tuple((box,) for box in _boxes(boxes, path, scale=256)))
        for id, boxes in votes.items()
    ]


def flickr249(folder: Path) -> list[BenchmarkItem]:
    """The paper's own list of SoundNet-Flickr."""
    return _select(flickr250(folder), folder / "flickr_test249_in5k.csv")


def with_silent(
    positives: Callable[[Path], list[BenchmarkItem]], file: str, folder: Path
) -> list[BenchmarkItem]:
    """The positives, and for each a negative: a picture whose sound source is not visible."""
    header, *rows = _table(folder / file) or [[]]
    if header != ["video", "audio", "label"] or any(len(row) != 3 for row in rows):
        raise SoundspotError(f"{folder / file} must have the columns video, audio, label")
    labels = {label for _, _, label in rows} - {"non-sounding"}
    if labels:
        raise SoundspotError(f"{folder / file}: expected non-sounding pairs only, got {labels}")
    return positives(folder) + [BenchmarkItem(f"{v}+{a}", v, a, boxes=()) for v, a, _ in rows]


def avsbench(file: str, depth: int, folder: Path) -> list[BenchmarkItem]:
    """AVSBench frames; the id is the last `depth` parts of the path, without the suffix."""
    items = []
    for row in _rows(folder / file, "image audio gt_box"):
        image, audio = (PurePosixPath(row[key]).with_suffix("").parts for key in ("image", "audio"))
        frame = "/".join(image[-depth:])
        boxes = (_boxes([row["gt_box"]], folder / file, scale=224, offset=0.5),)
        cls = image[-3] if depth == 3 else None
        items.append(BenchmarkItem(frame, frame, "/".join(audio[1 - depth :]), boxes, cls))
    return items


def is3(folder: Path) -> list[BenchmarkItem]:
    """IS3: pictures of two things, each of which sounds in turn; an id ends in what sounds."""
    path, items = folder / "synthetic3240_bbox.json", []
    for row in _rows(path, "image audio gt_box"):
        id, audio = (PurePosixPath(row[key]).stem for key in ("image", "audio"))
        group, _, cls = id.rpartition("_")
        boxes = (_boxes([row["gt_box"]], path, scale=224, offset=0.5),)
        items.append(BenchmarkItem(id, id, audio, boxes, cls, group))
    return items


def _clip(id: str, boxes: Boxes, cls: str | None = None) -> BenchmarkItem:
    return BenchmarkItem(id=id, frame=id, audio=id, boxes=boxes, cls=cls)


def _select(items: list[BenchmarkItem], path: Path) -> list[BenchmarkItem]:
    """The items whose ids are in the first column of a CSV file without a header."""
    known = {item.id: item for item in items}
    ids = [row[0].strip() for row in _table(path)]
    unknown = [id for id in ids if id not in known]
    if unknown:
        raise SoundspotError(f"{path}: {len(unknown)} ids have no boxes, the first is {unknown[0]}")
    return [known[id] for id in ids]


def _boxes(rows: Any, source: Path, scale: int = 1, offset: float = 0.0) -> tuple[Box, ...]:
    """Boxes in 0..1 from a list of boxes in units of 1 / scale of the frame.

    An offset of half a pixel keeps whole pixels whole: int(224 * (61 / 224)) is 60.
    """
    boxes: list[Box] = []
    for row in rows if isinstance(rows, list) else [rows]:
        try:
            x1, y1, x2, y2 = ((float(v) + offset) / scale for v in row)
        except (TypeError, ValueError):
            x1 = y1 = x2 = y2 = math.nan
        if not all(map(math.isfinite, (x1, y1, x2, y2))):
            raise SoundspotError(f"{source}: expected a box [x1, y1, x2, y2] of numbers, got {row}")
        boxes.append((x1, y1, x2, y2))
    return tuple(boxes)


def _json(path: Path) -> Any:
    try:
        return parse_json(_text(path))
    except ValueError as error:
        raise SoundspotError(f"{path} is not readable JSON ({error})") from error


def _rows(path: Path, columns: str) -> list[dict[str, Any]]:
    """A list of objects with the given keys: lists if they hold boxes, otherwise strings."""
    rows = _json(path)
    kinds = {key: list if "box" in key else str for key in columns.split()}
    if not isinstance(rows, list):
        raise SoundspotError(f"{path} must hold a list, but holds a {type(rows).__name__}")
    for number, row in enumerate(rows):
        values = row if isinstance(row, dict) else {}
        for key, kind in kinds.items():
            if not isinstance(values.get(key), kind):
                raise SoundspotError(f"{path}, row {number}: {key} must be a {kind.__name__}")
    return rows


def _table(path: Path) -> list[list[str]]:
    try:
        return [row for row in csv.reader(io.StringIO(_text(path), newline="")) if row]
    except (ValueError, csv.Error) as error:
        raise SoundspotError(f"{path} is not a readable CSV file ({error})") from error


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError as error:
        raise SoundspotError(f"no {path.name} in {path.parent}, the annotations' folder") from error
    except OSError as error:
        raise SoundspotError(f"cannot read {path}: {error}") from error
