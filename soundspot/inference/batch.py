"""Localise every file of a folder or a list, to lines of JSON and shards of maps.

    OUT/localizations.jsonl     one line per file, in sorted order; written when all is done
    OUT/maps-00000.npz          maps S of a shard's files: `paths` and `maps`
    OUT/overlays/00000/*.jpg    the maps over their frames, if asked for
    OUT/localize.json           the model that made them

Worker processes only read; this one alone writes, in order, and each file goes through the model
alone: the bytes depend neither on the engine nor on the number of processes. A shard is done when
its journal (.shard-00000.jsonl) exists; a later run keeps it as long as the files are the same.
"""

import hashlib
import itertools
import json
import os
import platform
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write, write_text
from soundspot.common.progress import progress
from soundspot.data.corpora.folder import make_id
from soundspot.data.finding import list_files
from soundspot.data.items import PICTURES, SOUNDS
from soundspot.data.writer import LOCK, TEMPORARY
from soundspot.evaluation.audit import read_ids
from soundspot.inference import figures
from soundspot.inference.localizer import Localizer, load, model_names
from soundspot.inference.result import Localization, heard_line
from soundspot.media.clips import MediaError, jpeg_bytes, read_clip
from soundspot.media.writing import is_video_name
from soundspot.parallel import engines
from soundspot.parallel.engines import Engine

PER_SHARD = 256
ABOUT = "localize.json"
LINES = "localizations.jsonl"
FORMAT = 1  # raise it when the same files and model would give other results
CRASHED = "ended the process that read it (out of memory, or a bad decoder)"


@dataclass(frozen=True)
class BatchJob:
    """Many files to localise.

    Attributes:
        source: A folder, or a list of files relative to the current folder: one path per line
            (.txt) or in the first column (.csv); may be gzipped.
        out: Folder for the results.
        model: As `load` accepts it.
        overlays: Draw every map over its frame.
        engine: Where the work is done.
        per_shard: Files per shard.
    """

    source: Path
    out: Path
    model: str | None = None
    overlays: bool = False
    engine: Engine = field(default_factory=Engine)
    per_shard: int = PER_SHARD


@dataclass(frozen=True)
class BatchItem:
    """A file to localise, and the sound of a picture; a size of -1 means the file is missing."""

    name: str
    audio: str | None
    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ItemResult:
    """The line of an item and, if it was localised, its map and overlay (JPEG)."""

    line: Mapping[str, Any]
    similarity: NDArray[np.float32] | None = None
    overlay: bytes = b""


def run_batch(job: BatchJob, say: Callable[[str], None]) -> None:
    """Localise the files that are not done yet, and report the counts."""
    root, items = _find(job)
    model = _absolute(job.model)
    localizer = load(model)
    digest = _digest(localizer)
    about = {"format": FORMAT, "weights": digest, "overlays": job.overlays}
    notes = {"model": localizer.name, "trained": localizer.card.trained}
    notes["threshold"] = localizer.threshold
    del localizer  # every process loads it again
    with _locked(job.out, about, notes):
        _write_shards(job, root, items, partial(_load, model, digest, root, job.overlays))
        counts = _join(job.out, -(-len(items) // job.per_shard))
    done = counts.pop("", 0)
    faults = "".join(f", {count} {fault}" for fault, count in sorted(counts.items()))
    say(f"{len(items)} file{'' if len(items) == 1 else 's'}: {done} localised{faults}")
    say(f"results: {job.out / LINES}")


def _find(job: BatchJob) -> tuple[Path, list[BatchItem]]:
    """The files in sorted order and the folder that their names start from."""
    source, out = job.source, job.out
    if out.suffix.lower() in figures.PICTURE_FORMATS or is_video_name(out) or out.is_file():
        raise SoundspotError(f"{source} is a folder or list: -o must name a folder, got {out}")
    if source.is_dir():
        if out.resolve().is_relative_to(source.resolve()):
            raise SoundspotError(f"{out} is inside {source}: its files would be localised too")
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
        pictures = [other for other in group if PurePath(other).suffix.lower() in PICTURES]
        sounds = [other for other in group if PurePath(other).suffix.lower() in SOUNDS]
        paired = len(group) == 2 and len(pictures) == len(sounds) == 1
        if paired and name in sounds:
            continue  # it comes with its picture
        files = [name, *sounds] if paired else [name]
        sizes = tuple(_size(root / file) for file in files)
        yield BatchItem(name, sounds[0] if paired else None, sizes)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _absolute(model: str | None) -> str | None:
    """A checkpoint's path that works in any folder; a name stays a name."""
    return model if model is None or model in model_names() else str(Path(model).absolute())


def _digest(localizer: Localizer) -> str:
    card = localizer.card
    sha = hashlib.sha256(json.dumps([card.method, card.config, localizer.threshold]).encode())
    for part in (localizer.method, localizer.visual, localizer.audio):
        for name, tensor in sorted(part.state_dict().items()):
            sha.update(name.encode())
            sha.update(tensor.cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()[:16]


def _load(
    model: str | None, digest: str, root: Path, overlays: bool
) -> Callable[[BatchItem], ItemResult]:
    """Load the model in a process; it must be the same on every machine."""
    localizer = load(model)
    if _digest(localizer) != digest:
        raise SoundspotError(
            f"{platform.node()} has a different {localizer.name}: all machines need the same"
        )
    return partial(localize_one, localizer, root, overlays)


def localize_one(localizer: Localizer, root: Path, overlays: bool, item: BatchItem) -> ItemResult:
    """Localise the middle of a file, or say why it cannot be done.

    Args:
        localizer: The model.
        root: The folder that names are relative to.
        overlays: Draw the map over the frame.
        item: The file.
    """
    path = root / item.name
    audio = None if item.audio is None else root / item.audio
    for file, size in zip((path, audio), item.sizes, strict=False):
        if file is not None and size >= 0 and not file.exists():
            raise SoundspotError(
                f"{platform.node()} does not see {file}: every machine must see the files"
            )
    try:
        clip = read_clip(path, audio)
    except MediaError as error:
        return _failed(item, error.fault, str(error).replace(f"{root}{os.sep}", ""))
    except Exception as error:  # of millions of files some break a decoder in new ways
        return _failed(item, "unreadable", f"{item.name} cannot be read ({error!r})")
    with _one_thread():
        result = localizer.localize_clip(clip)
    overlay = _overlay(result) if overlays else b""
    return ItemResult(_names(item) | _line(result), result.similarity, overlay)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread everywhere: the last bits of a sum may depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _names(item: BatchItem) -> dict[str, Any]:
    return {"path": item.name} | ({} if item.audio is None else {"audio": item.audio})


def _line(result: Localization) -> dict[str, Any]:
    kept = ("at", "width", "height", "box", "score", "visible", "labels")
    summary = result.summary()
    return {key: summary[key] for key in kept}


def _overlay(result: Localization) -> bytes:
    picture = figures.overlay(result.frame, result.heat, result.box)
    lines = [line for line in (heard_line(result.labels), result.verdict) if line]
    return jpeg_bytes(figures.captioned(picture, lines, result.trained))


def _failed(item: BatchItem, fault: str, reason: str) -> ItemResult:
    return ItemResult(_names(item) | {"fault": fault, "reason": reason})


def _crash(item: BatchItem) -> ItemResult:
    return _failed(item, "unreadable", CRASHED)


@contextmanager
def _locked(out: Path, about: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[None]:
    """Claim the folder: new, empty, or one that the same model wrote before."""
    path = out / ABOUT
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not path.exists() and any(not file.name.startswith(".") for file in out.iterdir()):
            raise SoundspotError(
                f"{out} is neither empty nor a result of `localize`; choose another folder"
            )
        with FileLock(out / LOCK, timeout=0):
            for left in out.rglob(".*"):  # by a kill: only we write here now
                if TEMPORARY.fullmatch(left.name):
                    left.unlink()
            if path.exists():
                _refuse_other(path, about)
            else:
                write_text(path, json.dumps({**about, **notes}, indent=1) + "\n")
            yield
    except Timeout as error:
        raise SoundspotError(f"another process is writing {out}: wait for it to finish") from error


def _refuse_other(path: Path, about: Mapping[str, Any]) -> None:
    try:
        written = json.loads(path.read_bytes())
        other = [key for key, value in about.items() if written.get(key) != value]
    except (OSError, ValueError, AttributeError) as error:
        raise SoundspotError(f"{path} cannot be read ({error}); choose another folder") from error
    if other:
        raise SoundspotError(
            f"{path.parent} was made with {other[0]}={json.dumps(written.get(other[0]))}, not "
            f"{json.dumps(about[other[0]])}; choose another folder or delete this one"
        )


def _write_shards(
    job: BatchJob,
    root: Path,
    items: Sequence[BatchItem],
    load: Callable[[], Callable[[BatchItem], ItemResult]],
) -> None:
    starts = range(0, len(items), job.per_shard)
    blocks = {number: items[at : at + job.per_shard] for number, at in enumerate(starts)}
    lacking = [number for number, block in blocks.items() if not _fits(job.out, number, block)]
    if not lacking:
        return
    (job.out / LINES).unlink(missing_ok=True)  # it is only there when all is done
    for path in (*job.out.glob("maps-*.npz"), *job.out.glob(".shard-*.jsonl")):
        if int(path.stem.rpartition("-")[2]) >= len(blocks):  # of a run over more files
            path.unlink()
    for folder in (job.out / "overlays").glob("*"):
        if int(folder.name) >= len(blocks):
            shutil.rmtree(folder)
    todo = [item for number in lacking for item in blocks[number]]
    results = engines.run_loaded(load, todo, job.engine, _crash)
    bar = progress(results, "localising", len(todo))
    for number in lacking:
        _write_shard(job, number, blocks[number], itertools.islice(bar, len(blocks[number])))


def _write_shard(
    job: BatchJob, number: int, block: Sequence[BatchItem], results: Iterable[ItemResult]
) -> None:
    maps_path, journal = _paths(job.out, number)
    journal.unlink(missing_ok=True)  # from here on it does not fit the shard
    overlays = job.out / "overlays" / f"{number:05d}"
    shutil.rmtree(overlays, ignore_errors=True)
    if job.overlays:
        overlays.mkdir(parents=True)
    lines: list[dict[str, Any]] = []
    maps: list[NDArray[np.float32]] = []
    for place, (item, result) in enumerate(zip(block, results, strict=True)):
        line = dict(result.line)
        if result.similarity is not None:
            line |= {"maps": maps_path.name, "row": len(maps)}
            maps.append(result.similarity)
        if result.overlay:
            picture = overlays / f"{place:05d}-{make_id(PurePath(f'{item.name}.jpg'))}.jpg"
            with atomic_write(picture) as part:
                part.write_bytes(result.overlay)
            line["overlay"] = picture.relative_to(job.out).as_posix()
        lines.append(line)
    names = [line["path"] for line in lines if "maps" in line]
    with atomic_write(maps_path) as part:
        np.savez(part, paths=np.array(names, np.str_), maps=_stack(maps))
    head = _head(maps_path, block)
    # ASCII: a file name that is not valid UTF-8 survives as an escape.
    write_text(journal, "".join(json.dumps(line) + "\n" for line in (head, *lines)))


def _stack(maps: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.stack(maps) if maps else np.zeros((0, 0, 0), np.float32)


def _paths(out: Path, number: int) -> tuple[Path, Path]:
    return out / f"maps-{number:05d}.npz", out / f".shard-{number:05d}.jsonl"


def _head(maps: Path, block: Sequence[BatchItem]) -> dict[str, Any]:
    files = json.dumps([(item.name, item.audio, item.sizes) for item in block])
    return {"files": hashlib.sha256(files.encode()).hexdigest(), "size": maps.stat().st_size}


def _fits(out: Path, number: int, block: Sequence[BatchItem]) -> bool:
    maps, journal = _paths(out, number)
    try:
        with journal.open(encoding="utf-8") as lines:
            return bool(json.loads(lines.readline()) == _head(maps, block))
    except (OSError, ValueError):
        return False


def _join(out: Path, shards: int) -> Counter[str]:
    """Join the lines of all shards; returns how many files had which fault ("" for none)."""
    counts: Counter[str] = Counter()
    with atomic_write(out / LINES) as part, part.open("w", encoding="utf-8") as whole:
        for number in range(shards):
            with _paths(out, number)[1].open(encoding="utf-8") as lines:
                for line in itertools.islice(lines, 1, None):
                    counts[json.loads(line).get("fault", "")] += 1
                    whole.write(line)
    return counts
