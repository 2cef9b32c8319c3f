"""The visitors' files, and the limits on them."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from soundspot.common.errors import SoundspotError
from soundspot.web import sessions
from soundspot.web.limits import Limits
from soundspot.web.sessions import SessionStore


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock):
    sessions = SessionStore(Limits(visitors=2, kept=3, disk_mb=201), clock)
    yield sessions
    sessions.clear()


def upload(store: SessionStore, name: str = "a.mp4", size: int = 7) -> Path:
    """What `Uploads` does with an upload."""
    folder = store.upload_folder()
    assert folder is not None
    (folder / name).write_bytes(b"x" * size)
    return store.add_upload(folder / name)


def test_an_upload_belongs_to_who_uses_it_first(store: SessionStore):
    path = upload(store)
    mine, other = store.session("mine"), store.session("other")
    assert store.claim(mine, path).read_bytes() == b"x" * 7
    assert store.claim(mine, path) == path  # again and again
    with pytest.raises(SoundspotError, match="the upload a.mp4 is no longer available"):
        store.claim(other, path)
    with pytest.raises(SoundspotError, match="no longer available"):
        store.claim(mine, Path("/etc/passwd"))


def test_a_session_takes_its_files_with_it(store: SessionStore):
    mine, other = store.session("mine"), store.session("other")
    gone, stays = store.claim(mine, upload(store)), store.claim(other, upload(store))
    result = store.result_path(mine, "map.jpg")
    result.write_bytes(b"y")
    store.close("mine")
    assert not gone.parent.exists() and not mine.folder.exists() and mine.stop.is_set()
    assert stays.exists()
    store.clear()
    assert not store.root.exists()


def test_the_oldest_files_go_first(store: SessionStore):
    mine = store.session("mine")
    uploads = [store.claim(mine, upload(store, f"{k}.mp4")) for k in range(3)]
    store.claim(mine, uploads[0])  # used again
    mine.infos = dict.fromkeys(uploads)
    store.claim(mine, upload(store, "new.mp4"))
    assert [path.exists() for path in uploads] == [True, False, True]
    assert list(mine.infos) == [uploads[0], uploads[2]]
    results = [store.result_path(mine, "m.jpg") for _ in range(4)]
    assert [path.parent.exists() for path in results] == [False, True, True, True]


def test_what_is_forgotten_is_swept(store: SessionStore, clock: Clock):
    forgotten, mine = upload(store), store.session("mine")
    clock.now = 601.0
    store.session("other")
    assert not forgotten.exists() and mine.folder.exists()
    clock.now = 3601.5
    store.sweep()
    assert not mine.folder.exists() and store.session("other").folder.exists()


def test_nothing_waits_for_the_next_visitor(store: SessionStore, clock: Clock, monkeypatch):
    forgotten, swept = upload(store), threading.Event()
    real = store.sweep
    monkeypatch.setattr(store, "sweep", lambda: (real(), swept.set()))
    clock.now = 601.0
    with store.sweeping(every=0.001):
        assert swept.wait(10)
    assert not forgotten.exists()


def test_memory_is_returned_even_if_nobody_fetches_an_answer(store: SessionStore, monkeypatch):
    trimmed = threading.Event()
    monkeypatch.setattr(sessions, "trim_heaps", trimmed.set)
    with store.sweeping(every=0.001):
        assert trimmed.wait(10)


def test_programs_make_room_for_visitors_but_open_pages_do_not(store: SessionStore, clock: Clock):
    first = store.session("program")
    clock.now = 1.0
    second = store.session("program 2")
    store.session("program 3")
    assert not first.folder.exists() and second.folder.exists()
    with store.page_open("page"), store.page_open("page 2"):
        folder = store.session("page").folder
        store.session("page 2")
        with pytest.raises(SoundspotError, match="already has 2 visitors"):
            store.session("page 3")
        assert folder.exists()
    assert not folder.exists()  # the page was closed


def test_a_result_gets_old_only_once_it_is_made(store: SessionStore):
    """A video takes longer than many comparisons."""
    mine = store.session("mine")
    with store.making(mine, "video.mp4") as video:
        for _ in range(5):
            store.result_path(mine, "map.jpg").write_bytes(b"y")
        video.write_bytes(b"v")
    assert video.exists()
    for _ in range(2):
        store.result_path(mine, "map.jpg")
    assert video.exists()  # the third newest
    store.result_path(mine, "map.jpg")
    assert not video.parent.exists()
    with pytest.raises(ValueError), store.making(mine, "video.mp4") as failed:
        raise ValueError
    assert not failed.parent.exists()


def test_room_is_reserved_and_given_back(store: SessionStore):
    most = int(0.9 * 201e6)  # the rest is for results
    assert not store.reserve(most + 1)
    assert store.reserve(most) and not store.reserve(1)
    store.release(1_000)
    assert store.reserve(1_000) and not store.reserve(1)
    store.release(most)
    upload(store, size=1_001)
    assert not store.reserve(most - 1_000) and store.reserve(most - 1_001)


def test_results_stay_within_the_disk_as_well():
    store = SessionStore(Limits(disk_mb=1))
    mine = store.session("mine")
    store.result_path(mine, "a").write_bytes(bytes(999_999))
    store.result_path(mine, "b").write_bytes(b"y")
    for refused in (store.check_room, lambda: store.result_path(mine, "c")):
        with pytest.raises(SoundspotError, match="the server's disk quota is full"):
            refused()
    with pytest.raises(SoundspotError, match="quota is full"), store.making(mine, "d"):
        pass
    assert not store.reserve(1)
    store.clear()


def test_room_is_counted_while_others_leave(store: SessionStore, monkeypatch):
    """Folders and files may vanish between the look at a folder and the look into it."""
    paths = [upload(store) for _ in range(2)]
    walk = os.walk

    def vanishing(root):
        for entry in walk(root):
            shutil.rmtree(paths[0].parent, ignore_errors=True)
            paths[1].unlink(missing_ok=True)
            yield entry

    monkeypatch.setattr(os, "walk", vanishing)
    assert store.reserve(1)
