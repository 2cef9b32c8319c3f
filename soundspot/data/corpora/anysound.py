"""anysound -> a pair set: things outside ESC-VOC's classes, paired with recordings of their class.

The benchmark is a folder of two lists (images.json, sounds.json) with images/ and sounds/; its
folder lowres/ has the same layout and is prepared separately. It is only for evaluation: every
photograph is one pair, with the boxes of the sounding class as one annotator's and a fixed
recording of its class. The development half becomes the split val, the held-out half test.
"""

from collections import defaultdict
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.data.corpora.escvoc import COLUMNS, RULES, Lists, Row, read_list, write_lists
from soundspot.data.writer import PairWriter, Summary

SPLITS = {"dev": "val", "heldout": "test"}


def prepare(source: Path, out: Path) -> Summary:
    """Turn anysound, or a half of it, into a pair set."""
    images, sounds, pairs = {}, {}, []
    for image, sound in read_pairs(source):
        keys = {"image": f"images/{image['file']}", "sound": f"sounds/{sound['file']}"}
        images[keys["image"]], sounds[keys["sound"]] = image, sound
        pairs.append(keys)
    writer = PairWriter(out, "anysound", "class", RULES | {"corpus": "anysound"})
    with writer.locked():
        return write_lists(Lists(images, sounds, pairs, []), writer)


def read_pairs(source: Path) -> list[tuple[Row, Row]]:
    """Every photograph's row with that of its recording; both have the "path" of their file."""
    images, sounds = _read_rows(source, "images"), _read_rows(source, "sounds")
    pairs = []
    for (split, cls), photographs in images.items():
        recordings = sounds.get((split, cls))
        if not recordings:
            raise SoundspotError(f"{source / 'sounds.json'} has no {split} sound of class {cls}")
        # Evenly over the recordings, which the list sorts by kind.
        for number, photograph in enumerate(photographs):
            recording = recordings[number * len(recordings) // len(photographs)]
            pairs.append((photograph, recording))
    return pairs


def _read_rows(source: Path, kind: str) -> dict[tuple[str, str], list[Row]]:
    """Split and class -> rows of a list."""
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in read_list(source / f"{kind}.json", COLUMNS[kind], "anysound"):
        split = SPLITS.get(row["split"], str(row["split"]))
        path = source / kind / str(row["file"])
        rows[split, str(row["cls"])].append({**row, "split": split, "path": path})
    return rows
