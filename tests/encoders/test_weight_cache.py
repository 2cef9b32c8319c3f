"""weight_cache.py: whole-or-absent files, the lock, and downloads from an index on this machine."""

import errno
import hashlib
import io
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from soundspot.common.errors import SoundspotError
from soundspot.encoders import weight_cache
from soundspot.encoders.weight_cache import DownloadError, IndexArchive

CONTENT = bytes(range(256)) * 2579
ARCHIVE = IndexArchive("toy", "toy-1.0.tar.gz", hashlib.sha256(CONTENT).hexdigest())


def test_cache_dir_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("SOUNDSPOT_CACHE", "/big/disk")
    assert weight_cache.cache_dir() == Path("/big/disk")
    monkeypatch.delenv("SOUNDSPOT_CACHE")
    assert weight_cache.cache_dir() == Path("/x/soundspot")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert weight_cache.cache_dir() == Path.home() / ".cache" / "soundspot"


def test_sha256_of_bytes_and_of_a_file() -> None:
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180: "abc"
    assert weight_cache.sha256(b"abc") == expected
    file = io.BytesIO(b"abc")
    file.seek(2)
    assert weight_cache.sha256(file) == expected
    assert file.tell() == 0


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SoundspotError, match=r"cannot write .*inside: .*; make room"):
        weight_cache.write(tmp_path / "file" / "inside", b"x")


def test_the_lock_is_held_inside_and_free_after(tmp_path: Path) -> None:
    with weight_cache.locked(tmp_path / "new"), pytest.raises(Timeout):
        FileLock(tmp_path / "new" / ".lock").acquire(timeout=0)
    with pytest.raises(KeyboardInterrupt), weight_cache.locked(tmp_path / "new"):
        raise KeyboardInterrupt
    FileLock(tmp_path / "new" / ".lock").acquire(timeout=0).lock.release()


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
    assert weight_cache.pip_settings(environment, config) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)]
)
def test_offline(value: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOUNDSPOT_OFFLINE", raising=False)
    if value is not None:
        monkeypatch.setenv("SOUNDSPOT_OFFLINE", value)
    assert weight_cache.offline() == expected


class Site(BaseHTTPRequestHandler):
    """`/simple/` is an index with the toy, `/empty/` one whose toy has no file, `/cut` breaks."""

    def do_GET(self) -> None:
        pages = {
            "/simple/toy/": (b'<a href="/files/toy-1.0.tar.gz">toy-1.0.tar.gz</a>', "text/html"),
            "/empty/toy/": (b'<a href="/files/toy-0.9.tar.gz">toy-0.9.tar.gz</a>', "text/html"),
            "/image/toy/": (b"?", "image/png"),
            "/files/toy-1.0.tar.gz": (CONTENT, "application/gzip"),
            "/cut": (CONTENT, "application/gzip"),
        }
        body, kind = pages.get(self.path, (b"", ""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
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
    weight_cache.download(ARCHIVE, file)
    assert file.getvalue() == CONTENT


def test_download_tries_the_extra_indexes(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{site}/nothing/")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file:///nowhere {site}/empty/ {site}/simple/")
    file = io.BytesIO()
    weight_cache.download(ARCHIVE, file)
    assert file.getvalue() == CONTENT


def test_download_names_each_index_and_its_reason_but_no_password(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{site}/nothing/".replace("//", "//me:secret@", 1))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file:///nowhere {site}/empty/ {site}/image/")
    with pytest.raises(DownloadError) as caught:
        weight_cache.download(ARCHIVE, io.BytesIO())
    assert str(caught.value).split("; ") == [
        f"toy-1.0.tar.gz in the index {site}/nothing/: no project toy",
        "toy-1.0.tar.gz in the index file:///nowhere: InvalidSchema",
        f"toy-1.0.tar.gz in the index {site}/empty/: toy has no such file",
        f"toy-1.0.tar.gz in the index {site}/image/: not a package index this version can read",
    ]


def test_download_of_a_url_replaces_what_was_in_the_file(site: str) -> None:
    file = io.BytesIO(b"x" * 2 * len(CONTENT))
    weight_cache.download(f"{site}/files/toy-1.0.tar.gz", file)
    assert file.getvalue() == CONTENT


@pytest.mark.parametrize(
    ("path", "reason"), [("/nothing", "HTTP 404"), ("/cut", "ChunkedEncodingError")]
)
def test_download_of_a_bad_url(path: str, reason: str, site: str) -> None:
    with pytest.raises(DownloadError, match=f"^{site}{path}: {reason}$"):
        weight_cache.download(site + path, io.BytesIO())


def test_no_connection_is_one_sentence(site: str) -> None:
    with pytest.raises(DownloadError, match=r"^http://127\.0\.0\.1:1/x: ConnectionError$"):
        weight_cache.download("http://127.0.0.1:1/x", io.BytesIO())


def test_a_missing_certificate_is_not_taken_for_a_full_disk(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CERT", "/nowhere/ca.pem")
    with pytest.raises(DownloadError, match=r"TLS CA certificate bundle.*/nowhere/ca\.pem"):
        weight_cache.download(f"{site.replace('http', 'https')}/x", io.BytesIO())


class FullDisk(io.BytesIO):
    def write(self, data: object, /) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_not_taken_for_a_network_error(site: str) -> None:
    with pytest.raises(OSError, match="No space left"):
        weight_cache.download(f"{site}/files/toy-1.0.tar.gz", FullDisk())
