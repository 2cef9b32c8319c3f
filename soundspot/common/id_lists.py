"""Lists of ids or files: .txt with one per line, .csv with one per row, plain or gzipped."""

import csv
import gzip
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from soundspot.common.config import LARGEST, read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.common.files import file_size, write_bytes

SUFFIXES = (".txt", ".csv", ".txt.gz", ".csv.gz")
HEADERS = frozenset({"id", "file", "filename", "video", "video_id", "youtube_id", "ytid"})


def is_id_list(path: Path) -> bool:
    """Whether a file is a list, judging by its name."""
    return path.name.lower().endswith(SUFFIXES)


def is_folder_or_list(source: Path) -> bool:
    """Whether a path stands for many files."""
    return source.is_dir() or is_id_list(source)


def read_ids(path: Path) -> list[str]:
    """Read a list of ids: lines of a .txt, or the first column of a .csv.

    A header row is skipped if its first column is called id, file, video or the like. In rows of
    four columns that end in train or test (VGGSound's own csv: YouTube id, start second, label,
    split) the id is that of the clip, such as ---g-f_I2yQ_000001.
    """
    if not is_id_list(path):
        raise SoundspotError(f"a list of ids ends in {', '.join(SUFFIXES)}, got {path}")
    is_text = path.name.lower().removesuffix(".gz").endswith(".txt")
    try:
        text = _read_text(path)
        rows = [] if is_text else [row for row in csv.reader(text.splitlines(), strict=True) if row]
    except FileNotFoundError as error:
        raise SoundspotError(f"cannot open {path}: no such file") from error
    except (OSError, EOFError, zlib.error, ValueError, csv.Error) as error:
        raise SoundspotError(f"{path} is not a readable list of ids ({error})") from error
    if is_text:
        ids = [line.strip() for line in text.splitlines()]
    else:
        if rows and rows[0][0].strip().lower() in HEADERS:
            rows = rows[1:]
        ids = [_clip_id(row) for row in rows]
    ids = [id for id in ids if id]
    if not ids:
        raise SoundspotError(f"{path} contains no ids")
    return ids


def check_list_of_files(path: Path) -> None:
    """Refuse a list none of whose lines names a file: it is probably some other text."""
    names = read_ids(path)
    if not any(file_size(Path(name)) >= 0 for name in names):
        raise SoundspotError(f"no line of {path} names a file; the first is {names[0][:80]!r}")


def _read_text(path: Path) -> str:
    if path.name.lower().endswith(".gz"):
        with gzip.open(path) as file:
            data = file.read(LARGEST + 1)  # a small file may unpack to a very large one
    else:
        data = read_bytes(path)
    if len(data) > LARGEST:
        raise ValueError(f"it unpacks to more than {LARGEST / 2**20:.0f} MB")
    if b"\0" in data:
        raise ValueError("it contains NUL bytes")
    return data.decode("utf-8-sig")


def _clip_id(row: Sequence[str]) -> str:
    if len(row) == 4 and row[3] in ("train", "test") and row[1].isdigit():
        return f"{row[0]}_{int(row[1]):06d}"
    return row[0].strip()


def write_ids(path: Path, ids: Iterable[str]) -> None:
    """Write one id per line, gzipped if the name ends in .gz; the file is whole or absent."""
    data = "".join(f"{id}\n" for id in ids).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)  # no time stamp: the same list is the same file
    write_bytes(path, data)
