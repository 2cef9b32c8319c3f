import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath

import pytest
from filelock import FileLock, Timeout

from soundspot.common.errors import SoundspotError
from soundspot.common.files import (
    BusyError,
    atomic_write,
    list_files,
    locked,
    make_id,
    remove_leftovers,
    write_bytes,
    write_text,
)


def test_the_file_appears_at_the_end_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    with atomic_write(target) as part:
        part.write_text("new")
        assert not target.exists()
        assert part.suffix == ".json"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (ValueError(), ValueError),
        (OSError(errno.ENOSPC, "No space left on device"), SoundspotError),
    ],
)
def test_any_failure_keeps_what_was_there(raised, error, tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_bytes(target, b"old")
    with pytest.raises(error) as caught, atomic_write(target, "delete it") as part:
        part.write_bytes(b"half")
        raise raised
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
    if error is SoundspotError:
        assert caught.value.code == "no-write" and "delete it" in str(caught.value)


def test_only_temporary_files_are_leftovers(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in (".lock", ".shard-00000.jsonl", "a.12345678.npy")]
    with atomic_write(tmp_path / "a.npy") as part:
        part.touch()
        left = [tmp_path / part.name, tmp_path / ".b.tar.0123abcd.part"]
    for path in (*kept, *left):
        path.touch()
    remove_leftovers(tmp_path, ".a.*")
    assert not left[0].exists()
    assert left[1].exists()
    remove_leftovers(tmp_path)
    assert not left[1].exists()
    assert all(path.exists() for path in kept)


def test_the_lock_is_held_inside_and_free_after(tmp_path: Path) -> None:
    lock = tmp_path / "new" / ".lock"
    with locked(lock, "busy"):
        with pytest.raises(Timeout):
            FileLock(lock).acquire(timeout=0)
        with pytest.raises(BusyError), locked(lock, "second"):
            pass
    with pytest.raises(KeyboardInterrupt), locked(lock, "busy"):
        raise KeyboardInterrupt
    FileLock(lock).acquire(timeout=0).lock.release()


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    link, target = tmp_path / "link.txt", tmp_path / "inner/target.txt"
    link.symlink_to(target)
    for text in ("new", "newer"):  # first it leads nowhere
        write_text(link, text)
        assert link.is_symlink() and target.read_text() == text
    assert len(list(tmp_path.rglob("*"))) == 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_stays_and_its_reader_gets_everything(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        write_bytes(pipe, b"all of it")
        assert read.result(timeout=60) == b"all of it"
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


def test_a_device_stays_one(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # of its own: writes nowhere
        write_text(device, "gone")
    except (AttributeError, PermissionError):
        pytest.skip("needs the right to make and use a device in a temporary folder")
    assert device.is_char_device() and list(tmp_path.iterdir()) == [device]


def test_files_are_listed_once_though_links_make_a_circle(tmp_path: Path) -> None:
    with pytest.raises(SoundspotError):
        list_files(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/file").touch()
    (tmp_path / "c").touch()
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b/up").symlink_to(tmp_path)
    assert list_files(tmp_path) == [PurePath("a/file"), PurePath("c")]


def test_ids_are_valid_file_names() -> None:
    assert make_id(PurePath("a/b c.d.mp4")) == "a__b_c_d"
    assert make_id(PurePath("猫.mp4")) == "猫"
    assert make_id(PurePath("e\u0301.mp4")) == "\u00e9"
    assert make_id(PurePath("bad\udcff.mp4")) == "bad_"
    for letter in "x猫":
        long = make_id(PurePath(letter * 300 + ".mp4"))
        assert 197 <= len(long.encode()) <= 200
        assert long != make_id(PurePath(letter * 301 + ".mp4"))
