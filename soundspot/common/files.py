"""Files that appear whole or not at all, and one writer at a time."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
    """Provide a temporary path beside `path`, and rename it to `path` at the end.

    On any failure, such as a full disk, the previous file stays as it was. The temporary name keeps
    the suffix, from which many writers tell the format. `advice` ends the message of a failure.
    """
    part = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        with explain_write_errors(path, advice):
            yield part
            with part.open("rb") as file:
                os.fsync(file.fileno())  # the name must not reach the disk before the bytes
            part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink()


def write_bytes(path: Path, data: bytes, advice: str = "") -> None:
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

    Args:
        lock: The lock file.
        busy: What to say if another process holds it: in a `BusyError` or, with `wait`, as a note
            on the error stream (none if empty).
        wait: Wait for the other process to finish.
        advice: What to do if the lock cannot be written.
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
