"""Items of a corpus -> a pair set: every item is tried, in as many processes as allowed.

The processes only read; this one alone writes, in the items' order. So the output depends neither
on the engine, nor on the number of processes, nor on where a run was killed.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from soundspot.common.config import from_dict, parse_json
from soundspot.common.errors import SoundspotError
from soundspot.common.files import explain_write_errors
from soundspot.common.progress import progress
from soundspot.data.corpus_files import CorpusItem, Kept, Outcome, prepare_item
from soundspot.data.manifest import Pair, write_rows
from soundspot.data.options import Options
from soundspot.data.writer import LedgerEntry, PairWriter, Summary
from soundspot.parallel.engines import CRASHED, Engine, check_visible, map_items


@dataclass(frozen=True)
class PreparePlan:
    """A corpus, listed but not yet read: every clip of it, in the manifest's order.

    `rules` say how frames and sounds are chosen: the set's provenance. `notes` are further entries
    for the ledger. With `copies`, items of the same frame and sound stay: a benchmark counts each.
    """

    name: str
    source: Path
    rules: Mapping[str, Any]
    items: Sequence[CorpusItem]
    notes: Sequence[LedgerEntry] = ()
    copies: bool = False


RECORD = ".prepared.jsonl"  # a line of `Kept` per pair, written as it is stored
MIDDLE = {"frame": "the middle one", "sound": "3 s around the frame"}  # rules of most corpora


def run_plan(plan: PreparePlan, out: Path, options: Options) -> Summary:
    """Make the pair set of a plan, or resume making it."""
    writer = PairWriter(out, plan.name, "event", plan.rules)
    # Another machine may see the same files, but has another working directory.
    prepare = partial(_prepare_there, source=plan.source.absolute(), stored=out.absolute())
    with writer.locked():
        kept = _read_record(out / RECORD)
        jobs = ((item, kept.get(item.id)) for item in plan.items)
        engine = Engine(options.engine, options.jobs)
        read = map_items(prepare, jobs, engine, lambda _: Outcome("unreadable", CRASHED))
        outcomes = _store_files(plan, writer, read)
        pairs: list[Pair] = []
        entries: list[LedgerEntry] = []
        record: list[Kept] = []
        items = progress(plan.items, "preparing clips")
        for item, outcome in zip(items, outcomes, strict=True):
            entries += _ledger_entries(item, outcome)
            if outcome.status == "done":
                pair = Pair(
                    id=item.id,
                    frame=f"frames/{item.id}.jpg",
                    audio=f"sounds/{item.id}.flac",
                    split=item.split,
                    cls=item.cls,
                    boxes=item.boxes,
                    source=" + ".join(outcome.used),
                    digest=outcome.digest,
                )
                pairs.append(pair)
                record.append(Kept(item.id, outcome.digest, outcome.inputs))
        write_rows(out / RECORD, record)  # in the items' order, without those that are gone
        return writer.finish(pairs, (), [*entries, *plan.notes])


def _prepare_there(job: tuple[CorpusItem, Kept | None], source: Path, stored: Path) -> Outcome:
    """Prepare an item, but not where the whole corpus seems to be missing."""
    check_visible(source)
    check_visible(stored)
    return prepare_item(job[0], source, stored, job[1])


def _read_record(path: Path) -> dict[str, Kept]:
    """What earlier runs stored; the last line of a run that was killed may be torn."""
    kept: dict[str, Kept] = {}
    with suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError, AttributeError, SoundspotError):
                row = from_dict(Kept, parse_json(line))
                kept[row.id] = row
    return kept


def _judge(seen: dict[str, str], item: CorpusItem, outcome: Outcome) -> Outcome:
    """Refuse what equals an earlier item."""
    if outcome.status != "done":
        return outcome
    first = seen.setdefault(outcome.digest, item.name)
    if first == item.name:
        return outcome
    return Outcome("duplicate", f"has the same frame and sound as {first}", outcome.used)


def _store_files(
    plan: PreparePlan, writer: PairWriter, outcomes: Iterable[Outcome]
) -> Iterator[Outcome]:
    path = writer.root / RECORD
    seen: dict[str, str] = {}
    with explain_write_errors(path), path.open("a", encoding="utf-8", buffering=1) as record:
        for item, outcome in zip(plan.items, outcomes, strict=True):
            judged = outcome if plan.copies else _judge(seen, item, outcome)
            if judged.status == "done" and judged.frame:  # else an earlier run has stored it
                writer.store(f"frames/{item.id}.jpg", judged.frame)
                writer.store(f"sounds/{item.id}.flac", judged.sound)
                row = Kept(item.id, judged.digest, judged.inputs)
                record.write(json.dumps(asdict(row)) + "\n")
            yield dataclasses.replace(judged, frame=b"", sound=b"")


def _ledger_entries(item: CorpusItem, outcome: Outcome) -> list[LedgerEntry]:
    entries = [LedgerEntry(item.name, outcome.status, outcome.reason)]
    if outcome.status == "done":
        used = " and ".join(outcome.used)
        entries += [
            LedgerEntry(spare, "duplicate", f"is another file of {item.id}; {used} was used")
            for spare in item.spares
            if spare not in outcome.used
        ]
    return entries
