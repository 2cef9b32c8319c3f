"""Localize many files, from Python or to a folder.

    OUT/localizations.jsonl     one line per file, in sorted order; written when all is done
    OUT/NAME-soundspot.png      the picture of NAME.mp4, in the folder that NAME.mp4 was in
    OUT/NAME-soundspot.npy      its map S
    OUT/localize.json           the model that made them

Worker processes only read; this one alone writes, in order, and each file goes through the model
alone: the bytes depend neither on the engine nor on the number of processes. What is done stands in
a journal (.journal.jsonl); a later run keeps it for the files that are the same.
"""

import io
import json
import os
import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from soundspot.common import files
from soundspot.common.config import parse_json, read_bytes
from soundspot.common.errors import MediaError, SoundspotError
from soundspot.common.files import file_size, list_files
from soundspot.common.id_lists import read_ids
from soundspot.common.progress import progress
from soundspot.inference import outputs
from soundspot.inference.files import At, localize
from soundspot.inference.localizer import Localizer
from soundspot.inference.models import absolute_name, load, open_model
from soundspot.inference.result import Localization
from soundspot.media import SOUNDS, sound_of_picture
from soundspot.media.writing import is_video_name
from soundspot.parallel.devices import AUTO, torch_threads
from soundspot.parallel.engines import CRASHED, SERIAL, Engine, check_visible, map_loaded

ABOUT = "localize.json"
LINES = "localizations.jsonl"
JOURNAL = ".journal.jsonl"
ENDING = "-soundspot"  # of the names of pictures and maps
FileAnswer = tuple[Path, Localization | SoundspotError]
KEPT = ("at", "width", "height", "box", "mask", "score", "verdict", "caption", "evidence", "labels")
FORMAT = 4  # raise it when the same files and model would give other results


@dataclass(frozen=True)
class BatchJob:
    """Many files to localize, and what to write; `source` is a folder, or a list of files."""

    source: Path
    out: Path
    model: str | None = None
    pictures: bool = True
    outline: bool = True
    at: At = "best"
    engine: Engine = field(default_factory=Engine)
    device: str = AUTO


@dataclass(frozen=True)
class BatchItem:
    """A file to localize, the sound of a photograph, and how the names of its results begin.

    A size of -1 means that the file is missing.
    """

    name: str
    audio: str | None
    sizes: tuple[int, ...]
    stem: str

    def names(self) -> dict[str, Any]:
        """How its line begins."""
        return {"path": self.name} | ({} if self.audio is None else {"audio": self.audio})


@dataclass(frozen=True, eq=False)
class ItemResult:
    """The line of an item and, if it was localized, its map and picture (PNG)."""

    line: Mapping[str, Any]
    similarity: NDArray[np.float32] | None = None
    picture: bytes = b""


def run_batch(job: BatchJob, say: Callable[[str], None]) -> int:
    """Localize the files that are not done yet, report the counts, and return how many worked."""
    root, items = _find(job)
    model = absolute_name(job.model)
    localizer = load(model, job.device)
    if localizer.device.type != "cpu" and job.engine == Engine():
        job = replace(job, engine=SERIAL)  # processes would only wait for each other on one GPU
    digest = localizer.digest
    about = {"format": FORMAT, "weights": digest, "pictures": job.pictures, "at": job.at}
    about["outline"] = job.outline
    notes = {"model": localizer.name, "trained": localizer.card.trained}
    notes["threshold"] = localizer.threshold
    del localizer  # every process loads it again
    with _locked(job.out, about, notes):
        how = job.pictures, job.at, job.outline
        load_there = partial(_load, model, job.device, digest, root, how)
        counts = _write(job, items, load_there)
    done = counts.pop("", 0)
    faults = "".join(f", {count} {fault}" for fault, count in sorted(counts.items()))
    say(f"{len(items)} file{'' if len(items) == 1 else 's'}: {done} localized{faults}")
    say(f"results: {job.out / LINES}")
    return done


def _find(job: BatchJob) -> tuple[Path, list[BatchItem]]:
    """The files in sorted order and the folder that their names start from."""
    source, out = job.source, job.out
    if out.suffix.lower() in outputs.PICTURE_FORMATS or is_video_name(out) or out.is_file():
        raise SoundspotError(f"{source} is a folder or list: expected an output folder, got {out}")
    if source.is_dir():
        if out.resolve().is_relative_to(source.resolve()):
            raise SoundspotError(f"{out} is inside {source}: its files would be localized too")
        root = source.absolute()
        names = [file.as_posix() for file in list_files(source) if file.name[0] != "."]
    else:
        root, names = Path.cwd(), sorted(set(read_ids(source)))
    if not names:
        raise SoundspotError(f"{source} holds no files, or only hidden ones")
    return root, list(_items(root, names))


def _items(root: Path, names: Sequence[str]) -> Iterator[BatchItem]:
    """A picture and a sound whose names differ only in the suffix are one item."""
    groups: dict[PurePath, list[str]] = defaultdict(list)
    for name in names:
        groups[PurePath(name).with_suffix("")].append(name)
    for name in names:
        group = groups[PurePath(name).with_suffix("")]
        sound = sound_of_picture(group)
        if sound is not None and PurePath(name).suffix.lower() in SOUNDS:
            continue  # it comes with its picture
        alone = len(group) == (1 if sound is None else 2)
        stem = PurePath(name).with_suffix("") if alone else PurePath(name)
        sizes = tuple(file_size(root / f) for f in (name, sound) if f)
        yield BatchItem(name, sound, sizes, f"{_inside(stem)}{ENDING}")


def _inside(name: PurePath) -> str:
    """A path relative to the output folder; names in a list may be absolute or lead upwards."""
    return PurePath(*(part for part in name.parts if part not in (name.anchor, ".."))).as_posix()


def _load(
    model: str | None, device: str, digest: str, root: Path, how: tuple[bool, At, bool]
) -> Callable[[BatchItem], ItemResult]:
    """Load the model in a process; it must be the same on every machine."""
    localizer = load(model, device)
    if localizer.digest != digest:
        raise SoundspotError(f"{platform.node()} has another {localizer.name} than this machine")
    return partial(localize_one, localizer, root, *how)


def localize_one(
    localizer: Localizer, root: Path, pictures: bool, at: At, outline: bool, item: BatchItem
) -> ItemResult:
    """Localize a file, named relative to root, or say why it cannot be done."""
    path, audio = root / item.name, root / item.audio if item.audio else None
    for file, size in zip(filter(None, (path, audio)), item.sizes, strict=True):
        if size >= 0:
            check_visible(file)
    try:
        with torch_threads(1):  # the last bits of a sum may depend on the number of threads
            result = localize(path, audio, at=at, outline=outline, model=localizer)
    except MediaError as error:  # anything else is a fault of ours, not of the file
        return _failed(item, str(error).replace(f"{root}{os.sep}", ""), error.code)
    summary = result.summary()
    line = item.names() | {key: summary[key] for key in KEPT}
    if not pictures:
        return ItemResult(line, result.similarity)
    page = io.BytesIO()
    result.picture().save(page, format="PNG", compress_level=2)
    return ItemResult(line, result.similarity, page.getvalue())


def _failed(item: BatchItem, reason: str = CRASHED, fault: str = "unreadable") -> ItemResult:
    return ItemResult(item.names() | {"fault": fault, "reason": reason})


@contextmanager
def _locked(out: Path, about: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[None]:
    """Claim the folder: new, empty, or one that the same model wrote before."""
    path = out / ABOUT
    with files.explain_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    if not path.exists() and any(not file.name.startswith(".") for file in out.iterdir()):
        raise SoundspotError(f"{out} holds something else; choose another folder", "exists")
    with files.locked(out / files.LOCK, f"another process is writing {out}: wait for it to finish"):
        files.remove_leftovers(out, "**/.*")
        if path.exists():
            _refuse_other(path, about)
        else:
            files.write_text(path, json.dumps({**about, **notes}, indent=1) + "\n")
        yield


def _refuse_other(path: Path, about: Mapping[str, Any]) -> None:
    try:
        written = parse_json(read_bytes(path))
        other = [key for key, value in about.items() if written.get(key) != value]
    except (OSError, ValueError, AttributeError) as error:
        raise SoundspotError(f"{path} cannot be read ({error}); choose another folder") from error
    for key in other[:1]:
        raise SoundspotError(
            f"{path.parent} was made with {key}={json.dumps(written.get(key))}, not "
            f"{json.dumps(about[key])}; choose another folder or delete this one",
            "exists",
        )


def _write(
    job: BatchJob, items: Sequence[BatchItem], load: Callable[[], Callable[[BatchItem], ItemResult]]
) -> Counter[str]:
    """Write what is missing, then the lines of all; returns how many files had which fault."""
    journal = job.out / JOURNAL
    done = _read_journal(journal, items)
    todo = [item for item in items if item.name not in done]
    if todo:
        (job.out / LINES).unlink(missing_ok=True)  # it is only there when all is done
    found = map_loaded(load, todo, job.engine, _failed, job.device != "cpu")
    results = progress(found, "localizing", len(todo))
    with files.explain_write_errors(journal), journal.open("a", encoding="utf-8") as file:
        for item, result in zip(todo, results, strict=True):
            done[item.name] = _write_one(job.out, item, result)
            file.write(json.dumps([item.sizes, done[item.name]]) + "\n")
            file.flush()
    lines = [done[item.name] for item in items]
    files.write_text(job.out / LINES, "".join(json.dumps(line) + "\n" for line in lines))
    return Counter(line.get("fault", "") for line in lines)


def _read_journal(path: Path, items: Sequence[BatchItem]) -> dict[str, dict[str, Any]]:
    """The lines of the files that an earlier run has done; the others leave the journal."""
    wanted = {item.name: [list(item.sizes), item.names()] for item in items}
    done, kept = {}, []
    known = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for text in known:
        with suppress(ValueError):  # the last line of a run that was killed
            sizes, line = parse_json(text)
            names = {key: line[key] for key in ("path", "audio") if key in line}
            there = "map" not in line or (path.parent / line["map"]).is_file()
            if there and wanted.get(line["path"]) == [sizes, names]:
                done[line["path"]] = line
                kept.append(f"{text}\n")
    files.write_text(path, "".join(kept))
    return done


def _write_one(out: Path, item: BatchItem, result: ItemResult) -> dict[str, Any]:
    """Write the map and the picture of a file; returns its line."""
    line = dict(result.line)
    if result.similarity is None:
        return line
    # Not with_suffix: a name may have dots of its own.
    line["map"] = f"{item.stem}.npy"
    place = out / line["map"]
    with files.explain_write_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic_write(place) as part:
        np.save(part, result.similarity)
    if result.picture:
        line["picture"] = f"{item.stem}.png"
        files.write_bytes(out / line["picture"], result.picture)
    return line


def localize_files(
    paths: Iterable[str | Path],
    *,
    at: At = "best",
    outline: bool = True,
    model: str | None = None,
    device: str = AUTO,
    jobs: int | None = None,
    keep_frames: bool = False,
) -> Iterator[FileAnswer]:
    """Localize many videos in several processes, in the order given.

    Args:
        paths: Videos with sound; read as results are taken, so there may be millions.
        at: As `localize` takes it.
        outline: As `localize` takes it.
        model: As `load` takes it.
        device: As `load` takes it.
        jobs: Number of processes. Default: one per core, or one on a GPU.
        keep_frames: Whether the results hold frame and waveform, which `save` needs.

    Yields:
        Each path with its result, or with the error that says why there is none.

    Example:
        >>> for path, result in soundspot.localize_files(["clip.mp4"], at="middle", jobs=1):
        ...     print(path, getattr(result, "verdict", result))
    """
    name = absolute_name(model)
    on_gpu = open_model(name, device).device.type != "cpu"
    engine = SERIAL if on_gpu and jobs is None else Engine("local", jobs)
    how = {"at": at, "outline": outline}
    load_there = partial(_load_worker, name, device, how, keep_frames)
    items = (Path(path) for path in paths)
    return map_loaded(load_there, items, engine, _crashed)


def _load_worker(
    model: str | None, device: str, how: Mapping[str, Any], keep_frames: bool
) -> "partial[FileAnswer]":
    return partial(_answer_one, load(model, device), how, keep_frames)


def _answer_one(
    localizer: Localizer, how: Mapping[str, Any], keep_frames: bool, path: Path
) -> FileAnswer:
    try:
        with torch_threads(1):  # the last bits of a sum may depend on the number of threads
            result = localize(path, model=localizer, **how)
    except SoundspotError as error:
        return path, error
    if keep_frames:
        return path, replace(result, keep_frame=True)
    return path, replace(result, frame=None, waveform=None)


def _crashed(path: Path) -> FileAnswer:
    return path, SoundspotError(f"{path} {CRASHED}", "unreadable")
