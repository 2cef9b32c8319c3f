"""VGG-SS -> a pair set: the frame its boxes were drawn on, and the 3 s around it.

That is frame 125 of a clip at 25 frames per second: second 5 of 10. Clips are named as in
VGG-Sound.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from soundspot.common.config import parse_json, read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.data.corpora.vggsound import EXAMPLE, parse
from soundspot.data.corpus_files import find_items
from soundspot.data.manifest import Box
from soundspot.data.options import HERE, Options, digest_of
from soundspot.data.preparation import PreparePlan, run_plan
from soundspot.data.writer import Summary

ANNOTATIONS = "vggss.json"
SECOND = 125 / 25


def prepare(
    source: Path, out: Path, options: Options = HERE, annotations: Path | None = None
) -> Summary:
    """Turn the clips of VGG-SS into a pair set with one split, test.

    `annotations` is the folder of vggss.json, for classes and boxes; without a list all of its ids
    are looked for.
    """
    truth = {} if annotations is None else read_truth(annotations / ANNOTATIONS)
    items, notes = find_items(source, out, parse, EXAMPLE, options, SECOND, tuple(truth) or None)
    for number, item in enumerate(items):
        if item.id in truth:
            cls, boxes = truth[item.id]
            items[number] = replace(item, cls=cls, boxes=(boxes,))
    rules: dict[str, Any] = {
        "corpus": "vggss",
        "frame": "frame 125 at 25 fps",
        "sound": "3 s around the frame",
    }
    rules |= {"val": 0.0, "test": 1.0}
    if truth and options.listed is None:
        rules["ids"] = digest_of("\n".join(truth))
    rules |= options.rules() | {"boxes": bool(truth)}
    return run_plan(PreparePlan("vggss", source, rules, items, notes, copies=True), out, options)


def read_truth(path: Path) -> dict[str, tuple[str, tuple[Box, ...]]]:
    """The class and boxes of each id; boxes are clipped to the frame, as some extend beyond it."""
    try:
        truth = {
            str(row["file"]): (str(row["class"]), tuple(_inside(box) for box in row["bbox"]))
            for row in parse_json(read_bytes(path))
        }
    except FileNotFoundError as error:
        raise SoundspotError(f"no {path.name} in {path.parent}: is this VGG-SS?") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SoundspotError(f"{path} is not VGG-SS's list of boxes ({error!r})") from error
    if not truth:
        raise SoundspotError(f"{path} is not VGG-SS's list: it is empty")
    return truth


def _inside(box: Iterable[int | float]) -> Box:
    x1, y1, x2, y2 = (min(max(float(v), 0.0), 1.0) for v in box)
    return x1, y1, x2, y2
