"""A folder of videos -> a pair set: the middle frame of each, and the 3 s around it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from soundspot.common.files import list_files, make_id
from soundspot.data.corpus_files import CorpusItem, check_folders, draw_subset, split_of
from soundspot.data.options import HERE_SPLIT, SplitOptions
from soundspot.data.preparation import MIDDLE, PreparePlan, run_plan
from soundspot.data.writer import LedgerEntry, Status, Summary
from soundspot.media import SOUNDS, sound_of_picture


def prepare(
    source: Path, out: Path, options: SplitOptions = HERE_SPLIT, classes: bool = False
) -> Summary:
    """Turn every video under `source` into a pair, and every picture with a sound beside it.

    Every file is tried, whatever its name. The summary and ledger.jsonl say which files gave no
    pair, and why. With `classes` the name of the first sub-folder is the class.
    """
    check_folders(source, out)
    files = list_files(source)
    hidden = [file for file in files if file.name[0] == "."]
    notes = [LedgerEntry(file.as_posix(), "ignored", "is hidden") for file in hidden]
    items = list(_items([file for file in files if file.name[0] != "."], options, classes))
    if options.listed is not None:
        names = {name: item for item in items for name in (item.id, item.name)}
        items = list({names[id].name: names[id] for id in options.listed if id in names}.values())
        unknown = [id for id in options.listed if id not in names]
        notes += [LedgerEntry(id, "missing", "no file has this id or path") for id in unknown]
    items = draw_subset(items, options.subset, options.seed)
    rules = {"corpus": "folder", **MIDDLE, "classes": classes, **options.rules()}
    return run_plan(PreparePlan(source.resolve().name, source, rules, items, notes), out, options)


def _items(files: Sequence[PurePath], options: SplitOptions, classes: bool) -> Iterator[CorpusItem]:
    same: dict[str, list[PurePath]] = defaultdict(list)
    for file in files:
        same[make_id(file).casefold()].append(file)  # some systems ignore case
    for file in files:
        id = make_id(file)
        group = same[id.casefold()]
        sound = sound_of_picture(group)
        if sound is not None and file.suffix.lower() in SOUNDS:
            continue  # it belongs to its picture
        choice = (file.as_posix(),) if sound is None else (file.as_posix(), sound.as_posix())
        absent: tuple[Status, str] | None = None
        if len(group) > 1 and sound is None:
            others = ", ".join(other.as_posix() for other in group if other != file)
            absent = ("duplicate", f"gives the same id {id} as {others}")
        elif classes and len(file.parts) < 2:
            absent = ("not understood", f"{file} lies in no sub-folder, so it has no class")
        yield CorpusItem(
            name=file.as_posix(),
            id=id,
            split=split_of(id, options),
            choices=(choice,),
            cls=file.parts[0] if classes and len(file.parts) > 1 else None,
            absent=absent,
        )
