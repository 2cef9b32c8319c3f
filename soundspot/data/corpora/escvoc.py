"""ESC-VOC -> a pair set: photographs with boxes, paired with recorded sounds of the same class.

The benchmark is a folder of four lists (images.json, sounds.json, pairs.json, duets.json) with
images/ and sounds/. It can also be rebuilt from its lists with your own copies of VOC2007 and
ESC-50: the photographs that are not from VOC2007 (RF100, Caltech-101) still come from images/ and,
if that is absent, are reported as missing. Nothing takes their place.

- train: one pair per photograph, without sound: one of its class is drawn in every epoch. The pairs
  have no boxes, since a self-supervised method must not see them; these go to train_boxes.jsonl,
  which only the supervised ceiling reads.
- val, test: the fixed pairs, with the boxes of the sounding class as one annotator's.
- duets-val, duets-test: two photographs side by side, each squashed to half of the frame, and one
  pair per side, with that side's sound and boxes.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from soundspot.common.errors import SoundspotError
from soundspot.common.progress import progress
from soundspot.data.ledger import LedgerEntry, Status, Summary
from soundspot.data.manifest import write_rows
from soundspot.data.pair_set import FRAME_SIZE, Box, Pair, Sound
from soundspot.data.writer import PairWriter, SourceError
from soundspot.media import clips as media
from soundspot.media.resizing import resize_frame

TRAIN_BOXES = "train_boxes.jsonl"
SHORT_SIDE = 256
HOP = media.SAMPLE_RATE // 100
RULES = {
    "corpus": "escvoc",
    "frame": "aspect squashed, bicubic",
    "sound": "the 3 s with the most energy on a 10 ms grid, the earliest of equals",
}
COLUMNS = {
    "images": "file cls split width height boxes source orig licence",
    "sounds": "file cls split licence author url",
    "pairs": "split image sound",
    "duets": "split left right left_sound right_sound",
}

Row = dict[str, Any]


@dataclass(frozen=True)
class Lists:
    """The benchmark's lists; images and sounds by file name."""

    images: dict[str, Row]
    sounds: dict[str, Row]
    pairs: list[Row]
    duets: list[Row]


@dataclass(frozen=True)
class TrainBoxes:
    """A line of train_boxes.jsonl."""

    id: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Origin:
    """Where the media are: the benchmark's folder, and your own VOC2007 and ESC-50, if any."""

    source: Path
    voc: Path | None
    esc50: Path | None

    def photograph_file(self, row: Row) -> Path:
        """The file of a row of images.json."""
        if self.voc is not None and row["source"] == "VOC2007":
            return self.voc / "JPEGImages" / str(row["orig"])
        return self.source / "images" / str(row["file"])

    def sound_file(self, row: Row) -> Path:
        """The file of a row of sounds.json."""
        if self.esc50 is not None:
            return (self.esc50 / "audio" / str(row["file"])).with_suffix(".wav")
        return self.source / "sounds" / str(row["file"])

    def photograph(self, row: Row) -> NDArray[np.uint8]:
        """A photograph at the size it has in the benchmark."""
        frame = media.read_frame(self.photograph_file(row))
        height, width = frame.shape[:2]
        shrink = min(1.0, SHORT_SIDE / min(height, width))  # the benchmark enlarged nothing
        if max(abs(width * shrink - row["width"]), abs(height * shrink - row["height"])) > 1:
            raise SoundspotError(
                f"{self.photograph_file(row)} is not the benchmark's picture: "
                f"{width}x{height} does not shrink to {row['width']}x{row['height']}"
            )
        return resize_frame(frame, row["height"], row["width"])

    def sound(self, row: Row) -> NDArray[np.float32]:
        """The loudest 3 s of a sound."""
        return loudest(media.read_waveform(self.sound_file(row)), media.SOUND_SAMPLES)


def prepare(
    source: Path, out: Path, *, voc: Path | None = None, esc50: Path | None = None
) -> Summary:
    """Turn ESC-VOC into a pair set.

    Args:
        source: The benchmark's folder; its lists are always needed.
        out: The pair set's folder.
        voc: Take VOC2007's photographs from this folder, which contains JPEGImages.
        esc50: Take the sounds from this folder, which contains audio.
    """
    lists = read_lists(source)
    for folder, inside in ((voc, "JPEGImages"), (esc50, "audio")):
        if folder is not None and not (folder / inside).is_dir():
            raise SoundspotError(f"{folder} must be a folder that contains a folder {inside}")
    origin = Origin(source, voc, esc50)
    rules = RULES | {"photographs": "VOC2007" if voc else "", "sounds": "ESC-50" if esc50 else ""}
    writer = PairWriter(out, "escvoc", "class", rules)
    with writer.locked():
        return _write(lists, origin, writer)


def _write(lists: Lists, origin: Origin, writer: PairWriter) -> Summary:
    frames, entries = _store(
        "images",
        lists.images,
        origin.photograph_file,
        lambda row: writer.add_frame(_stem(row["file"]), lambda: origin.photograph(row)),
    )
    audio, sound_entries = _store(
        "sounds",
        lists.sounds,
        origin.sound_file,
        lambda row: writer.add_sound(_stem(row["file"]), lambda: origin.sound(row)),
    )
    sounds = [_sound(lists.sounds[file], name) for file, name in audio.items()]
    made = [
        *_train_pairs(lists, frames, sounds),
        *_fixed_pairs(lists, frames, audio),
        *_duets(lists, frames, audio, origin, writer),
    ]
    pairs = [item for item in made if isinstance(item, Pair)]
    lost = [item for item in made if isinstance(item, LedgerEntry)]
    write_rows(
        writer.root / TRAIN_BOXES,
        [
            TrainBoxes(_stem(file), _boxes(lists.images[file]))
            for file in frames
            if lists.images[file]["split"] == "train"
        ],
    )
    return writer.finish(pairs, sounds, [*entries, *sound_entries, *lost])


def read_lists(source: Path) -> Lists:
    """Read the four lists and check that they fit together."""
    rows = {name: _read_list(source / f"{name}.json", COLUMNS[name]) for name in COLUMNS}
    images = {row["file"]: row for row in rows["images"]}
    sounds = {row["file"]: row for row in rows["sounds"]}
    for name in ("pairs", "duets"):
        for number, row in enumerate(rows[name]):
            for column in (column for column in COLUMNS[name].split() if column != "split"):
                table = sounds if column.endswith("sound") else images
                if row[column] not in table:
                    raise SoundspotError(
                        f"{name}.json, row {number}: no list has the {column} {row[column]!r}"
                    )
    return Lists(images, sounds, rows["pairs"], rows["duets"])


def loudest(waveform: NDArray[np.float32], samples: int) -> NDArray[np.float32]:
    """The window with the most energy on a grid of 10 ms; of equals, the earliest.

    A waveform that is too short is repeated, as everywhere.
    """
    if len(waveform) <= samples:
        return media.cut(waveform, None, samples)
    energy = np.concatenate([[0.0], np.cumsum(waveform.astype(np.float64) ** 2)])
    starts = np.arange(0, len(waveform) - samples + 1, HOP)
    start = int(starts[np.argmax(energy[starts + samples] - energy[starts])])
    return waveform[start : start + samples]


def _read_list(path: Path, columns: str) -> list[Row]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SoundspotError(
            f"{path.parent} is not the ESC-VOC benchmark: it has no {path.name}"
        ) from error
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} cannot be read ({error})") from error
    if not isinstance(rows, list):
        raise SoundspotError(f"{path} must contain a list, not {type(rows).__name__}")
    for number, row in enumerate(rows):
        for column in columns.split():
            if not isinstance(row, dict) or column not in row:
                raise SoundspotError(f"{path}, row {number} has no {column!r}")
    return rows


def _store(
    what: str,
    rows: dict[str, Row],
    file_of: Callable[[Row], Path],
    add: Callable[[Row], str],
) -> tuple[dict[str, str], list[LedgerEntry]]:
    """Store the file of every row; returns the names of those stored, and the ledger entries."""
    names, entries = {}, []
    for file, row in progress(rows.items(), f"preparing {what}"):
        try:
            names[file] = add(row)
            entries.append(LedgerEntry(f"{what}/{file}", "done"))
        except SourceError as error:
            status: Status = error.fault if file_of(row).exists() else "missing"
            entries.append(LedgerEntry(f"{what}/{file}", status, str(error)))
    return names, entries


def _train_pairs(
    lists: Lists, frames: dict[str, str], sounds: Sequence[Sound]
) -> Iterator[Pair | LedgerEntry]:
    heard = {sound.cls for sound in sounds if sound.split == "train"}
    for file, frame in frames.items():
        row = lists.images[file]
        if row["split"] != "train":
            continue
        if row["cls"] in heard:
            yield replace(_pair(row, frame, None), boxes=None)
        else:
            yield LedgerEntry(
                f"pair {_stem(file)}", "missing", f"no train sound of class {row['cls']}"
            )


def _fixed_pairs(
    lists: Lists, frames: dict[str, str], audio: dict[str, str]
) -> Iterator[Pair | LedgerEntry]:
    for row in lists.pairs:
        absent = _absent(frames, [row["image"]], audio, [row["sound"]])
        if absent:
            yield LedgerEntry(f"pair {_stem(row['image'])}", "missing", absent)
        else:
            yield _pair(lists.images[row["image"]], frames[row["image"]], audio[row["sound"]])


def _duets(
    lists: Lists, frames: dict[str, str], audio: dict[str, str], origin: Origin, writer: PairWriter
) -> Iterator[Pair | LedgerEntry]:
    numbers: dict[str, Iterator[int]] = defaultdict(count)
    for row in progress(lists.duets, "preparing duets"):
        group = f"duet-{row['split']}-{next(numbers[row['split']]):04d}"
        sides = (row["left"], row["right"])
        absent = _absent(frames, sides, audio, [row["left_sound"], row["right_sound"]])
        if absent:
            yield LedgerEntry(group, "missing", absent)
            continue
        photographs = [lists.images[file] for file in sides]
        frame = writer.add_frame(group, partial(_side_by_side, photographs, origin))
        for side, photograph, offset in zip(
            ("left", "right"), photographs, (0.0, 0.5), strict=True
        ):
            pair = _pair(photograph, frame, audio[row[f"{side}_sound"]])
            halved = tuple(
                (offset + a / 2, b, offset + c / 2, d) for a, b, c, d in _boxes(photograph)
            )
            yield replace(
                pair,
                id=f"{group}-{side}",
                split=f"duets-{row['split']}",
                boxes=(halved,),
                group=group,
            )


def _side_by_side(rows: Sequence[Row], origin: Origin) -> NDArray[np.uint8]:
    halves = [resize_frame(origin.photograph(row), FRAME_SIZE, FRAME_SIZE // 2) for row in rows]
    return np.concatenate(halves, axis=1)


def _absent(
    frames: dict[str, str], images: Sequence[str], audio: dict[str, str], sounds: Sequence[str]
) -> str:
    absent = [f"images/{file}" for file in images if file not in frames]
    absent += [f"sounds/{file}" for file in sounds if file not in audio]
    return f"needs {' and '.join(absent)}" if absent else ""


def _pair(row: Row, frame: str, audio: str | None) -> Pair:
    return Pair(
        id=_stem(row["file"]),
        frame=frame,
        audio=audio,
        split=row["split"],
        cls=row["cls"],
        boxes=(_boxes(row),),
        source=f"{row['source']}: {row['orig']}",
        licence=row["licence"],
    )


def _sound(row: Row, audio: str) -> Sound:
    return Sound(
        id=_stem(row["file"]),
        audio=audio,
        split=row["split"],
        cls=row["cls"],
        source=f"{row['url']} by {row['author']}",
        licence=row["licence"],
    )


def _boxes(row: Row) -> tuple[Box, ...]:
    return tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in row["boxes"])


def _stem(file: str) -> str:
    return Path(file).stem
