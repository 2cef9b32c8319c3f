"""weight_cache.py: files that are complete or absent, and the lock."""

import errno
import io
import os
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from soundspot.encoders import weight_cache
from soundspot.encoders.weight_cache import CacheError


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


def test_atomic_shows_the_file_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with weight_cache.atomic(path) as file:
        file.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_failure_leaves_the_old_file_and_no_half_one(
    error: type[BaseException], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(error), weight_cache.atomic(path) as file:
        file.write(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(CacheError, match=r"cannot write .*file: No space left on device; make room"),
        weight_cache.atomic(tmp_path / "file") as file,
    ):
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_held_inside_and_free_after(tmp_path: Path) -> None:
    with weight_cache.locked(tmp_path / "new"), pytest.raises(Timeout):
        FileLock(tmp_path / "new" / ".lock").acquire(timeout=0)
    with pytest.raises(KeyboardInterrupt), weight_cache.locked(tmp_path / "new"):
        raise KeyboardInterrupt
    FileLock(tmp_path / "new" / ".lock").acquire(timeout=0).lock.release()
