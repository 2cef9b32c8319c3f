"""SoundNet-Flickr -> a pair set: the middle frame of each video and the 3 s around it.

Accepted are the videos themselves, the release's own layout, and what others made of it:

    videos2/4/8/1/6/6/3/4/4/6248166344.mp4
    frames/videos2/4/8/1/6/6/3/4/4/6248166344.mp4/*.jpg  with  mp3/videos2/.../6248166344.mp3
    frames/6248166344.jpg  with  audio/6248166344.wav

Of a folder of frames the middle one is taken, with the middle 3 s of the sound.
"""

import re
from pathlib import Path

from soundspot.data.finding import EVERYTHING, Selection, make_items, select_clips
from soundspot.data.preparation import HERE, Plan, Work, run_plan
from soundspot.data.writer import Summary

# Numbers of frames are shorter or begin with zeros. Flickr itself calls a download
# <id>_<secret>_<size>.
NAME = re.compile(r"([1-9]\d{5,})(_[0-9a-f]{10}(_\w+)?)?")


def parse(name: str) -> str | None:
    """The id in a name without its suffix."""
    found = NAME.fullmatch(name)
    return found[1] if found else None


def prepare(
    source: Path, out: Path, selection: Selection = EVERYTHING, work: Work = HERE
) -> Summary:
    """Turn SoundNet-Flickr, or what one has of it, into a pair set.

    Args:
        source: The folder of videos, or of frames and sounds.
        out: The pair set's folder.
        selection: Which ids, and how they are split.
        work: How to go about it.
    """
    clips, notes = select_clips(source, out, parse, "6248166344.mp4", selection)
    rules = {"corpus": "flickr", "frame": "the middle one", "sound": "3 s around the frame"}
    plan = Plan("flickr", source, rules | selection.rules(), make_items(clips, selection), notes)
    return run_plan(plan, out, work)
