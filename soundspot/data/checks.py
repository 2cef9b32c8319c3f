"""What is wrong with a pair set: unreadable, changed or silent media, bad boxes, leaking splits."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Literal

from soundspot.common.progress import progress
from soundspot.data.manifest import Pair, Sound, media_digest
from soundspot.data.pair_set import ItemError, PairSet, Problem, decode_frame, decode_sound
from soundspot.media.clips import is_silent


def find_problems(pairset: PairSet) -> Iterator[Problem]:
    """Yield everything that is wrong with a pair set, reading every file once.

    Missing, unreadable, wrong-size and silent media, boxes without area, leaks (the same frame or
    sound in two splits), and media that changed since the manifest was written. A duet split
    belongs to the split it is made from.
    """
    yield from pairset.shards.damaged
    for pair in pairset.pairs:
        for box in (box for annotator in pair.boxes or () for box in annotator):
            if not (box[0] < box[2] and box[1] < box[3]):
                yield Problem("box", pair.id, f"has a box without area: {list(box)}")
    frames: dict[str, set[str]] = defaultdict(set)
    sounds: dict[str, set[str]] = defaultdict(set)
    rows: list[Pair | Sound] = [*pairset.pairs, *pairset.sounds]
    for item in rows:
        family = item.split.removeprefix("duets-")
        if isinstance(item, Pair):
            frames[item.frame].add(family)
        if item.audio is not None:
            sounds[item.audio].add(family)
    digests: dict[str, bytes] = {}
    yield from _check_media(pairset, frames, "frames", digests)
    yield from _check_media(pairset, sounds, "sounds", digests)
    for pair in pairset.pairs:
        frame, sound = digests.get(pair.frame), digests.get(pair.audio or "")
        if pair.digest and frame and sound and media_digest(frame, sound) != pair.digest:
            yield Problem("changed", pair.id, "has changed since it was prepared")


def _check_media(
    pairset: PairSet,
    splits: Mapping[str, set[str]],
    what: Literal["frames", "sounds"],
    digests: dict[str, bytes],
) -> Iterator[Problem]:
    same: dict[bytes, list[str]] = defaultdict(list)
    for name in progress(splits, f"checking {what}"):
        try:
            data = pairset.read(name)
            digests[name] = hashlib.sha256(data).digest()
            same[digests[name]].append(name)
            if what == "frames":
                decode_frame(data, name)
            elif is_silent(decode_sound(data, name)):
                yield Problem("silent", name, "is silent")
        except ItemError as error:
            yield error.problem
    for names in same.values():
        families = {family for name in names for family in splits[name]}
        if len(families) > 1:
            uses = ", ".join(f"{name} ({' and '.join(sorted(splits[name]))})" for name in names)
            yield Problem("leak", names[0], f"is in more than one split: {uses}")
