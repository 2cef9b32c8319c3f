"""anysound -> a pair set: things outside ESC-VOC's classes, paired with recordings of their class.

The benchmark is a folder of two lists (images.json, sounds.json) with images/ and sounds/; its
folder lowres/ has the same layout and is prepared separately. It is only for evaluation: every
photograph is one pair, with the boxes of the sounding class as one annotator's and a fixed
recording of its class. The development half becomes the split val, the held-out half test.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.data.corpora.escvoc import (
    RULES,
    Row,
    Stored,
    make_pair,
    make_sound,
    read_list,
    read_loudest,
    read_photograph,
    store_media,
)
from soundspot.data.manifest import Pair
from soundspot.data.writer import LedgerEntry, PairWriter, Summary

SPLITS = {"dev": "val", "heldout": "test"}


def prepare(source: Path, out: Path) -> Summary:
    """Turn anysound, or a half of it, into a pair set.

    Args:
        source: The benchmark's folder.
        out: The pair set's folder.
    """
    pairs = read_pairs(source)
    images = {f"images/{image['file']}": image for image, _ in pairs}
    sounds = {f"sounds/{sound['file']}": sound for _, sound in pairs}
    writer = PairWriter(out, "anysound", "class", RULES | {"corpus": "anysound"})
    with writer.locked():
        frames, entries = store_media("images", images, writer.add_frame, read_photograph)
        audio, sound_entries = store_media("sounds", sounds, writer.add_sound, read_loudest)
        made = list(_made_pairs(pairs, frames | audio))
        kept = [item for item in made if isinstance(item, Pair)]
        lost = [item for item in made if isinstance(item, LedgerEntry)]
        heard = [make_sound(sounds[key], name) for key, name in audio.items()]
        return writer.finish(kept, heard, [*entries, *sound_entries, *lost])


def read_pairs(source: Path) -> list[tuple[Row, Row]]:
    """Every photograph's row with that of its recording; both have the "path" of their file."""
    images = _read_rows(source, "images", "file cls split width height boxes source orig licence")
    sounds = _read_rows(source, "sounds", "file cls split licence author url")
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


def _read_rows(source: Path, kind: str, columns: str) -> dict[tuple[str, str], list[Row]]:
    """Split and class -> rows of a list."""
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in read_list(source / f"{kind}.json", columns, "anysound"):
        split = SPLITS.get(row["split"], str(row["split"]))
        path = source / kind / str(row["file"])
        rows[split, str(row["cls"])].append({**row, "split": split, "path": path})
    return rows


def _made_pairs(pairs: list[tuple[Row, Row]], stored: Stored) -> Iterator[Pair | LedgerEntry]:
    for image, sound in pairs:
        keys = f"images/{image['file']}", f"sounds/{sound['file']}"
        absent = [key for key in keys if key not in stored]
        if absent:
            name = f"pair {Path(image['file']).stem}"
            yield LedgerEntry(name, "missing", f"needs {' and '.join(absent)}")
        else:
            yield make_pair(image, *(stored[key] for key in keys))
