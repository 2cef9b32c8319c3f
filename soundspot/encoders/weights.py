"""Names of pretrained weights and demo media -> verified files in the cache.

`registry.py` and the encoders say which public files each name accepts, `download.py` fetches them,
`installing.py` converts them and `weight_cache.py` reads what the cache holds. None of them imports
torch until it is needed.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from soundspot.common.config import choose
from soundspot.encoders import weight_cache
from soundspot.encoders.download import (
    Download,
    DownloadError,
    Remote,
    describe_remote,
    download_file,
    offline,
)
from soundspot.encoders.installing import accepted, convert, drop_sources, install
from soundspot.encoders.registry import Registry, RegistryEntry, Source
from soundspot.encoders.table import ENCODERS, REGISTRY
from soundspot.encoders.weight_cache import AbsentError, DamagedError, WeightsError, product

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@dataclass(frozen=True)
class WeightStatus:
    """What `soundspot weights list` and `verify` show.

    Attributes:
        entry: What the registry says about it.
        cached: Whether it works without a network.
        size: Bytes in the cache.
        problem: After `verify`: what is damaged; None if nothing is.
    """

    entry: RegistryEntry
    cached: bool
    size: int
    problem: str | None


def load_tensors(
    name: str | RegistryEntry,
    *,
    registry: Registry = REGISTRY,
    download: Download = download_file,
) -> "dict[str, torch.Tensor]":
    """The tensors of `name`, mapped from the cache; fetched and converted first if it has none."""
    return _obtain(name, "weights", weight_cache.map_tensors, registry, download)


def pretrained(encoder: str) -> "torch.nn.Module":
    """The frozen encoder of that name with its pretrained weights."""
    from soundspot.encoders.building import build_encoder

    return build_encoder(encoder, load_tensors(choose("encoder", encoder, ENCODERS).weights))


def class_names(
    name: str | RegistryEntry = "yamnet-audioset",
    *,
    registry: Registry = REGISTRY,
    download: Download = download_file,
) -> list[str]:
    """The classes these weights were trained on, in the order of their scores.

    Only the header of the file is read.
    """
    metadata = _obtain(name, "weights", weight_cache.read_metadata, registry, download)
    names: list[str] = json.loads(metadata["class_names"])
    if not names:
        raise WeightsError(f"{_find_entry(name, registry).name} has no class names")
    return names


def media(name: str, *, registry: Registry = REGISTRY, download: Download = download_file) -> Path:
    """The path of a demo media file, verified; fetched first if the cache has none."""
    _obtain(name, "media", weight_cache.read_product, registry, download)
    return path(name, registry=registry)


def path(name: str, *, registry: Registry = REGISTRY) -> Path:
    """Where the cache holds `name`: converted weights, or a media file."""
    file = product(_find_entry(name, registry))
    if not file.exists():
        raise AbsentError(
            f"{name} is not in the cache at {file}: get it with `soundspot weights fetch {name}`"
        )
    return file


def fetch(
    name: str | RegistryEntry,
    *,
    url: str | None = None,
    force: bool = False,
    registry: Registry = REGISTRY,
    download: Download = download_file,
) -> Path:
    """Fetch `name` into the cache, convert it, and return its path there.

    Args:
        name: A name of the registry, or an entry.
        url: Another address for one of the accepted files.
        force: Repair a damaged cache: fetch and convert again.
        registry: The known names.
        download: Fetches a remote file.
    """
    entry = _find_entry(name, registry)
    with weight_cache.cache_lock(weight_cache.root()):
        if url is not None:
            _fetch_one(url, entry, registry, download)
        elif not force:
            # Another process may have fetched it while this one waited for the lock.
            try:
                weight_cache.read_product(entry)
                drop_sources(entry)  # older versions kept them
                return product(entry)
            except AbsentError:
                pass
        try:
            source, data = weight_cache.read_source(entry)
        except (AbsentError, DamagedError) as error:
            if isinstance(error, DamagedError) and not force:
                raise
            _fetch_any(entry, registry, download)
            source, data = weight_cache.read_source(entry)
        if force:
            weight_cache.digests_file().unlink(missing_ok=True)
        convert(entry, source, data)
    return product(entry)


def add(name: str, file: str | Path, *, registry: Registry = REGISTRY) -> Path:
    """Copy a user's file into the cache: an accepted file of `name`, or an archive with one."""
    entry = _find_entry(name, registry)
    try:
        with Path(file).open("rb") as opened, weight_cache.cache_lock(weight_cache.root()):
            install(opened, str(file), entry, registry)
            convert(entry, *weight_cache.read_source(entry))
    except OSError as error:
        raise WeightsError(f"cannot add {file} to {name}: {error.strerror}") from error
    return product(entry)


def list_entries(registry: Registry = REGISTRY) -> list[WeightStatus]:
    """Every name and whether the cache holds it; quick, since no file is read."""
    return [_status(entry, None) for entry in registry.values()]


def verify(registry: Registry = REGISTRY) -> list[WeightStatus]:
    """Every name, with everything the cache holds checked against its sha256."""
    return [_status(entry, _problem(entry)) for entry in registry.values()]


def _find_entry(
    name: str | RegistryEntry, registry: Registry, kind: str | None = None
) -> RegistryEntry:
    if isinstance(name, RegistryEntry):
        return name
    choices = {entry.name: entry for entry in registry.values() if kind in (None, entry.kind)}
    return choose(kind or "weights", name, choices)


def _obtain(
    name: str | RegistryEntry,
    kind: str,
    read: Callable[[RegistryEntry], T],
    registry: Registry,
    download: Download,
) -> T:
    """Read something from the cache; a complete cache needs no lock and no network."""
    entry = _find_entry(name, registry, kind)
    try:
        return read(entry)
    except (AbsentError, DamagedError):
        # `fetch` looks again under the lock, when no other process can be half-way through.
        fetch(name, registry=registry, download=download)
        return read(entry)


def _fetch_any(entry: RegistryEntry, registry: Registry, download: Download) -> None:
    """Try the sources in order; if all fail, say what was tried and what the user can do."""
    failures = []
    for source in entry.sources:
        if source.origin is None:
            continue
        remote = source.origin if isinstance(source.origin, str) else source.origin.archive
        _announce(entry, source)
        try:
            return _fetch_one(remote, entry, registry, download)
        except (DownloadError, WeightsError) as error:
            failures.append(str(error).rstrip("."))
    raise DownloadError(
        f"{entry.name} could not be fetched ({'; '.join(failures) or 'it has no known address'}): "
        f"add the file yourself with `soundspot weights add {entry.name} FILE` "
        f"({accepted(entry)}), or name another address with "
        f"`soundspot weights fetch {entry.name} --url URL`"
    )


def _announce(entry: RegistryEntry, source: Source) -> None:
    """Say why something is downloaded: the names of the archives do not tell."""
    if not offline():
        sys.stderr.write(
            f"fetching {entry.name}, once ({entry.description}): {source}; the archive is only "
            "read, nothing in it is run\n"
        )


def _fetch_one(
    remote: Remote, entry: RegistryEntry, registry: Registry, download: Download
) -> None:
    if offline():
        raise DownloadError(
            f"SOUNDSPOT_OFFLINE is set, so {describe_remote(remote)} was not fetched"
        )
    with weight_cache.scratch(weight_cache.root()) as file:
        download(remote, file)
        install(file, describe_remote(remote), entry, registry)


def _status(entry: RegistryEntry, problem: str | None) -> WeightStatus:
    sources = [weight_cache.source_file(entry, source) for source in entry.sources]
    sources = [file for file in sources if file.is_file()]
    converted = [product(entry), weight_cache.record_file(entry)]
    converted = [file for file in converted if file.is_file()]
    size = sum(file.stat().st_size for file in {*sources, *converted})
    return WeightStatus(entry, bool(sources) or len(converted) == 2, size, problem)


def _problem(entry: RegistryEntry) -> str | None:
    problems: dict[str, None] = {}  # the product of media is its source
    for read in (weight_cache.read_source, weight_cache.read_product):
        try:
            read(entry)
        except AbsentError:
            continue
        except DamagedError as error:
            problems[str(error)] = None
    return " ".join(problems) or None
