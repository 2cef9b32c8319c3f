"""Items of a corpus -> a pair set: every one is tried, by as many processes as allowed.

Processes only read; this one alone writes, in the items' order. So the output does not depend on
the engine, nor on the number of processes, nor on where a run was killed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from soundspot.common.progress import progress
from soundspot.data.items import Item, Outcome, crash, prepare_one
from soundspot.data.manifest import Pair
from soundspot.data.shards import store_shards
from soundspot.data.writer import Entry, PairWriter, Summary
from soundspot.parallel.engines import Engine, EngineName, check_visible, map_items


@dataclass(frozen=True)
class Plan:
    """A corpus, listed and not yet read.

    Attributes:
        name: Of the pair set.
        source: The corpus's folder.
        rules: How frames and sounds are chosen: the set's provenance.
        items: Every clip that should come out, in the manifest's order.
        notes: What the ledger should say besides.
        copies: Keep items that give the same frame and sound: a benchmark counts each.
    """

    name: str
    source: Path
    rules: Mapping[str, Any]
    items: Sequence[Item]
    notes: Sequence[Entry] = ()
    copies: bool = False


@dataclass(frozen=True)
class Work:
    """How to go about it; no pair depends on it.

    Attributes:
        jobs: Number of processes; None for one a core.
        tar: Store the media in tar shards instead of one file each.
        engine: Where the processes are.
    """

    jobs: int | None = 1
    tar: bool = False
    engine: EngineName = "local"


HERE = Work()


def run_plan(plan: Plan, out: Path, work: Work) -> Summary:
    """Make the pair set of a plan, or go on with it."""
    layout = {"layout": "tar"} if work.tar else {}
    writer = PairWriter(out, plan.name, "event", {**plan.rules, **layout})
    seen = None if plan.copies else dict[str, str]()
    judge = partial(_judge, seen)
    engine = Engine(work.engine, work.jobs)
    read = partial(_read, plan.source, None if work.tar else out, engine)
    with writer.locked():
        if work.tar:
            outcomes = store_shards(plan.source, plan.items, out, read, judge)
        else:
            outcomes = _store_files(plan.items, writer, read, judge)
        frames, sounds = ("", "") if work.tar else ("frames/", "sounds/")
        pairs: list[Pair] = []
        entries: list[Entry] = []
        items = progress(plan.items, "preparing clips")
        for item, outcome in zip(items, outcomes, strict=True):
            entries += _report(item, outcome)
            if outcome.status == "done":
                frame, sound = f"{frames}{item.id}.jpg", f"{sounds}{item.id}.flac"
                pairs.append(_pair(item, outcome, frame, sound))
        return writer.finish(pairs, (), [*entries, *plan.notes])


def _read(
    source: Path, stored: Path | None, engine: Engine, items: Iterable[Item]
) -> Iterator[Outcome]:
    # Another machine may see the same files, but is in no folder of ours.
    there = None if stored is None else stored.absolute()
    work = partial(_prepare_there, source=source.absolute(), stored=there)
    return map_items(work, items, engine, crash)


def _prepare_there(item: Item, source: Path, stored: Path | None) -> Outcome:
    """Prepare an item, but not where the whole corpus seems to be missing."""
    for folder in (source, stored):
        if folder is not None:
            check_visible(folder)
    return prepare_one(item, source, stored)


def _judge(seen: dict[str, str] | None, item: Item, outcome: Outcome) -> Outcome:
    """Refuse what an earlier item has given already; asked again it answers the same."""
    if seen is None or outcome.status != "done":
        return outcome
    first = seen.setdefault(outcome.digest, item.name)
    if first == item.name:
        return outcome
    return Outcome("duplicate", f"gives the same frame and sound as {first}", outcome.used)


def _store_files(
    items: Sequence[Item],
    writer: PairWriter,
    read: Callable[[Iterable[Item]], Iterator[Outcome]],
    judge: Callable[[Item, Outcome], Outcome],
) -> Iterator[Outcome]:
    for item, outcome in zip(items, read(items), strict=True):
        judged = judge(item, outcome)
        if judged.status == "done" and judged.frame:  # else an earlier run has stored it
            writer.store(f"frames/{item.id}.jpg", judged.frame)
            writer.store(f"sounds/{item.id}.flac", judged.sound)
        yield judged


def _report(item: Item, outcome: Outcome) -> list[Entry]:
    entries = [Entry(item.name, outcome.status, outcome.reason)]
    if outcome.status == "done":
        used = " and ".join(outcome.used)
        entries += [
            Entry(spare, "duplicate", f"is another file of {item.id}; {used} was taken")
            for spare in item.spares
            if spare not in outcome.used
        ]
    return entries


def _pair(item: Item, outcome: Outcome, frame: str, audio: str) -> Pair:
    return Pair(
        id=item.id,
        frame=frame,
        audio=audio,
        split=item.split,
        cls=item.cls,
        boxes=item.boxes,
        source=" + ".join(outcome.used),
        digest=outcome.digest,
    )
