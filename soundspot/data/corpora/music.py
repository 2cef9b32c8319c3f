"""MUSIC -> a pair set: the middle frame of each solo or duet and the 3 s around it.

Its lists (MUSIC_solo_videos.json, MUSIC_duet_videos.json, MUSIC21_solo_videos.json) are
{"videos": {class: [YouTube ids]}}. A video is called by its id, or as download programs do:
Title [id].webm, Title-id.mp4.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.data.finding import (
    EVERYTHING,
    Parse,
    Selection,
    digest_of,
    make_items,
    select_clips,
)
from soundspot.data.preparation import HERE, Plan, Work, run_plan
from soundspot.data.writer import Entry, Summary

LISTS = "MUSIC*.json"
NAME = re.compile(r"(?:.*[-\[ ])?([A-Za-z0-9_-]{11})\]?", re.DOTALL)


def prepare(
    source: Path,
    out: Path,
    selection: Selection = EVERYTHING,
    work: Work = HERE,
    lists: Sequence[Path] = (),
) -> Summary:
    """Turn MUSIC, or what one has of it, into a pair set with classes.

    Args:
        source: The folder of videos.
        out: The pair set's folder.
        selection: Which ids, and how they are split; without ids, all that the lists name.
        work: How to go about it.
        lists: Its JSON lists; default: those in the source's folder.
    """
    lists = lists or sorted(source.glob(LISTS))
    if not lists:
        raise SoundspotError(f"no {LISTS} in {source}: give MUSIC's lists of videos")
    classes, twice = read_lists(lists)
    if selection.ids is None:
        selection = replace(selection, ids=tuple(classes))
    clips, notes = select_clips(source, out, parser(classes), "zsD-W-0xF4Y.mp4", selection)
    items = [replace(item, cls=classes[item.id]) for item in make_items(clips, selection)]
    rules = {"corpus": "music", "frame": "the middle one", "sound": "3 s around the frame"}
    rules |= selection.rules() | {"classes": digest_of(repr(sorted(classes.items())))}
    return run_plan(Plan("music", source, rules, items, [*notes, *twice]), out, work)


def parser(known: Collection[str]) -> Parse:
    """Understand a name if it ends in one of the ids of the lists."""

    def parse(name: str) -> str | None:
        found = NAME.fullmatch(name)
        return found[1] if found and found[1] in known else None

    return parse


def read_lists(paths: Sequence[Path]) -> tuple[dict[str, str], list[Entry]]:
    """The class of each id, and a note for each id that stands under a second class."""
    classes: dict[str, str] = {}
    notes = []
    for path in paths:
        try:
            videos = json.loads(path.read_text(encoding="utf-8"))["videos"]
            rows = [(str(id), str(cls)) for cls, ids in videos.items() for id in ids]
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise SoundspotError(
                f'{path} is not a list of MUSIC, {{"videos": {{class: [ids]}}}} ({error!r})'
            ) from error
        for id, cls in rows:
            first = classes.setdefault(id, cls)
            if first != cls:
                reason = f"is listed as {cls} too; {first} was taken"
                notes.append(Entry(id, "duplicate", reason))
    return classes, notes
