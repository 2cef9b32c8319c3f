"""Files that appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from soundspot.common.errors import SoundspotError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Lend a temporary path beside `path`; what is written there takes its name at the end.

    On any failure, a full disk among them, what stood under the name before still does. The
    temporary name keeps the ending, from which many writers tell the format.
    """
    part = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())  # the name must not reach the disk before the bytes
        part.replace(path)
    except OSError as error:
        raise SoundspotError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")
