"""Media in tar shards, as WebDataset reads them: members with the same key and different suffixes.

A shard appears whole or not at all. While a corpus is prepared, the journal beside each shard
records what became of its items, so that an unchanged shard is not made again. Tar headers contain
no time or owner: the same input gives the same bytes.
"""

import dataclasses
import io
import itertools
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from soundspot.common.config import from_dict, parse_json
from soundspot.common.errors import SoundspotError
from soundspot.common.files import (
    ShardJournal,
    atomic_write,
    split_into_blocks,
    surplus_shards,
)
from soundspot.data.corpus_files import (
    CorpusItem,
    Outcome,
    digest_pair,
    inputs_of,
)
from soundspot.data.options import digest_of
from soundspot.data.pair_set import PairSet
from soundspot.data.writer import LEDGER, LedgerEntry, PairWriter, Status

PER_SHARD = 1000

Read = Callable[[Iterable[CorpusItem]], Iterator[Outcome]]
Judge = Callable[[CorpusItem, Outcome], Outcome]


def store_shards(
    source: Path,
    items: Sequence[CorpusItem],
    out: Path,
    read: Read,
    judge: Judge,
    per_shard: int = PER_SHARD,
) -> Iterator[Outcome]:
    """Write the items' media, `per_shard` items to a shard, and yield what became of each in order.

    `judge` has the last word on what was read; it is called in the items' order.
    """
    blocks = split_into_blocks(items, per_shard)
    journals = [_journal(out, number, source, block) for number, block in enumerate(blocks)]
    kept = [_read_rows(journal, block) for journal, block in zip(journals, blocks, strict=True)]
    missing = (block for block, rows in zip(blocks, kept, strict=True) if rows is None)
    fresh = read(itertools.chain.from_iterable(missing))
    for block, journal, rows in zip(blocks, journals, kept, strict=True):
        outcomes = fresh
        if rows is not None:
            judged = [judge(item, read) for item, (read, _) in zip(block, rows, strict=True)]
            if [outcome.status for outcome in judged] == [verdict for _, verdict in rows]:
                yield from judged
                continue
            outcomes = read(block)  # another shard has changed, and with it what duplicates what
        yield from _write(journal, zip(block, outcomes, strict=False), judge)
    stored = (*out.glob("shard-*.tar"), *out.glob(".shard-*.jsonl"))
    for path in surplus_shards(stored, len(blocks)):
        path.unlink()


def _write(
    journal: ShardJournal, outcomes: Iterable[tuple[CorpusItem, Outcome]], judge: Judge
) -> list[Outcome]:
    journal.discard()
    rows, done = [], []
    with atomic_write(journal.data) as part, tarfile.open(part, "w") as shard:
        for item, outcome in outcomes:
            judged = judge(item, outcome)
            if judged.status == "done":
                _add(shard, f"{item.id}.jpg", judged.frame)
                _add(shard, f"{item.id}.flac", judged.sound)
            rows.append(
                (outcome.status, outcome.reason, outcome.used, outcome.digest, judged.status)
            )
            done.append(dataclasses.replace(judged, frame=b"", sound=b""))
    journal.write(rows)
    return done


@dataclass(frozen=True)
class _Row:
    """What a journal says of an item: its outcome without the bytes, and the verdict."""

    status: Status
    reason: str
    used: tuple[str, ...]
    digest: str
    judged: Status


def _read_rows(
    journal: ShardJournal, items: Sequence[CorpusItem]
) -> list[tuple[Outcome, Status]] | None:
    """What was read, and the verdicts; None if the shard must be made (again)."""
    if not journal.fits():
        return None
    names = [field.name for field in dataclasses.fields(_Row)]
    try:
        rows = [
            from_dict(_Row, dict(zip(names, values, strict=True)))
            for values in map(parse_json, journal.lines())
        ]
        with tarfile.open(journal.data, "r:") as tar:
            for item, row in zip(items, rows, strict=True):
                if row.judged == "done" and _packed_digest(tar, item.id) != row.digest:
                    return None
    except (OSError, ValueError, TypeError, KeyError, tarfile.TarError, SoundspotError):
        return None
    return [(Outcome(row.status, row.reason, row.used, row.digest), row.judged) for row in rows]


def _packed_digest(tar: tarfile.TarFile, id: str) -> str:
    frame, sound = (tar.extractfile(f"{id}.{suffix}") for suffix in ("jpg", "flac"))
    return digest_pair(frame.read(), sound.read()) if frame and sound else ""


def _journal(out: Path, number: int, source: Path, items: Sequence[CorpusItem]) -> ShardJournal:
    """The journal of a shard, whose inputs are those of its items."""
    inputs = digest_of("".join(inputs_of(item, source) for item in items))
    path = out / f".shard-{number:06d}.jsonl"
    return ShardJournal(path, _shard_path(out, number), ("plan", inputs))


def _shard_path(out: Path, number: int) -> Path:
    return out / f"shard-{number:06d}.tar"


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _entry(ledger: Path, row: str) -> LedgerEntry:
    try:
        return from_dict(LedgerEntry, parse_json(row))
    except (ValueError, AttributeError, SoundspotError) as error:
        raise SoundspotError(
            f"{ledger} is damaged ({error}); run the same `soundspot prepare` again, or delete it"
        ) from error


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
            raise SoundspotError(
                f"{pairset.root} has two files called {name}, so it cannot be packed"
            )
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
        for number, block in enumerate(split_into_blocks(groups, frames_per_shard)):
            names = dict.fromkeys(itertools.chain(*block))
            with atomic_write(_shard_path(out, number)) as part, tarfile.open(part, "w") as tar:
                for name in names:
                    if name not in written:
                        _add(tar, flat[name], pairset.read(name))
            written |= names.keys()
        entries = [_entry(ledger, row) for row in rows]
        return writer.finish(pairs, sounds, entries).pairset
