"""Media in tar shards, as WebDataset reads them: members of one key with different suffixes.

A shard appears whole or not at all. While a corpus is prepared, a journal beside each shard
(.shard-000000.jsonl) says of which files it was made and what became of each item; where it still
fits, the shard is not made again. Tar headers carry no time or owner: the same input gives the
same bytes.
"""

import dataclasses
import hashlib
import io
import itertools
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write, write_text
from soundspot.data.items import Item, Outcome
from soundspot.data.pair_set import Pair, PairSet, Sound
from soundspot.data.writer import LEDGER, Entry, PairWriter, Status

PER_SHARD = 1000

Read = Callable[[Iterable[Item]], Iterator[Outcome]]
Judge = Callable[[Item, Outcome], Outcome]


def store_shards(
    source: Path,
    items: Sequence[Item],
    out: Path,
    read: Read,
    judge: Judge,
    per_shard: int = PER_SHARD,
) -> Iterator[Outcome]:
    """Write the items' media, `per_shard` items to a shard, and give what became of each in order.

    Args:
        source: The corpus's folder.
        items: What to store.
        out: The pair set's folder.
        read: Gives the outcome of each item.
        judge: Has the last word on an outcome; is asked in the items' order.
        per_shard: Items, not members: those that are lost leave no member.
    """
    blocks = [items[start : start + per_shard] for start in range(0, len(items), per_shard)]
    plans = [_plan(source, block) for block in blocks]
    journals = [_read_journal(out, number, plan) for number, plan in enumerate(plans)]
    lacking = (block for block, rows in zip(blocks, journals, strict=True) if rows is None)
    fresh = read(itertools.chain.from_iterable(lacking))
    for number, (block, plan, rows) in enumerate(zip(blocks, plans, journals, strict=True)):
        outcomes = fresh
        if rows is not None:
            judged = [judge(item, row.read) for item, row in zip(block, rows, strict=True)]
            if [outcome.status for outcome in judged] == [row.judged for row in rows]:
                yield from judged
                continue
            outcomes = read(block)  # another shard has changed, and with it what is a copy of what
        yield from _write(out, number, plan, zip(block, outcomes, strict=False), judge)
    for path in (*out.glob("shard-*.tar"), *out.glob(".shard-*.jsonl")):
        if int(path.stem.rpartition("-")[2]) >= len(blocks):  # of a run over more items
            path.unlink()


class _Row(NamedTuple):
    """A line of a journal: what was read, without the bytes, and what was made of it."""

    read: Outcome
    judged: Status


def _write(
    out: Path, number: int, plan: str, outcomes: Iterable[tuple[Item, Outcome]], judge: Judge
) -> list[Outcome]:
    tar, journal = _paths(out, number)
    journal.unlink(missing_ok=True)  # from here on it does not fit the shard
    rows, done = [], []
    with atomic_write(tar) as part, _open(part) as shard:
        for item, outcome in outcomes:
            judged = judge(item, outcome)
            if judged.status == "done":
                _add(shard, f"{item.id}.jpg", judged.frame)
                _add(shard, f"{item.id}.flac", judged.sound)
            rows.append(
                (outcome.status, outcome.reason, outcome.used, outcome.digest, judged.status)
            )
            done.append(dataclasses.replace(judged, frame=b"", sound=b""))
    head = {"plan": plan, "size": tar.stat().st_size}
    write_text(journal, "".join(json.dumps(row) + "\n" for row in (head, *rows)))
    return done


def _read_journal(out: Path, number: int, plan: str) -> list[_Row] | None:
    """What became of a shard's items; None if the shard must be made (again)."""
    tar, journal = _paths(out, number)
    try:
        size = tar.stat().st_size
        head, *lines = map(json.loads, journal.read_text(encoding="utf-8").splitlines())
        if head != {"plan": plan, "size": size}:
            return None
        return [
            _Row(Outcome(status, reason, tuple(used), digest), judged)
            for status, reason, used, digest, judged in lines
        ]
    except (OSError, ValueError):
        return None


def _paths(out: Path, number: int) -> tuple[Path, Path]:
    return out / f"shard-{number:06d}.tar", out / f".shard-{number:06d}.jsonl"


def _plan(source: Path, items: Sequence[Item]) -> str:
    """A digest of a shard's items, their files and the files' sizes."""
    digest = hashlib.sha256()
    for item in items:
        files = [(name, _size(source / name)) for name in itertools.chain(*item.choices)]
        row = (item.id, item.name, item.at, item.absent, item.choices, files)
        digest.update(json.dumps(row).encode())
    return digest.hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _open(path: Path) -> tarfile.TarFile:
    return tarfile.open(path, mode="w", format=tarfile.PAX_FORMAT)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def pack(pairset: PairSet, out: Path, frames_per_shard: int = PER_SHARD) -> PairSet:
    """Copy a pair set into tar shards that WebDataset reads too.

    A sound follows the first frame that uses it; pooled sounds come last. Member names lose their
    folder, as WebDataset's samples are members of one name with different suffixes. Files beside
    the pair set's own, such as ESC-VOC's training boxes, stay behind.
    """
    if out.resolve() == pairset.root.resolve():
        raise SoundspotError(f"{out} is the pair set itself: choose another folder for its shards")
    rename = _flat_names(pairset)
    writer = PairWriter(out, pairset.name, pairset.pairing, pairset.provenance)
    with writer.locked():
        return _pack(pairset, writer, rename, frames_per_shard)


def _pack(
    pairset: PairSet, writer: PairWriter, rename: Mapping[str, str], frames_per_shard: int
) -> PairSet:
    groups = [[p.frame] if p.audio is None else [p.frame, p.audio] for p in pairset.pairs]
    groups += [[sound.audio] for sound in pairset.sounds]
    written: set[str] = set()
    for number, start in enumerate(range(0, len(groups), frames_per_shard)):
        names = dict.fromkeys(itertools.chain(*groups[start : start + frames_per_shard]))
        with atomic_write(_paths(writer.root, number)[0]) as part, _open(part) as tar:
            for name in (name for name in names if name not in written):
                _add(tar, rename[name], pairset.read(name))
        written |= names.keys()
    pairs = [
        dataclasses.replace(p, frame=rename[p.frame], audio=p.audio and rename[p.audio])
        for p in pairset.pairs
    ]
    sounds = [dataclasses.replace(s, audio=rename[s.audio]) for s in pairset.sounds]
    ledger = pairset.root / LEDGER
    rows = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    return writer.finish(pairs, sounds, [Entry(**json.loads(row)) for row in rows]).pairset


def _flat_names(pairset: PairSet) -> dict[str, str]:
    rows: list[Pair | Sound] = [*pairset.pairs, *pairset.sounds]
    names = {row.audio for row in rows if row.audio is not None}
    names |= {pair.frame for pair in pairset.pairs}
    rename = {name: PurePosixPath(name).name for name in sorted(names)}
    twice = [name for name, n in Counter(rename.values()).items() if n > 1]
    if twice:
        raise SoundspotError(f"{pairset.root} has two files called {twice[0]}: cannot be packed")
    return rename
