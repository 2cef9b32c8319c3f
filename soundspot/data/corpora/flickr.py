"""SoundNet-Flickr -> a pair set: the middle frame of each video and the 3 s around it.

It may be the videos themselves, or frames and sounds laid out as released or repackaged:

    videos2/4/8/1/6/6/3/4/4/6248166344.mp4
    frames/videos2/4/8/1/6/6/3/4/4/6248166344.mp4/*.jpg  with  mp3/videos2/.../6248166344.mp3
    frames/6248166344.jpg  with  audio/6248166344.wav

From a folder of frames the middle one is used, with the middle 3 s of the sound.
"""

import re
from pathlib import Path

from soundspot.data.corpus_files import find_items, hold_out
from soundspot.data.options import HERE_SPLIT, SplitOptions
from soundspot.data.preparation import MIDDLE, PreparePlan, run_plan
from soundspot.data.writer import Summary

# Frame numbers are shorter or start with zeros. Flickr itself names a download
# <id>_<secret>_<size>.
NAME = re.compile(r"([1-9]\d{5,})(_[0-9a-f]{10}(_\w+)?)?")


def parse(name: str) -> str | None:
    """The id in a name without its suffix."""
    match = NAME.fullmatch(name)
    return match[1] if match else None


def prepare(source: Path, out: Path, options: SplitOptions = HERE_SPLIT) -> Summary:
    """Turn SoundNet-Flickr, or the part of it that you have, into a pair set."""
    items, notes = find_items(source, out, parse, "6248166344.mp4", options)
    items, held = hold_out(items)
    rules = {"corpus": "flickr", **MIDDLE, **options.rules(), **held}
    return run_plan(PreparePlan("flickr", source, rules, items, notes), out, options)
