"""Files that appear whole or not at all, and one writer at a time."""

import hashlib
import os
import re
import secrets
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from soundspot.common.errors import BusyError, SoundspotError

LOCK = ".lock"  # the usual name of a folder's lock
TEMPORARY = re.compile(r"\..*\.[0-9a-f]{8}(\.[^.]*)?")  # names that `atomic_write` gives


@contextmanager
def explain_write_errors(path: Path, advice: str = "") -> Iterator[None]:
    """Turn an operating system's error, such as a full disk, into one sentence with advice."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error}{advice and f'; {advice}'}"
        raise SoundspotError(f"cannot write {path}: {reason}", "no-write") from error


@contextmanager
def atomic_write(path: Path, advice: str = "") -> Iterator[Path]:
    """Provide a temporary path, and put what was written there in the place of `path` at the end.

    On any failure, such as a full disk, the previous file stays as it was. The temporary name keeps
    the suffix, from which many writers tell the format. A link stays, and its target is replaced; a
    pipe or a device stays, and is written to. `advice` ends the message of a failure.
    """
    special = path.exists() and not path.is_file()
    place = path.resolve()
    folder = Path(tempfile.gettempdir()) if special else place.parent
    part = folder / f".{place.stem}.{secrets.token_hex(4)}{path.suffix}"
    try:
        with explain_write_errors(path, advice):
            yield part
            if special:
                with part.open("rb") as file, path.open("wb") as node:
                    shutil.copyfileobj(file, node)
                return
            with part.open("rb") as file:
                os.fsync(file.fileno())  # the name must not reach the disk before the bytes
            part.replace(place)
    finally:
        with suppress(OSError):
            part.unlink()


def write_bytes(path: Path, data: bytes | memoryview, advice: str = "") -> None:
    """Write a file in one step."""
    with atomic_write(path, advice) as part:
        part.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def remove_leftovers(folder: Path, pattern: str = ".*") -> None:
    """Delete the temporary files of killed processes; only the holder of a lock may do this."""
    for path in folder.glob(pattern):
        if TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


@contextmanager
def locked(lock: Path, busy: str, wait: bool = False, advice: str = "") -> Iterator[None]:
    """Hold a lock file, whose folder is created if absent. A process that dies releases it.

    If another process holds it, `busy` is said: in a `BusyError` or, with `wait`, as a note (none
    if empty) before waiting. `advice` is what to do if the lock cannot be written.
    """
    from filelock import FileLock, Timeout

    held = FileLock(lock)
    with explain_write_errors(lock.parent, advice):
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            held.acquire(timeout=0)
        except Timeout as error:
            if not wait:
                raise BusyError(busy) from error
            if busy:
                from rich.console import Console

                Console(stderr=True).print(busy, markup=False, soft_wrap=True)
            held.acquire()
    try:
        yield
    finally:
        held.release()


LONGEST_ID = 200  # bytes; a file name may have 255 including its suffix


def list_files(source: Path) -> list[PurePath]:
    """Every file under a folder, sorted, relative to it; follows links, but not in circles."""
    files: list[PurePath] = []
    walked: set[str] = set()
    for folder, folders, names in os.walk(source, followlinks=True):
        real = os.path.realpath(folder)
        if real in walked:
            folders.clear()
            continue
        walked.add(real)
        folders.sort()  # if two paths lead to a folder, the first by name counts
        files += (PurePath(folder, name).relative_to(source) for name in names)
    if not files:
        raise SoundspotError(f"{source} contains no files")
    return sorted(files)


def file_size(path: Path) -> int:
    """Size in bytes; -1 if there is no such file."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def make_id(path: PurePath) -> str:
    """Turn a relative path into an id that is a valid file name on every system.

    Folders are joined by two underscores. Letters and digits of any script, "_" and "-" stay;
    everything else becomes "_". A long id is cut and ends in a hash of the whole path.
    """
    whole = unicodedata.normalize("NFC", path.with_suffix("").as_posix())
    name = re.sub(r"[^\w-]", "_", whole.replace("/", "__"))
    if len(name.encode()) <= LONGEST_ID:
        return name
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{name.encode()[: LONGEST_ID - 13].decode(errors='ignore')}-{digest}"
