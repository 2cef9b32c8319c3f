"""weight_cache.py: files that are complete or absent, and the lock."""

import io
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from soundspot.common.errors import SoundspotError
from soundspot.encoders import weight_cache


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
    with weight_cache.cache_lock(tmp_path / "new"), pytest.raises(Timeout):
        FileLock(tmp_path / "new" / ".lock").acquire(timeout=0)
    with pytest.raises(KeyboardInterrupt), weight_cache.cache_lock(tmp_path / "new"):
        raise KeyboardInterrupt
    FileLock(tmp_path / "new" / ".lock").acquire(timeout=0).lock.release()


def test_the_holder_of_the_lock_sweeps_what_killed_processes_left(tmp_path: Path) -> None:
    (tmp_path / "vgg").mkdir()
    kept = [tmp_path / "vgg" / name for name in ("vgg.ckpt", ".hidden", "x.0123abcd.ckpt")]
    left = [tmp_path / "vgg" / ".vgg.0123abcd.ckpt", tmp_path / ".digests.0123abcd.json"]
    for path in (*kept, *left):
        path.write_bytes(b"half")
    with weight_cache.cache_lock(tmp_path):
        pass
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in left)
