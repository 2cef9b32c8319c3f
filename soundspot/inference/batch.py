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
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from soundspot.common import files
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import read_ids
from soundspot.common.paths import file_size, list_files, make_id
from soundspot.common.plain_values import parse_json, read_bytes
from soundspot.common.progress import progress
from soundspot.common.shard_journal import ShardJournal, split_into_blocks, surplus_shards
from soundspot.inference import figures, outputs
from soundspot.inference.localizer import Localizer
from soundspot.inference.models import load, model_names
from soundspot.inference.result import heard_line
from soundspot.inference.router import split_name
from soundspot.media.clips import MediaError, jpeg_bytes, read_clip
from soundspot.media.file_types import SOUNDS, sound_of_picture
from soundspot.media.writing import is_video_name
from soundspot.parallel.devices import AUTO
from soundspot.parallel.engines import CRASHED, SERIAL, Engine, check_visible, map_loaded
from soundspot.parallel.threads import torch_threads

PER_SHARD = 256
ABOUT = "localize.json"
LINES = "localizations.jsonl"
FORMAT = 2  # raise it when the same files and model would give other results


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
        device: As `load` takes it.
    """

    source: Path
    out: Path
    model: str | None = None
    overlays: bool = False
    engine: Engine = field(default_factory=Engine)
    per_shard: int = PER_SHARD
    device: str = AUTO


@dataclass(frozen=True)
class BatchItem:
    """A file to localise, and the sound of a picture; a size of -1 means the file is missing."""

    name: str
    audio: str | None
    sizes: tuple[int, ...]

    def names(self) -> dict[str, Any]:
        """How its line begins."""
        return {"path": self.name} | ({} if self.audio is None else {"audio": self.audio})


@dataclass(frozen=True, eq=False)
class ItemResult:
    """The line of an item and, if it was localised, its map and overlay (JPEG)."""

    line: Mapping[str, Any]
    similarity: NDArray[np.float32] | None = None
    overlay: bytes = b""


def run_batch(job: BatchJob, say: Callable[[str], None]) -> int:
    """Localise the files that are not done yet, report the counts, and return how many worked."""
    root, items = _find(job)
    model = job.model
    if model is not None and model not in model_names():
        # Your own checkpoints and bridges must be found from any folder.
        parts = [part for part in split_name(model) if part is not None]
        model = "+".join(p if p in model_names() else str(Path(p).absolute()) for p in parts)
    localizer = load(model, job.device)
    if localizer.device.type != "cpu" and job.engine == Engine():
        job = replace(job, engine=SERIAL)  # processes would only wait for each other on one GPU
    digest = _digest(localizer)
    about = {"format": FORMAT, "weights": digest, "overlays": job.overlays}
    notes = {"model": localizer.name, "trained": localizer.card.trained}
    notes["threshold"] = localizer.threshold
    del localizer  # every process loads it again
    with _locked(job.out, about, notes):
        load_there = partial(_load, model, job.device, digest, root, job.overlays)
        counts = _join(job.out, _write_shards(job, items, load_there))
    done = counts.pop("", 0)
    faults = "".join(f", {count} {fault}" for fault, count in sorted(counts.items()))
    say(f"{len(items)} file{'' if len(items) == 1 else 's'}: {done} localised{faults}")
    say(f"results: {job.out / LINES}")
    return done


def _find(job: BatchJob) -> tuple[Path, list[BatchItem]]:
    """The files in sorted order and the folder that their names start from."""
    source, out = job.source, job.out
    if out.suffix.lower() in outputs.PICTURE_FORMATS or is_video_name(out) or out.is_file():
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
        sound = sound_of_picture(groups[PurePath(name).with_suffix("")])
        if sound is not None and PurePath(name).suffix.lower() in SOUNDS:
            continue  # it comes with its picture
        yield BatchItem(name, sound, tuple(file_size(root / f) for f in (name, sound) if f))


def _digest(localizer: Localizer) -> str:
    card = localizer.card
    table = None if localizer.router is None else asdict(localizer.router.table)
    facts = [card.method, card.config, localizer.threshold, *filter(None, [table])]
    sha = hashlib.sha256(json.dumps(facts).encode())
    for part in (localizer.method, localizer.visual, localizer.audio):
        for name, tensor in sorted(part.state_dict().items()):
            sha.update(name.encode())
            sha.update(tensor.cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()[:16]


def _load(
    model: str | None, device: str, digest: str, root: Path, overlays: bool
) -> Callable[[BatchItem], ItemResult]:
    """Load the model in a process; it must be the same on every machine."""
    localizer = load(model, device)
    if _digest(localizer) != digest:
        raise SoundspotError(
            f"{platform.node()} has a different {localizer.name}: all machines need the same"
        )
    return partial(localize_one, localizer, root, overlays)


def localize_one(localizer: Localizer, root: Path, overlays: bool, item: BatchItem) -> ItemResult:
    """Localise the middle of a file, named relative to root, or say why it cannot be done."""
    path, audio = root / item.name, root / item.audio if item.audio else None
    for file, size in zip(filter(None, (path, audio)), item.sizes, strict=True):
        if size >= 0:
            check_visible(file)
    try:
        clip = read_clip(path, audio)
    except MediaError as error:
        return _failed(item, str(error).replace(f"{root}{os.sep}", ""), error.fault)
    except Exception as error:  # of millions of files some break a decoder in new ways
        return _failed(item, f"{item.name} cannot be read ({error!r})")
    with torch_threads(1):  # the last bits of a sum may depend on the number of threads
        result = localizer.localize_clip(clip)
    summary = result.summary()
    kept = ("at", "width", "height", "box", "score", "visible", "verdict", "route", "labels")
    line = item.names() | {key: summary[key] for key in kept}
    if not overlays:
        return ItemResult(line, result.similarity)
    picture = figures.overlay(result.frame, result.heat, result.box, strength=result.strength)
    caption = [text for text in (heard_line(result.labels, result.route), result.verdict) if text]
    page = figures.captioned(picture, caption, result.trained)
    return ItemResult(line, result.similarity, jpeg_bytes(page))


def _failed(item: BatchItem, reason: str = CRASHED, fault: str = "unreadable") -> ItemResult:
    return ItemResult(item.names() | {"fault": fault, "reason": reason})


@contextmanager
def _locked(out: Path, about: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[None]:
    """Claim the folder: new, empty, or one that the same model wrote before."""
    path = out / ABOUT
    with files.explain_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    if not path.exists() and any(not file.name.startswith(".") for file in out.iterdir()):
        raise SoundspotError(
            f"{out} is neither empty nor a result of `localize`; choose another folder"
        )
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
            f"{json.dumps(about[key])}; choose another folder or delete this one"
        )


def _write_shards(
    job: BatchJob, items: Sequence[BatchItem], load: Callable[[], Callable[[BatchItem], ItemResult]]
) -> list[ShardJournal]:
    """Write the shards that are missing or do not fit; returns the journals of all."""
    blocks = split_into_blocks(items, job.per_shard)
    journals = [_journal(job.out, number, block) for number, block in enumerate(blocks)]
    missing = [number for number, journal in enumerate(journals) if not journal.fits()]
    if missing:
        (job.out / LINES).unlink(missing_ok=True)  # it is only there when all is done
        shards = (*job.out.glob("maps-*.npz"), *job.out.glob(".shard-*.jsonl"))
        for path in surplus_shards(shards, len(blocks)):
            path.unlink()
        for folder in surplus_shards((job.out / "overlays").glob("*"), len(blocks)):
            shutil.rmtree(folder)
        todo = [item for number in missing for item in blocks[number]]
        results = progress(map_loaded(load, todo, job.engine, _failed), "localising", len(todo))
        for number in missing:
            block = blocks[number]
            _write_shard(job, journals[number], block, itertools.islice(results, len(block)))
    return journals


def _write_shard(
    job: BatchJob, journal: ShardJournal, block: Sequence[BatchItem], results: Iterable[ItemResult]
) -> None:
    journal.discard()
    overlays = job.out / "overlays" / journal.data.stem.removeprefix("maps-")
    shutil.rmtree(overlays, ignore_errors=True)
    if job.overlays:
        overlays.mkdir(parents=True)
    lines: list[dict[str, Any]] = []
    maps: list[NDArray[np.float32]] = []
    for place, (item, result) in enumerate(zip(block, results, strict=True)):
        line = dict(result.line)
        if result.similarity is not None:
            line |= {"maps": journal.data.name, "row": len(maps)}
            maps.append(result.similarity)
        if result.overlay:
            picture = overlays / f"{place:05d}-{make_id(PurePath(f'{item.name}.jpg'))}.jpg"
            files.write_bytes(picture, result.overlay)
            line["overlay"] = picture.relative_to(job.out).as_posix()
        lines.append(line)
    names = [line["path"] for line in lines if "maps" in line]
    stacked = np.stack(maps) if maps else np.zeros((0, 0, 0), np.float32)
    with files.atomic_write(journal.data) as part:
        np.savez(part, paths=np.array(names, np.str_), maps=stacked)
    journal.write(lines)


def _journal(out: Path, number: int, block: Sequence[BatchItem]) -> ShardJournal:
    names = json.dumps([(item.name, item.audio, item.sizes) for item in block])
    digest = hashlib.sha256(names.encode()).hexdigest()
    path = out / f".shard-{number:05d}.jsonl"
    return ShardJournal(path, out / f"maps-{number:05d}.npz", ("files", digest))


def _join(out: Path, journals: Sequence[ShardJournal]) -> Counter[str]:
    """Make one file of the shards' lines; returns how many files had which fault, if any."""
    counts: Counter[str] = Counter()
    with files.atomic_write(out / LINES) as part, part.open("w", encoding="utf-8") as whole:
        for journal in journals:
            for line in journal.lines():
                counts[json.loads(line).get("fault", "")] += 1
                whole.write(line)
    return counts
