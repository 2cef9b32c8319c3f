"""The label map, from the names of sounds to those of things: label_map.yaml, read and checked.

Every line of the file is one sounding thing: `thing: AudioSet names -> ImageNet classes`, several
separated by semicolons; `a ... b` takes all classes from a to b. Three keys say which sounds a
learned model can locate itself (see `model.evidence`): `learned` and `related`, by class, and
`broad`.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from soundspot.common.config import read_yaml
from soundspot.common.errors import SoundspotError

LABEL_MAP = Path(__file__).with_name("label_map.yaml")
KEYS = ("learned", "related", "broad")  # not things
OLD_KEYS = {"kin": "related", "wide": "broad"}  # as files of version 0.2 say


class Thing(NamedTuple):
    """One line of the label map, its sounds and classes as numbers."""

    name: str
    sounds: tuple[int, ...]
    classes: tuple[int, ...]


class LabelMap(NamedTuple):
    """A label map: its lines; sounds that models learned, related ones, and too broad ones."""

    things: tuple[Thing, ...]
    learned: tuple[int, ...] = ()
    related: tuple[int, ...] = ()
    broad: tuple[int, ...] = ()


def read_label_map(path: Path, sound_names: Sequence[str], class_names: Sequence[str]) -> LabelMap:
    """Read a label map; a line of another form, or an unknown name, is refused.

    `sound_names` and `class_names` are in the order of the scores of the two classifiers.
    """
    sounds = {name: number for number, name in enumerate(sound_names)}
    classes = {name: number for number, name in enumerate(class_names)}
    lines = {OLD_KEYS.get(key, key): line for key, line in read_yaml(path, "label map").items()}
    listed = {key: _listed(lines.pop(key, None), sounds, f"{path}, {key!r}") for key in KEYS}
    things = []
    for name, line in lines.items():
        where = f"{path}, {str(name)!r}"
        heard, arrow, seen = str(line).partition("->")
        if not arrow:
            raise SoundspotError(f"{where}: expected AudioSet names -> ImageNet classes")
        heard_numbers = _sounds(heard, sounds, where)
        seen_numbers = [k for part in seen.split(";") for k in _range(part, classes, where)]
        things.append(Thing(str(name), heard_numbers, _unique(seen_numbers)))
    if not things:
        raise SoundspotError(f"{path} has no lines")
    return LabelMap(tuple(things), **listed)


def _listed(value: Any, sounds: Mapping[str, int], where: str) -> tuple[int, ...]:
    """The sounds of a key: none, a line, or lines by class."""
    if value is None:
        return ()
    lines = value if isinstance(value, dict) else {"": value}
    found = [_sounds(str(line), sounds, f"{where} {name}".strip()) for name, line in lines.items()]
    return _unique([number for numbers in found for number in numbers])


def _sounds(words: str, sounds: Mapping[str, int], where: str) -> tuple[int, ...]:
    return _unique([_find(part, sounds, "AudioSet sound", where) for part in words.split(";")])


def _range(words: str, classes: Mapping[str, int], where: str) -> range:
    first, _, last = words.partition("...")
    start = _find(first, classes, "ImageNet class", where)
    stop = _find(last, classes, "ImageNet class", where) if last else start
    if stop < start:
        raise SoundspotError(f"{where}: {last.strip()!r} comes before {first.strip()!r}")
    return range(start, stop + 1)


def _find(words: str, numbers: Mapping[str, int], kind: str, where: str) -> int:
    name = words.strip()
    if not name:
        raise SoundspotError(f"{where}: a name is missing, expected an {kind}")
    if name not in numbers:
        close = difflib.get_close_matches(name, list(numbers), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise SoundspotError(f"{where}: there is no {kind} {name!r}{hint}")
    return numbers[name]


def _unique(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers))
