"""The benchmarks of the field, read from their own annotation files; one line a benchmark.

Only annotations are read here; pictures and sounds come from a pair set whose pairs have the same
ids. A list that is shorter or longer than published is refused: a benchmark is all of it.
"""

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from soundspot.common.config import choose
from soundspot.common.errors import SoundspotError
from soundspot.data.manifest import Box
from soundspot.evaluation.listening import Side
from soundspot.evaluation.metrics import Truths, is_degenerate, truth_maps

Boxes = tuple[tuple[Box, ...], ...]

ALIASES = {"flickr": "flickr250"}


@dataclass(frozen=True, slots=True)
class Item:
    """One pair of a benchmark.

    Attributes:
        id: Unique in the benchmark, and the id of the pair in a pair set.
        frame: The clip or picture that is seen.
        audio: The clip or sound that is heard.
        boxes: The truth, one tuple of boxes for each annotator, in 0..1 of the frame; empty where
            nothing that sounds can be seen.
        cls: The class, where one is known.
        group: Items that share a picture with several sounds (a duet).
        side: The side that sounds, in a duet.
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
        """Whether the source can be seen: False for the negatives of the extended protocol."""
        return bool(self.boxes)


@dataclass(frozen=True)
class Benchmark:
    """What is known of a benchmark before its files are read.

    Attributes:
        name: What commands and reports call it.
        description: One line for a list of benchmarks.
        unit: What is counted.
        count: How many there must be.
        needed: Votes that make a pixel certain (see `metrics.truth_maps`).
        read: From the folder of the annotation files to the items.
    """

    name: str
    description: str
    unit: str
    count: int
    needed: int
    read: Callable[[Path], list[Item]]

    def truths(self, items: Sequence[Item]) -> Truths:
        """Consensus maps of the items."""
        return truth_maps([item.boxes for item in items], self.needed)


@dataclass(frozen=True)
class Flaws:
    """What is wrong with the annotations themselves; a report says so.

    Attributes:
        degenerate: Items with a box that covers no pixel (the box is ignored).
        empty: Items whose truth has no pixel at all: they count as failures.
    """

    degenerate: tuple[str, ...]
    empty: tuple[str, ...]


def find(name: str) -> Benchmark:
    """The benchmark of a name, or of its short name."""
    return choose("benchmark", ALIASES.get(name, name), BENCHMARKS)


def load(name: str, annotations: Path) -> list[Item]:
    """Read a benchmark's items from the folder of its annotation files, and check their number."""
    benchmark = find(name)
    items = benchmark.read(annotations)
    twice = [id for id, times in Counter(item.id for item in items).items() if times > 1]
    if twice:
        raise SoundspotError(
            f"{name} in {annotations}: {len(twice)} ids stand there twice, the first is {twice[0]}"
        )
    if len(items) != benchmark.count:
        raise SoundspotError(
            f"{name} in {annotations}: expected {benchmark.count:,} {benchmark.unit}, "
            f"found {len(items):,}"
        )
    return items


def flaws(items: Sequence[Item]) -> Flaws:
    """Find degenerate boxes and empty truths among the items with a visible source."""
    degenerate, empty = [], []
    for item in items:
        bad = [is_degenerate(box) for boxes in item.boxes for box in boxes]
        if any(bad):
            degenerate.append(item.id)
        if item.visible and all(bad):  # also where an annotator drew no box
            empty.append(item.id)
    return Flaws(tuple(degenerate), tuple(empty))


def _vggss(folder: Path) -> list[Item]:
    path = folder / "vggss.json"
    rows = _rows(path, "file class bbox")
    return [_clip(row["file"], (_boxes(row["bbox"], path),), row["class"]) for row in rows]


def _vggss_subset(file: str) -> Callable[[Path], list[Item]]:
    def read(folder: Path) -> list[Item]:
        return _select(_vggss(folder), _first_column(folder / file), folder / file)

    return read


def _flickr250(folder: Path) -> list[Item]:
    path = folder / "flickr_test250_boxes_256.json"
    votes = _json(path)
    if not isinstance(votes, dict):
        raise SoundspotError(f"{path} must map ids to boxes, but holds a {type(votes).__name__}")
    # The file does not say who drew which box: as in released evaluations each box is one vote.
    # 256ths are exact in binary, so int(224 * (v / 256)) is the published int(224 * v / 256).
    return [
        _clip(id, tuple((box,) for box in _boxes(boxes, path, scale=256)))
        for id, boxes in votes.items()
    ]


def _flickr249(folder: Path) -> list[Item]:
    path = folder / "flickr_test249_in5k.csv"
    return _select(_flickr250(folder), _first_column(path), path)


def _with_silent(
    positives: Callable[[Path], list[Item]], file: str
) -> Callable[[Path], list[Item]]:
    """The positives, and a picture with another sound (or no source in sight) for each of them."""

    def read(folder: Path) -> list[Item]:
        rows = _table(folder / file, ("video", "audio", "label"))
        other = {label for _, _, label in rows} - {"non-sounding"}
        if other:
            raise SoundspotError(f"{folder / file}: expected non-sounding pairs only, got {other}")
        return positives(folder) + [Item(f"{v}+{a}", v, a, boxes=()) for v, a, _ in rows]

    return read


def _avsbench(file: str, depth: int) -> Callable[[Path], list[Item]]:
    """AVSBench frames: the last `depth` parts of a path, without the suffix, are the id."""

    def read(folder: Path) -> list[Item]:
        items = []
        for row in _rows(folder / file, "image audio gt_box"):
            image, audio = (
                PurePosixPath(row[key]).with_suffix("").parts for key in ("image", "audio")
            )
            frame = "/".join(image[-depth:])
            boxes = (_boxes([row["gt_box"]], folder / file, scale=224, offset=0.5),)
            cls = image[-3] if depth == 3 else None
            items.append(Item(frame, frame, "/".join(audio[1 - depth :]), boxes, cls))
        return items

    return read


def _escvoc(split: str) -> Callable[[Path], list[Item]]:
    def read(folder: Path) -> list[Item]:
        photographs = _photographs(folder)
        return [
            Item(
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


def _escvoc_duets(split: str) -> Callable[[Path], list[Item]]:
    """Two photographs side by side, each squashed to half of the frame; one item a side."""

    def read(folder: Path) -> list[Item]:
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
                items.append(Item(f"{group}-{side}", group, audio, (boxes,), cls, group, side))
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


def _clip(id: str, boxes: Boxes, cls: str | None = None) -> Item:
    return Item(id=id, frame=id, audio=id, boxes=boxes, cls=cls)


def _select(items: Sequence[Item], ids: Sequence[str], source: Path) -> list[Item]:
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
        found = row if isinstance(row, dict) else {}
        kinds = {key: list if "box" in key else str for key in wanted}
        wrong = [key for key, kind in kinds.items() if not isinstance(found.get(key), kind)]
        if wrong:
            raise SoundspotError(
                f"{path}, row {number}: expected {', '.join(wanted)}, "
                f"but {wrong[0]} is missing or no {kinds[wrong[0]].__name__}"
            )
    return rows


def _table(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    """Rows of a CSV file under its header, or of one without header if no columns are named."""
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
    return SoundspotError(f"no {path.name} in {path.parent}: is it the folder of the annotations?")


BENCHMARKS: Mapping[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("flickr249", "SoundNet-Flickr, the paper's list", "pairs", 249, 2, _flickr249),
        Benchmark("flickr250", "SoundNet-Flickr, the usual list", "pairs", 250, 2, _flickr250),
        Benchmark(
            "flickr-extended",
            "SoundNet-Flickr and as many pairs without a visible source",
            "pairs",
            500,
            2,
            _with_silent(_flickr250, "flickr_test_plus_silent.csv"),
        ),
        Benchmark("vggss", "VGG-SS, all clips", "clips", 5_158, 1, _vggss),
        Benchmark(
            "vggss4692",
            "VGG-SS, the clips the paper could still get",
            "clips",
            4_692,
            1,
            _vggss_subset("vggss_test_4692.csv"),
        ),
        Benchmark(
            "vggss-heard",
            "VGG-SS, classes heard in open-set training",
            "clips",
            2_564,
            1,
            _vggss_subset("vggss_heard_test.csv"),
        ),
        Benchmark(
            "vggss-unheard",
            "VGG-SS, classes not heard in open-set training",
            "clips",
            2_575,
            1,
            _vggss_subset("vggss_unheard_test.csv"),
        ),
        Benchmark(
            "vggss-extended",
            "VGG-SS and as many pairs without a visible source",
            "pairs",
            10_316,
            1,
            _with_silent(_vggss, "vggss_test_plus_silent.csv"),
        ),
        Benchmark(
            "avs-s4",
            "AVSBench S4, one source, boxes of the masks",
            "frames",
            3_700,
            1,
            _avsbench("s4_box.json", depth=3),
        ),
        Benchmark(
            "avs-ms3",
            "AVSBench MS3, several sources, boxes of the masks",
            "frames",
            320,
            1,
            _avsbench("ms3_box.json", depth=2),
        ),
        Benchmark("escvoc", "ESC-VOC, test", "pairs", 552, 1, _escvoc("test")),
        Benchmark("escvoc-val", "ESC-VOC, validation", "pairs", 331, 1, _escvoc("val")),
        Benchmark(
            "escvoc-duets", "ESC-VOC, 500 test duets", "pairs", 1_000, 1, _escvoc_duets("test")
        ),
        Benchmark(
            "escvoc-duets-val",
            "ESC-VOC, 200 validation duets",
            "pairs",
            400,
            1,
            _escvoc_duets("val"),
        ),
    )
}
