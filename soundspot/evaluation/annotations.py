"""Read the published annotation files of each benchmark into items."""

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from soundspot.common.errors import SoundspotError
from soundspot.data.manifest import Box
from soundspot.evaluation.listening import Side

Boxes = tuple[tuple[Box, ...], ...]


@dataclass(frozen=True, slots=True)
class BenchmarkItem:
    """One pair of a benchmark.

    Attributes:
        id: Unique in the benchmark, and the id of the pair in a pair set.
        frame: The clip or picture to look at.
        audio: The clip or sound to listen to.
        boxes: The truth, one tuple of boxes per annotator, in 0..1 of the frame; empty if the
            source is not visible.
        cls: The class, if known.
        group: Shared by items that show one picture with different sounds (a duet).
        side: The sounding side of a duet.
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


def vggss_subset(file: str) -> Callable[[Path], list[BenchmarkItem]]:
    """The clips of VGG-SS that a CSV file lists, in its order."""

    def read(folder: Path) -> list[BenchmarkItem]:
        return _select(vggss(folder), _first_column(folder / file), folder / file)

    return read


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
    path = folder / "flickr_test249_in5k.csv"
    return _select(flickr250(folder), _first_column(path), path)


def with_silent(
    positives: Callable[[Path], list[BenchmarkItem]], file: str
) -> Callable[[Path], list[BenchmarkItem]]:
    """The positives, and for each a negative: a picture whose sound source is not visible."""

    def read(folder: Path) -> list[BenchmarkItem]:
        rows = _table(folder / file, ("video", "audio", "label"))
        labels = {label for _, _, label in rows} - {"non-sounding"}
        if labels:
            raise SoundspotError(f"{folder / file}: expected non-sounding pairs only, got {labels}")
        return positives(folder) + [BenchmarkItem(f"{v}+{a}", v, a, boxes=()) for v, a, _ in rows]

    return read


def avsbench(file: str, depth: int) -> Callable[[Path], list[BenchmarkItem]]:
    """AVSBench frames; the id is the last `depth` parts of the path, without the suffix."""

    def read(folder: Path) -> list[BenchmarkItem]:
        items = []
        for row in _rows(folder / file, "image audio gt_box"):
            image, audio = (
                PurePosixPath(row[key]).with_suffix("").parts for key in ("image", "audio")
            )
            frame = "/".join(image[-depth:])
            boxes = (_boxes([row["gt_box"]], folder / file, scale=224, offset=0.5),)
            cls = image[-3] if depth == 3 else None
            items.append(BenchmarkItem(frame, frame, "/".join(audio[1 - depth :]), boxes, cls))
        return items

    return read


def escvoc(split: str) -> Callable[[Path], list[BenchmarkItem]]:
    """A split of ESC-VOC: photographs of PASCAL VOC with sounds of ESC-50."""

    def read(folder: Path) -> list[BenchmarkItem]:
        photographs = _photographs(folder)
        return [
            BenchmarkItem(
                id=PurePosixPath(row["image"]).stem,
                frame=row["image"],
                audio=row["sound"],
                boxes=(_photograph(photographs, row["image"], folder),),
                cls=row["cls"],
            )
            for row in _rows(folder / "pairs.json", "split image sound cls")
            if row["split"] == split
        ]

    return read


def escvoc_duets(split: str) -> Callable[[Path], list[BenchmarkItem]]:
    """Two photographs side by side, each squashed to half of the frame; one item per side."""

    def read(folder: Path) -> list[BenchmarkItem]:
        photographs = _photographs(folder)
        columns = "split left right left_cls right_cls left_sound right_sound"
        items = []
        for number, row in enumerate(_rows(folder / "duets.json", columns)):
            if row["split"] != split:
                continue
            group = f"duet-{split}-{number:04d}"
            sides: tuple[tuple[Side, float], ...] = (("left", 0.0), ("right", 0.5))
            for side, shift in sides:
                boxes = tuple(
                    (shift + x1 / 2, y1, shift + x2 / 2, y2)
                    for x1, y1, x2, y2 in _photograph(photographs, row[side], folder)
                )
                audio, cls = row[f"{side}_sound"], row[f"{side}_cls"]
                items.append(
                    BenchmarkItem(f"{group}-{side}", group, audio, (boxes,), cls, group, side)
                )
        return items

    return read


def _photographs(folder: Path) -> dict[str, tuple[Box, ...]]:
    path = folder / "images.json"
    return {row["file"]: _boxes(row["boxes"], path) for row in _rows(path, "file boxes")}


def _photograph(
    photographs: Mapping[str, tuple[Box, ...]], file: str, folder: Path
) -> tuple[Box, ...]:
    if file not in photographs:
        raise SoundspotError(f"{folder / 'images.json'} has no boxes for {file}")
    return photographs[file]


def _clip(id: str, boxes: Boxes, cls: str | None = None) -> BenchmarkItem:
    return BenchmarkItem(id=id, frame=id, audio=id, boxes=boxes, cls=cls)


def _select(
    items: Sequence[BenchmarkItem], ids: Sequence[str], source: Path
) -> list[BenchmarkItem]:
    known = {item.id: item for item in items}
    unknown = [id for id in ids if id not in known]
    if unknown:
        raise SoundspotError(
            f"{source}: {len(unknown)} of {len(ids):,} ids have no boxes, the first is {unknown[0]}"
        )
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
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _absent(path) from error
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} is not readable JSON ({error})") from error


def _rows(path: Path, columns: str) -> list[dict[str, Any]]:
    rows = _json(path)
    wanted = columns.split()
    if not isinstance(rows, list):
        raise SoundspotError(f"{path} must hold a list, but holds a {type(rows).__name__}")
    for number, row in enumerate(rows):
        values = row if isinstance(row, dict) else {}
        kinds = {key: list if "box" in key else str for key in wanted}
        wrong = [key for key, kind in kinds.items() if not isinstance(values.get(key), kind)]
        if wrong:
            raise SoundspotError(
                f"{path}, row {number}: expected {', '.join(wanted)}, "
                f"but {wrong[0]} is missing or not a {kinds[wrong[0]].__name__}"
            )
    return rows


def _table(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    """Rows of a CSV file below its header; without columns the file has no header."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except FileNotFoundError as error:
        raise _absent(path) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SoundspotError(f"{path} is not a readable CSV file ({error})") from error
    if not columns:
        return rows
    if not rows or tuple(rows[0]) != columns or any(len(row) != len(columns) for row in rows):
        raise SoundspotError(f"{path} must have the columns {', '.join(columns)} in every row")
    return rows[1:]


def _first_column(path: Path) -> list[str]:
    return [row[0].strip() for row in _table(path, ())]


def _absent(path: Path) -> SoundspotError:
    return SoundspotError(f"no {path.name} in {path.parent}: is this the annotations folder?")
