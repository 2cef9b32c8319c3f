"""The files under a folder, and ids made of their paths."""

import hashlib
import os
import re
import unicodedata
from pathlib import Path, PurePath

from soundspot.common.errors import SoundspotError

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
