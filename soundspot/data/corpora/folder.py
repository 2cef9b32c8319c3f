"""A folder of videos -> a pair set: the middle frame of each, and the 3 s around it."""

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from soundspot.data.finding import EVERYTHING, Selection, check_places, draw, list_files
from soundspot.data.items import PICTURES, SOUNDS, Item
from soundspot.data.manifest import hash_split
from soundspot.data.preparation import HERE, Plan, Work, run_plan
from soundspot.data.writer import Entry, Status, Summary

LONGEST_ID = 200  # bytes; a file name may have 255 with its suffix


def prepare(
    source: Path,
    out: Path,
    selection: Selection = EVERYTHING,
    work: Work = HERE,
    classes: bool = False,
) -> Summary:
    """Turn every video under `source` into a pair, and every picture that has a sound beside it.

    Every file is tried, whatever its name. What gives no pair stands in the summary and in
    ledger.jsonl with its reason.

    Args:
        source: The folder of videos, with or without sub-folders.
        out: The pair set's folder.
        selection: Which of them, by id or path, and how they are split.
        work: How to go about it.
        classes: Take the name of the first sub-folder as the class.
    """
    check_places(source, out)
    files = list_files(source)
    notes = [
        Entry(file.as_posix(), "ignored", "is hidden") for file in files if file.name[0] == "."
    ]
    items = list(_items([file for file in files if file.name[0] != "."], selection, classes))
    if selection.ids is not None:
        names = {name: item for item in items for name in (item.id, item.name)}
        chosen = {names[id].name: names[id] for id in selection.ids if id in names}
        items = list(chosen.values())
        notes += [
            Entry(id, "missing", "no file has this id or path")
            for id in selection.ids
            if id not in names
        ]
    items = draw(items, lambda item: item.name, selection.subset, selection.seed)
    rules = {"corpus": "folder", "frame": "the middle one", "sound": "3 s around the frame"}
    rules |= {"classes": classes} | selection.rules()
    return run_plan(Plan(source.resolve().name, source, rules, items, notes), out, work)


def make_id(item: PurePath) -> str:
    """An id that is a file name everywhere, from a path relative to the corpus.

    Folders are joined by two underscores; letters and digits of any script, "_" and "-" stay;
    anything else becomes "_". A long name is cut and ends in a hash of the whole.
    """
    path = unicodedata.normalize("NFC", item.with_suffix("").as_posix())
    name = re.sub(r"[^\w-]", "_", path.replace("/", "__"))
    if len(name.encode()) <= LONGEST_ID:
        return name
    digest = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{name.encode()[: LONGEST_ID - 13].decode(errors='ignore')}-{digest}"


def _items(files: Sequence[PurePath], selection: Selection, classes: bool) -> Iterator[Item]:
    same: dict[str, list[PurePath]] = defaultdict(list)
    for file in files:
        same[make_id(file).casefold()].append(file)  # upper and lower case are one to some systems
    for file in files:
        id = make_id(file)
        group = same[id.casefold()]
        sound = _sound_beside(group)
        if sound is not None and file.suffix.lower() in SOUNDS:
            continue  # it comes with its picture
        choice = (file.as_posix(),) if sound is None else (file.as_posix(), sound.as_posix())
        absent: tuple[Status, str] | None = None
        if len(group) > 1 and sound is None:
            others = ", ".join(other.as_posix() for other in group if other != file)
            absent = ("duplicate", f"gives the same id {id} as {others}")
        elif classes and len(file.parts) < 2:
            absent = ("not understood", f"{file} lies in no sub-folder, so it has no class")
        yield Item(
            name=file.as_posix(),
            id=id,
            split=hash_split(id, selection.val, selection.test),
            choices=(choice,),
            cls=file.parts[0] if classes and len(file.parts) > 1 else None,
            absent=absent,
        )


def _sound_beside(group: Sequence[PurePath]) -> PurePath | None:
    """The sound of a picture, if the two are all that has this id."""
    sounds = [file for file in group if file.suffix.lower() in SOUNDS]
    pictures = [file for file in group if file.suffix.lower() in PICTURES]
    return sounds[0] if len(group) == 2 and len(sounds) == len(pictures) == 1 else None
