"""Media in tar shards, as WebDataset reads them: members with the same key and different suffixes.

A shard appears whole or not at all. Tar headers contain no time or owner: the same input gives the
same bytes.
"""

import dataclasses
import io
import itertools
import tarfile
from collections import Counter
from pathlib import Path, PurePosixPath

from soundspot.common.config import from_dict, parse_json
from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write
from soundspot.data.pair_set import PairSet
from soundspot.data.writer import LEDGER, LedgerEntry, PairWriter

PER_SHARD = 1000


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _entry(ledger: Path, row: str) -> LedgerEntry:
    try:
        return from_dict(LedgerEntry, parse_json(row))
    except (ValueError, AttributeError, SoundspotError) as error:
        raise SoundspotError(f"{ledger} is damaged ({error}); delete it") from error


def pack(pairset: PairSet, out: Path, frames_per_shard: int = PER_SHARD) -> PairSet:
    """Copy a pair set into tar shards that WebDataset reads too.

    A sound follows the first frame that uses it; pooled sounds come last. Member names have no
    folder, since WebDataset groups members by name. Files that are not part of the pair set proper,
    such as ESC-VOC's training boxes, are not copied.
    """
    if out.resolve() == pairset.root.resolve():
        raise SoundspotError(f"{out} is the pair set itself: choose another folder for the shards")
    groups = [[p.frame] if p.audio is None else [p.frame, p.audio] for p in pairset.pairs]
    groups += [[sound.audio] for sound in pairset.sounds]
    flat = {name: PurePosixPath(name).name for name in sorted({*itertools.chain(*groups)})}
    for name, count in Counter(flat.values()).items():
        if count > 1:
            raise SoundspotError(f"{pairset.root} has two files {name}, so it cannot be packed")
    pairs = [
        dataclasses.replace(pair, frame=flat[pair.frame], audio=pair.audio and flat[pair.audio])
        for pair in pairset.pairs
    ]
    sounds = [dataclasses.replace(sound, audio=flat[sound.audio]) for sound in pairset.sounds]
    ledger = pairset.root / LEDGER
    rows = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    writer = PairWriter(out, pairset.name, pairset.pairing, pairset.provenance)
    with writer.locked():
        written: set[str] = set()
        for number, start in enumerate(range(0, len(groups), frames_per_shard)):
            names = dict.fromkeys(itertools.chain(*groups[start : start + frames_per_shard]))
            path = out / f"shard-{number:06d}.tar"
            with atomic_write(path) as part, tarfile.open(part, "w") as tar:
                for name in names:
                    if name not in written:
                        _add(tar, flat[name], pairset.read(name))
            written |= names.keys()
        entries = [_entry(ledger, row) for row in rows]
        return writer.finish(pairs, sounds, entries).pairset
