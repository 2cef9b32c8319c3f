"""What the cache holds of each name, and whether its bytes are still right.

The cache keeps one folder per name of the registry:

    vgg16-imagenet.safetensors    the tensors
    vgg16-imagenet.json           what they were converted from, and the sha256 of their file

The public file that they come from is removed once it is converted; until then, and for media, it
is kept under its own name. Every byte is checked when it is fetched and by `soundspot weights
verify`; tensors are then mapped into memory as they are. A file appears under its name only when it
is complete, and one process writes at a time. Beside the folders, digests.json remembers digests of
tensors, which take too long to compute at every start.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING

from soundspot.common import files
from soundspot.common.config import from_dict, parse_json, read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.encoders.registry import RegistryEntry, Source

if TYPE_CHECKING:
    import torch

ADVICE = "make room there, or set SOUNDSPOT_CACHE to a directory that can be written"
LONGEST_HEADER = 2**24  # bytes
CONVERSION = 1  # raise it when a converter returns other tensors: caches then convert again


class WeightsError(SoundspotError):
    """A name or a file that the registry does not know."""


class AbsentError(WeightsError):
    """The cache does not hold it."""


class DamagedError(WeightsError):
    """A file in the cache has changed since it was written."""


@dataclass(frozen=True)
class Record:
    """The JSON beside converted tensors; written last, so that it vouches for what it names."""

    source: str
    source_sha256: str
    conversion: int
    sha256: str


def cache_dir() -> Path:
    """The cache directory: $SOUNDSPOT_CACHE, or `soundspot` in the user's cache directory."""
    if chosen := os.environ.get("SOUNDSPOT_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "soundspot"


def sha256(data: bytes | BufferedIOBase) -> str:
    """Hex sha256 of bytes, or of a whole open file (which is left rewound)."""
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    data.seek(0)
    digest = hashlib.file_digest(data, "sha256").hexdigest()
    data.seek(0)
    return digest


def write(path: Path, data: bytes) -> None:
    """Write a file of the cache so that it appears complete or not at all."""
    with files.explain_write_errors(path, ADVICE):
        path.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(path, data, ADVICE)


@contextmanager
def scratch(directory: Path) -> Iterator[BufferedIOBase]:
    """A nameless temporary file on the cache's disk: it is gone even if the process is killed."""
    with files.explain_write_errors(directory, ADVICE):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            yield file


@contextmanager
def cache_lock(directory: Path) -> Iterator[None]:
    """Hold the one lock of `directory`; a second process waits, and says so.

    One lock for everything cannot deadlock, and writing to the cache is rare. Readers of complete
    files take no lock, so a read-only cache works.
    """
    waiting = f"waiting for another process that writes to {directory}"
    with files.locked(directory / files.LOCK, waiting, wait=True, advice=ADVICE):
        for pattern in (".*", "*/.*"):
            files.remove_leftovers(directory, pattern)
        yield


def root() -> Path:
    """The folder of all names."""
    return cache_dir() / "weights"


def source_file(entry: RegistryEntry, source: Source) -> Path:
    """Where a public file is kept."""
    return root() / entry.name / source.filename


def record_file(entry: RegistryEntry) -> Path:
    """Where the record of a conversion is kept."""
    return root() / entry.name / f"{entry.name}.json"


def product(entry: RegistryEntry) -> Path:
    """What the entry is cached for: the converted weights, or the media file itself."""
    if entry.kind == "media":
        return source_file(entry, entry.sources[0])
    return root() / entry.name / f"{entry.name}.safetensors"


def read_product(entry: RegistryEntry) -> bytes:
    """The verified bytes of the product."""
    if entry.kind == "media":
        return read_source(entry)[1]
    return _read_verified(entry, product(entry), read_record(entry).sha256)


def map_tensors(entry: RegistryEntry) -> "dict[str, torch.Tensor]":
    """The tensors of the converted weights, mapped: a page is read when it is first used.

    Of damage only a file that was cut short or is no safetensors file is noticed here.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    read_record(entry)  # a product without a valid record was never finished
    file = product(entry)
    try:
        return load_file(file)
    except FileNotFoundError as error:
        raise AbsentError(f"{entry.name} is not in the cache") from error
    except SafetensorError as error:
        raise _damaged(entry, file, " ".join(str(error).split())) from error
    except OSError as error:
        raise WeightsError(f"cannot read {file}: {error.strerror or error}") from error


def read_source(entry: RegistryEntry) -> tuple[Source, bytes]:
    """The cached source file and its verified bytes."""
    for source in entry.sources:
        try:
            return source, _read_verified(entry, source_file(entry, source), source.sha256)
        except AbsentError:
            continue
    raise AbsentError(f"{entry.name} is not in the cache")


def read_record(entry: RegistryEntry) -> Record:
    """The record of the converted weights, if this version of soundspot can use them."""
    file = record_file(entry)
    try:
        record = from_dict(Record, parse_json(_read_verified(entry, file)))
    except (ValueError, AttributeError, SoundspotError) as error:
        if isinstance(error, WeightsError):
            raise
        raise _damaged(entry, file, "it is not the JSON that was written") from error
    if record.source_sha256 not in [source.sha256 for source in entry.sources]:
        raise _damaged(entry, file, "it names a source that is not accepted")
    if record.conversion != CONVERSION:
        raise AbsentError(f"{entry.name} was converted by another version of soundspot")
    return record


def read_metadata(entry: RegistryEntry) -> dict[str, str]:
    """The metadata in the header of the converted weights; their tensors are not verified."""
    read_record(entry)  # a product without a valid record was never finished
    file = product(entry)
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = opened.read(min(length, LONGEST_HEADER))
    except FileNotFoundError as error:
        raise AbsentError(f"{entry.name} is not in the cache") from error
    except OSError as error:
        raise WeightsError(f"cannot read {file}: {error.strerror}") from error
    try:
        metadata: dict[str, str] = parse_json(header)["__metadata__"]
    except (ValueError, LookupError, TypeError) as error:
        raise _damaged(entry, file, "it has no safetensors header") from error
    return metadata


def _read_verified(entry: RegistryEntry, file: Path, expected: str | None = None) -> bytes:
    """The bytes of a cached file, verified if its sha256 is given."""
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise AbsentError(f"{entry.name} is not in the cache") from error
    except OSError as error:
        raise WeightsError(f"cannot read {file}: {error.strerror}") from error
    if expected is not None and (actual := sha256(data)) != expected:
        raise _damaged(entry, file, f"its sha256 is {actual[:16]}..., not {expected[:16]}...")
    return data


def _damaged(entry: RegistryEntry, file: Path, reason: str) -> DamagedError:
    return DamagedError(
        f"{file} is damaged ({reason}): "
        f"repair it with `soundspot weights fetch {entry.name} --force`"
    )


def digests_file() -> Path:
    """Where digests of tensors are remembered."""
    return root() / "digests.json"


def remembered_digest(entries: Sequence[RegistryEntry], compute: Callable[[], str]) -> str:
    """A digest of the tensors of some weights; computed once, then looked up by their records.

    It is not kept in the records: older versions of soundspot share the cache and would take a
    record with a new field for damaged, and one digest covers several weights, in this order.
    """
    try:
        key = "+".join(read_record(entry).sha256 for entry in entries)
    except WeightsError:
        return compute()
    try:
        known = dict(parse_json(read_bytes(digests_file())))
    except (OSError, ValueError, TypeError):
        known = {}  # absent or damaged: they are computed again
    if key not in known:
        known[key] = compute()
        with suppress(SoundspotError, OSError):  # a read-only cache works too
            files.write_text(digests_file(), json.dumps(known, indent=1))
    return str(known[key])
