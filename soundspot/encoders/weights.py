"""Names of pretrained weights and demo media -> verified files in the cache.

`registry.py` says which public files each name accepts. The cache keeps, in a folder a name,

    vgg16.ckpt                    the source file as published, read only after its sha256 is right
    vgg16-imagenet.safetensors    the tensors converted from it
    vgg16-imagenet.json           what was converted and the sha256 of the tensors' file

so a changed converter needs no network, and a damaged byte in either file is found. Importing this
module does not import torch.
"""

import json
import tarfile
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from io import BufferedIOBase
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal

from soundspot.common.errors import SoundspotError
from soundspot.encoders import weight_cache
from soundspot.encoders.registry import REGISTRY, Entry, Member, Registry, Source
from soundspot.encoders.weight_cache import Download, DownloadError, IndexArchive, Remote, describe

if TYPE_CHECKING:
    import torch

CONVERSION = 1  # raise it when a converter returns other tensors: caches then convert again


class WeightsError(SoundspotError):
    """A name or a file that the registry does not know."""


class AbsentError(WeightsError):
    """The cache does not hold it."""


class DamagedError(WeightsError):
    """The cache holds other bytes than were put there."""


@dataclass(frozen=True)
class WeightStatus:
    """What `soundspot weights list` and `verify` show of an entry.

    Attributes:
        sources: Where it can come from, in words, best first.
        cached: Whether the cache holds it, so that it works with no network.
        size: Bytes in the cache.
        problem: After `verify`: the sentence that says what is damaged; None if nothing is.
    """

    name: str
    kind: Literal["weights", "media"]
    description: str
    licence: str
    sources: tuple[str, ...]
    cached: bool
    size: int
    problem: str | None


@dataclass(frozen=True)
class _Record:
    """The JSON beside converted tensors; written last, so that it vouches for what it names."""

    source: str
    source_sha256: str
    conversion: int
    sha256: str


def load(
    name: str, *, registry: Registry = REGISTRY, download: Download = weight_cache.download
) -> "dict[str, torch.Tensor]":
    """The tensors of `name`, verified; fetched and converted first if the cache has none."""
    from safetensors.torch import load as parse

    return parse(_obtain(_find(name, registry, "weights"), registry, download))


def pretrained(encoder: str) -> "torch.nn.Module":
    """The frozen encoder of that name with its pretrained weights."""
    from soundspot.encoders.table import ENCODERS, build_encoder

    if encoder not in ENCODERS:
        raise WeightsError(_unknown("encoder", encoder, list(ENCODERS)))
    return build_encoder(encoder, load(ENCODERS[encoder].weights))


def class_names(
    name: str = "yamnet-audioset",
    *,
    registry: Registry = REGISTRY,
    download: Download = weight_cache.download,
) -> list[str]:
    """The names of the classes that these weights were trained on, in the order of their scores."""
    data = _obtain(_find(name, registry, "weights"), registry, download)
    # A safetensors file opens with the length of its JSON header: no torch is needed for this.
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    names: list[str] = json.loads(header["__metadata__"]["class_names"])
    if not names:
        raise WeightsError(f"{name} has no class names.")
    return names


def media(
    name: str, *, registry: Registry = REGISTRY, download: Download = weight_cache.download
) -> Path:
    """The file of a demo medium, verified; fetched first if the cache has none."""
    entry = _find(name, registry, "media")
    _obtain(entry, registry, download)
    return _product(entry)


def path(name: str, *, registry: Registry = REGISTRY) -> Path:
    """Where the cache holds `name`: converted weights, or a medium."""
    product = _product(_find(name, registry))
    if not product.exists():
        raise AbsentError(
            f"{name} is not in the cache at {product}: "
            f"get it with `soundspot weights fetch {name}`."
        )
    return product


def fetch(
    name: str,
    *,
    url: str | None = None,
    force: bool = False,
    registry: Registry = REGISTRY,
    download: Download = weight_cache.download,
) -> Path:
    """Bring `name` into the cache, converted, and say where it is.

    Args:
        name: A name of the registry.
        url: Another address for one of the accepted files.
        force: Mend a damaged cache. A source file whose sha256 is right is used again, for the
            network could only bring the same bytes; all that is made from it is made anew.
        registry: The known names.
        download: What fetches a remote file.
    """
    entry = _find(name, registry)
    with weight_cache.locked(_root()):
        if url is not None:
            _fetch_one(url, entry, registry, download)
        elif not force:
            # Another process may have brought it while this one waited for the lock.
            try:
                _read_product(entry)
                return _product(entry)
            except AbsentError:
                pass
        try:
            source, data = _read_source(entry)
        except (AbsentError, DamagedError) as error:
            if isinstance(error, DamagedError) and not force:
                raise
            _fetch_any(entry, registry, download)
            source, data = _read_source(entry)
        _convert(entry, source, data)
    return _product(entry)


def add(name: str, file: str | Path, *, registry: Registry = REGISTRY) -> Path:
    """Put a user's file into the cache: an accepted file of `name`, or an archive that holds it."""
    entry = _find(name, registry)
    try:
        with Path(file).open("rb") as opened, weight_cache.locked(_root()):
            _install(opened, str(file), entry, registry)
            _convert(entry, *_read_source(entry))
    except OSError as error:
        raise WeightsError(f"Cannot add {file} to {name}: {error.strerror}.") from error
    return _product(entry)


def list_entries(registry: Registry = REGISTRY) -> list[WeightStatus]:
    """Every name and whether the cache holds it; quick, for no file is read."""
    return [_status(entry, None) for entry in registry.values()]


def verify(registry: Registry = REGISTRY) -> list[WeightStatus]:
    """Every name, with all that the cache holds of it checked against its sha256."""
    return [_status(entry, _problem(entry)) for entry in registry.values()]


def _root() -> Path:
    return weight_cache.cache_dir() / "weights"


def _source_file(entry: Entry, source: Source) -> Path:
    return _root() / entry.name / source.filename


def _record_file(entry: Entry) -> Path:
    return _root() / entry.name / f"{entry.name}.json"


def _product(entry: Entry) -> Path:
    """What the entry is cached for: the converted weights, or the medium itself."""
    if entry.kind == "media":
        return _source_file(entry, entry.sources[0])
    return _root() / entry.name / f"{entry.name}.safetensors"


def _find(name: str, registry: Registry, kind: Literal["weights", "media"] | None = None) -> Entry:
    names = [entry.name for entry in registry.values() if kind in (None, entry.kind)]
    if name not in names:
        raise WeightsError(_unknown(kind or "weights", name, names))
    return registry[name]


def _unknown(what: str, name: str, choices: list[str]) -> str:
    near = get_close_matches(name, choices, n=1, cutoff=0.3)
    hint = f"did you mean {near[0]}? The" if near else "the"
    return f"Unknown {what} {name!r}: {hint} choices are {', '.join(choices)}."


def _obtain(entry: Entry, registry: Registry, download: Download) -> bytes:
    """The verified bytes of the product; a complete cache needs no lock and no network."""
    try:
        return _read_product(entry)
    except (AbsentError, DamagedError):
        # `fetch` looks again under the lock, when no other process can be half-way through.
        fetch(entry.name, registry=registry, download=download)
        return _read_product(entry)


def _read_product(entry: Entry) -> bytes:
    if entry.kind == "media":
        return _read_source(entry)[1]
    record = _read_record(entry)
    return _read(entry, _product(entry), record.sha256)


def _read_source(entry: Entry) -> tuple[Source, bytes]:
    for source in entry.sources:
        try:
            return source, _read(entry, _source_file(entry, source), source.sha256)
        except AbsentError:
            continue
    raise AbsentError(f"{entry.name} is not in the cache.")


def _read_record(entry: Entry) -> _Record:
    file = _record_file(entry)
    try:
        record = _Record(**json.loads(_read(entry, file)))
    except (ValueError, TypeError) as error:
        raise _damaged(entry, file, "it is not the JSON that was written") from error
    if record.source_sha256 not in [source.sha256 for source in entry.sources]:
        raise _damaged(entry, file, "it names a source that is not accepted")
    if record.conversion != CONVERSION:
        raise AbsentError(f"{entry.name} was converted by another version of soundspot.")
    return record


def _read(entry: Entry, file: Path, expected: str | None = None) -> bytes:
    """The bytes of a cached file, verified if its sha256 is given."""
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise AbsentError(f"{entry.name} is not in the cache.") from error
    except OSError as error:
        raise WeightsError(f"Cannot read {file}: {error.strerror}.") from error
    if expected is not None and (found := weight_cache.sha256(data)) != expected:
        raise _damaged(entry, file, f"its sha256 is {found[:16]}..., not {expected[:16]}...")
    return data


def _damaged(entry: Entry, file: Path, reason: str) -> DamagedError:
    return DamagedError(
        f"{file} is damaged ({reason}): "
        f"mend it with `soundspot weights fetch {entry.name} --force`."
    )


def _fetch_any(entry: Entry, registry: Registry, download: Download) -> None:
    """Try the sources in order; fail with what was tried and what the user can do."""
    failures = []
    for source in entry.sources:
        if source.origin is None:
            continue
        remote = source.origin if isinstance(source.origin, str) else source.origin.archive
        try:
            return _fetch_one(remote, entry, registry, download)
        except (DownloadError, WeightsError) as error:
            failures.append(str(error).rstrip("."))
    raise DownloadError(
        f"{entry.name} could not be fetched ({'; '.join(failures) or 'it has no address'}): "
        f"give its file with `soundspot weights add {entry.name} FILE` ({_accepted(entry)}), "
        f"or its address with `soundspot weights fetch {entry.name} --url URL`."
    )


def _fetch_one(remote: Remote, entry: Entry, registry: Registry, download: Download) -> None:
    if weight_cache.offline():
        raise DownloadError(f"SOUNDSPOT_OFFLINE is set, so {describe(remote)} was not asked for.")
    with weight_cache.scratch(_root()) as file:
        download(remote, file)
        _install(file, describe(remote), entry, registry)


def _install(file: BufferedIOBase, label: str, entry: Entry, registry: Registry) -> None:
    """Recognise a file by its sha256 and keep the sources it is or holds."""
    digest = weight_cache.sha256(file)
    for source in entry.sources:
        if digest == source.sha256:
            _keep(file.read(), entry, source)
        elif isinstance(source.origin, Member) and digest == source.origin.archive.sha256:
            _unpack(file, source.origin.archive, registry)
        else:
            continue
        for other in entry.sources:
            if other != source:
                _source_file(entry, other).unlink(missing_ok=True)
        return
    raise WeightsError(
        f"{label} has sha256 {digest[:16]}..., so it is no accepted file of {entry.name}: "
        f"expected {_accepted(entry)}."
    )


def _accepted(entry: Entry) -> str:
    files: dict[str, str] = {}
    for source in entry.sources:
        files[source.filename] = source.sha256
        if isinstance(source.origin, Member):
            files[source.origin.archive.filename] = source.origin.archive.sha256
    return " or ".join(f"{name} with sha256 {sha256[:16]}..." for name, sha256 in files.items())


def _unpack(file: BufferedIOBase, archive: IndexArchive, registry: Registry) -> None:
    """Keep every registered member of an archive, and nothing else of it."""
    wanted = {
        source.origin.path: (entry, source)
        for entry in registry.values()
        for source in entry.sources
        if isinstance(source.origin, Member) and source.origin.archive == archive
    }
    with tarfile.open(fileobj=file, mode="r:gz") as tar:
        for item in tar:
            _, _, inner = item.name.partition("/")  # a source distribution has one top folder
            if inner in wanted and item.isreg() and (content := tar.extractfile(item)):
                _keep(content.read(), *wanted.pop(inner))
    if wanted:
        raise WeightsError(f"{archive.filename} holds no regular file {', '.join(wanted)}.")


def _keep(data: bytes, entry: Entry, source: Source) -> None:
    weight_cache.write(_source_file(entry, source), data)


def _convert(entry: Entry, source: Source, data: bytes) -> None:
    """Write the tensors of a verified source; the record goes first and comes back last."""
    if source.convert is None:
        return
    from safetensors.torch import save

    tensors = resolve_name(source.convert)(data)
    names = resolve_name(source.class_names)(data) if source.class_names else []
    tensors = {key: tensor.contiguous() for key, tensor in tensors.items()}
    converted = save(tensors, {"class_names": json.dumps(names)})
    record = _Record(source.filename, source.sha256, CONVERSION, weight_cache.sha256(converted))
    _record_file(entry).unlink(missing_ok=True)
    weight_cache.write(_product(entry), converted)
    weight_cache.write(_record_file(entry), json.dumps(asdict(record), indent=2).encode())


def _status(entry: Entry, problem: str | None) -> WeightStatus:
    sources = [file for source in entry.sources if (file := _source_file(entry, source)).is_file()]
    converted = [file for file in (_product(entry), _record_file(entry)) if file.is_file()]
    return WeightStatus(
        name=entry.name,
        kind=entry.kind,
        description=entry.description,
        licence=entry.licence,
        sources=tuple(str(source) for source in entry.sources),
        cached=bool(sources) or len(converted) == 2,
        size=sum(file.stat().st_size for file in {*sources, *converted}),
        problem=problem,
    )


def _problem(entry: Entry) -> str | None:
    problems = []
    for read in (_read_source, _read_product) if entry.kind == "weights" else (_read_source,):
        try:
            read(entry)
        except AbsentError:
            continue
        except DamagedError as error:
            problems.append(str(error))
    return " ".join(problems) or None
