"""ESC-VOC -> a pair set: photographs with boxes, paired with recorded sounds of the same class.

Its four lists (photographs, sounds, pairs, duets), with the source and license of every item, are
in escvoc.json.gz; the media are taken from the public downloads of VOC2007, ESC-50, Roboflow 100
(animals) and Caltech-101, as they unpack. What is not at hand is reported as missing, not replaced.
The benchmark's own folder, where there is one, has the lists as images.json, sounds.json,
pairs.json and duets.json, with images/ and sounds/.

- train: one pair per photograph, without sound: one of its class is drawn in every epoch. The pairs
  have no boxes, since a self-supervised method must not see them; these go to train_boxes.jsonl,
  which only the supervised ceiling reads.
- val, test: the fixed pairs, with the boxes of the sounding class as one annotator's.
- duets-val, duets-test: two photographs side by side, each squashed to half of the frame, and one
  pair per side, with that side's sound and boxes.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from soundspot.common.config import parse_json, read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.common.progress import progress
from soundspot.data.manifest import Box, Pair, Sound
from soundspot.data.pair_set import FRAME_SIZE
from soundspot.data.writer import LedgerEntry, PairWriter, SourceError, Status, Summary, status_of
from soundspot.media import clips as media
from soundspot.media.resizing import resize_frame

TRAIN_BOXES = "train_boxes.jsonl"
PUBLISHED = Path(__file__).with_name("escvoc.json.gz")
SHORT_SIDE = 256
QUALITY = 88  # of the benchmark's JPEGs: pictures made from originals pass through it too
VOC_FOLDERS = ("JPEGImages", "VOC2007/JPEGImages", "VOCdevkit/VOC2007/JPEGImages")
CALTECH_FOLDERS = ("101_ObjectCategories", "caltech-101/101_ObjectCategories", ".")
CALTECH_NAMES = {"airplane": "airplanes", "motorcycle": "Motorbikes"}
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
Stored = dict[str, str]  # "images/<file>" or "sounds/<file>" -> its name in the pair set


class Lists(NamedTuple):
    """The benchmark's lists; media are keyed and referred to by "images/<file>", "sounds/<file>".

    Rows of images and sounds also have the "path" from which to read them.
    """

    images: dict[str, Row]
    sounds: dict[str, Row]
    pairs: list[Row]
    duets: list[Row]


class Originals(NamedTuple):
    """Folders of public downloads, as they unpack."""

    voc: Path | None = None
    esc50: Path | None = None
    rf100: Path | None = None
    caltech: Path | None = None


def prepare(source: Path | None, out: Path, originals: Originals = Originals()) -> Summary:  # noqa: B008
    """Turn ESC-VOC into a pair set.

    `source` is the benchmark's folder, for its lists and what no original is given for; None takes
    the published lists.
    """
    if source is None and not any(originals):
        raise SoundspotError("ESC-VOC is made from downloads: give at least VOC2007 and ESC-50")
    lists = _read_lists(source)
    _find_media(lists, source or Path("absent"), originals)
    rules = RULES | {
        "photographs": "VOC2007" if originals.voc else "",
        "sounds": "ESC-50" if originals.esc50 else "",
    }
    writer = PairWriter(out, "escvoc", "class", rules)
    with writer.locked():
        return write_lists(lists, writer)


def _find_media(lists: Lists, source: Path, originals: Originals) -> None:
    """Give every row the "path" of its file; those of originals are marked as such."""
    voc = originals.voc and _inside(originals.voc, VOC_FOLDERS)
    caltech = originals.caltech and _inside(originals.caltech, CALTECH_FOLDERS)
    esc50 = originals.esc50 and _inside(originals.esc50, ("audio",))
    # Roboflow's exports spread their pictures over train, valid and test.
    animals = (
        {path.name: path for path in originals.rf100.rglob("*.jpg")} if originals.rf100 else {}
    )
    for key, row in lists.images.items():
        orig, origin = str(row["orig"]), row["source"]
        row["path"], row["original"] = source / key, True
        if voc and origin == "VOC2007":
            row["path"] = voc / orig
        elif caltech and origin.startswith("Caltech101"):
            thing, _, name = orig.partition("/")
            row["path"] = caltech / CALTECH_NAMES.get(thing, thing) / name
        elif animals and origin.startswith("RF100") and orig in animals:
            row["path"] = animals[orig]
        else:
            row["original"] = False
    for key, row in lists.sounds.items():
        row["path"] = (esc50 / row["file"]).with_suffix(".wav") if esc50 else source / key


def _inside(folder: Path, choices: Sequence[str]) -> Path:
    """The first of the folders that a download may hold its media in."""
    for choice in choices:
        if (folder / choice).is_dir():
            return folder / choice
    raise SoundspotError(f"{folder} must be a folder that contains a folder {choices[0]}")


def write_lists(lists: Lists, writer: PairWriter) -> Summary:
    """Store the media of all rows, and make the pairs of the lists."""
    frames, entries = _store_media("images", lists.images, writer.add_frame, read_photograph)
    audio, sound_entries = _store_media("sounds", lists.sounds, writer.add_sound, read_loudest)
    sounds = [_make_sound(lists.sounds[key], name) for key, name in audio.items()]
    made = [
        *_train_pairs(lists, frames, sounds),
        *_fixed_pairs(lists, frames | audio),
        *_duets(lists, frames | audio, writer),
    ]
    pairs = [item for item in made if isinstance(item, Pair)]
    lost = [item for item in made if isinstance(item, LedgerEntry)]
    train = [lists.images[key] for key in frames if lists.images[key]["split"] == "train"]
    if train:
        boxes = ({"id": _id(row), "boxes": _boxes(row)} for row in train)
        write_text(writer.root / TRAIN_BOXES, "".join(json.dumps(row) + "\n" for row in boxes))
    return writer.finish(pairs, sounds, [*entries, *sound_entries, *lost])


def _read_lists(source: Path | None) -> Lists:
    """Read the four lists and check that they fit together."""
    if source is None:
        rows = json.loads(gzip.decompress(PUBLISHED.read_bytes()))
    else:
        rows = {
            name: read_list(source / f"{name}.json", columns, "ESC-VOC")
            for name, columns in COLUMNS.items()
        }
    images = {f"images/{row['file']}": row for row in rows["images"]}
    sounds = {f"sounds/{row['file']}": row for row in rows["sounds"]}
    for name in ("pairs", "duets"):
        for number, row in enumerate(rows[name]):
            for column in COLUMNS[name].split()[1:]:
                kind, table = ("sounds", sounds) if "sound" in column else ("images", images)
                key = f"{kind}/{row[column]}"
                if key not in table:
                    raise SoundspotError(f"{name}.json, row {number}: no {column} {row[column]!r}")
                row[column] = key
    return Lists(images, sounds, rows["pairs"], rows["duets"])


def read_list(path: Path, columns: str, benchmark: str) -> list[Row]:
    """Read a JSON list of objects and check that each has the columns."""
    try:
        rows = parse_json(read_bytes(path))
    except FileNotFoundError as error:
        raise SoundspotError(f"{path.parent} is not {benchmark}: it has no {path.name}") from error
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} cannot be read ({error})") from error
    if not isinstance(rows, list):
        raise SoundspotError(f"{path} must contain a list, not {type(rows).__name__}")
    for number, row in enumerate(rows):
        for column in columns.split():
            if not isinstance(row, dict) or column not in row:
                raise SoundspotError(f"{path}, row {number} has no {column!r}")
    return rows


def read_photograph(row: Row) -> NDArray[np.uint8]:
    """A photograph at the size it has in the benchmark."""
    frame = media.read_frame(row["path"])
    height, width = frame.shape[:2]
    shrink = min(1.0, SHORT_SIDE / min(height, width))  # the benchmark enlarged nothing
    if max(abs(width * shrink - row["width"]), abs(height * shrink - row["height"])) > 1:
        raise SoundspotError(f"{row['path']} is not the benchmark's picture: {width}x{height}")
    frame = resize_frame(frame, row["height"], row["width"])
    return _as_published(frame) if row.get("original") else frame


def _as_published(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture with the losses of the benchmark's JPEGs."""
    with BytesIO() as memory:
        Image.fromarray(frame).save(memory, "JPEG", quality=QUALITY)
        return np.array(Image.open(memory).convert("RGB"))


def read_loudest(row: Row) -> NDArray[np.float32]:
    """The loudest 3 s of a recording."""
    return loudest(media.read_waveform(row["path"]), media.SOUND_SAMPLES)


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


def _store_media(
    what: str,
    rows: Mapping[str, Row],
    add: Callable[[str, Callable[[], Any]], str],
    make: Callable[[Row], NDArray[Any]],
) -> tuple[Stored, list[LedgerEntry]]:
    names, entries = {}, []
    for key, row in progress(rows.items(), f"preparing {what}"):
        try:
            names[key] = add(_id(row), partial(make, row))
            entries.append(LedgerEntry(key, "done"))
        except SourceError as error:
            status: Status = status_of(error) if row["path"].exists() else "missing"
            entries.append(LedgerEntry(key, status, str(error)))
    return names, entries


def _train_pairs(
    lists: Lists, frames: Stored, sounds: Sequence[Sound]
) -> Iterator[Pair | LedgerEntry]:
    heard = {sound.cls for sound in sounds if sound.split == "train"}
    for key, frame in frames.items():
        row = lists.images[key]
        if row["split"] == "train" and row["cls"] in heard:
            yield replace(_make_pair(row, frame, None), boxes=None)
        elif row["split"] == "train":
            yield LedgerEntry(
                f"pair {_id(row)}", "missing", f"no train sound of class {row['cls']}"
            )


def _fixed_pairs(lists: Lists, stored: Stored) -> Iterator[Pair | LedgerEntry]:
    for row in lists.pairs:
        image = lists.images[row["image"]]
        if absent := _absent(stored, row["image"], row["sound"]):
            yield LedgerEntry(f"pair {_id(image)}", "missing", absent)
        else:
            yield _make_pair(image, stored[row["image"]], stored[row["sound"]])


def _duets(lists: Lists, stored: Stored, writer: PairWriter) -> Iterator[Pair | LedgerEntry]:
    numbers: dict[str, Iterator[int]] = defaultdict(count)
    for row in progress(lists.duets, "preparing duets"):
        group = f"duet-{row['split']}-{next(numbers[row['split']]):04d}"
        left, right, *sounds = (row[column] for column in COLUMNS["duets"].split()[1:])
        if absent := _absent(stored, left, right, *sounds):
            yield LedgerEntry(group, "missing", absent)
            continue
        photographs = lists.images[left], lists.images[right]
        frame = writer.add_frame(group, partial(_side_by_side, photographs))
        for side, offset, image, sound in zip(
            ("left", "right"), (0.0, 0.5), photographs, sounds, strict=True
        ):
            halved = tuple((offset + a / 2, b, offset + c / 2, d) for a, b, c, d in _boxes(image))
            yield replace(
                _make_pair(image, frame, stored[sound]),
                id=f"{group}-{side}",
                split=f"duets-{row['split']}",
                boxes=(halved,),
                group=group,
            )


def _side_by_side(rows: Sequence[Row]) -> NDArray[np.uint8]:
    halves = [resize_frame(read_photograph(row), FRAME_SIZE, FRAME_SIZE // 2) for row in rows]
    return np.concatenate(halves, axis=1)


def _absent(stored: Stored, *keys: str) -> str:
    absent = [key for key in keys if key not in stored]
    return f"needs {' and '.join(absent)}" if absent else ""


def _make_pair(row: Row, frame: str, audio: str | None) -> Pair:
    return Pair(
        id=_id(row),
        frame=frame,
        audio=audio,
        split=row["split"],
        cls=row["cls"],
        boxes=(_boxes(row),),
        source=f"{row['source']}: {row['orig']}",
        licence=row["licence"],
    )


def _make_sound(row: Row, audio: str) -> Sound:
    source = f"{row['url']} by {row['author']}"
    return Sound(_id(row), audio, row["split"], row["cls"], source, row["licence"])


def _boxes(row: Row) -> tuple[Box, ...]:
    return tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in row["boxes"])


def _id(row: Row) -> str:
    return Path(row["file"]).stem
