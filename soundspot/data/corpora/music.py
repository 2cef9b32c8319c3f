"""MUSIC -> a pair set: the middle frame of each solo or duet and the 3 s around it.

Its lists (MUSIC_solo_videos.json, MUSIC_duet_videos.json, MUSIC21_solo_videos.json) are
{"videos": {class: [YouTube ids]}}. A video is named by its id, or as download programs name it:
Title [id].webm, Title-id.mp4.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from soundspot.common.config import parse_json, read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.data.corpus_files import ParseId, find_items
from soundspot.data.options import HERE_SPLIT, SplitOptions, digest_of
from soundspot.data.preparation import MIDDLE, PreparePlan, run_plan
from soundspot.data.writer import LedgerEntry, Summary

LISTS = "MUSIC*.json"
NAME = re.compile(r"(?:.*[-\[ ])?([A-Za-z0-9_-]{11})\]?", re.DOTALL)


def prepare(
    source: Path, out: Path, options: SplitOptions = HERE_SPLIT, lists: Sequence[Path] = ()
) -> Summary:
    """Turn MUSIC, or the part of it that you have, into a pair set with classes.

    `lists` are MUSIC's JSON lists; default: those in the source folder.
    """
    lists = lists or sorted(source.glob(LISTS))
    if not lists:
        raise SoundspotError(f"no {LISTS} in {source}: give MUSIC's lists of videos")
    classes, twice = read_class_lists(lists)
    parse = make_parser(classes)
    items, notes = find_items(source, out, parse, "zsD-W-0xF4Y.mp4", options, only=tuple(classes))
    items = [replace(item, cls=classes[item.id]) for item in items]
    rules = {"corpus": "music", **MIDDLE, "val": options.val, "test": options.test}
    if options.listed is None:
        rules["ids"] = digest_of("\n".join(classes))
    rules |= options.rules() | {"classes": digest_of(repr(sorted(classes.items())))}
    return run_plan(PreparePlan("music", source, rules, items, [*notes, *twice]), out, options)


def make_parser(known: Collection[str]) -> ParseId:
    """A parser of names that end in one of the known ids."""

    def parse(name: str) -> str | None:
        match = NAME.fullmatch(name)
        return match[1] if match and match[1] in known else None

    return parse


def read_class_lists(paths: Sequence[Path]) -> tuple[dict[str, str], list[LedgerEntry]]:
    """The class of each id, and a note for each id that is listed under a second class."""
    classes: dict[str, str] = {}
    notes = []
    for path in paths:
        try:
            videos = parse_json(read_bytes(path))["videos"]
            rows = [(str(id), str(cls)) for cls, ids in videos.items() for id in ids]
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise SoundspotError(f"{path} is not a list of MUSIC's videos ({error!r})") from error
        for id, cls in rows:
            first = classes.setdefault(id, cls)
            if first != cls:
                reason = f"is also listed as {cls}; {first} was used"
                notes.append(LedgerEntry(id, "duplicate", reason))
    return classes, notes
