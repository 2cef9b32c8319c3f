"""The visitors' files, and the limits on them."""

import os
import shutil
from pathlib import Path

import pytest

from soundspot.common.errors import SoundspotError
from soundspot.web.limits import Limits, check_upload
from soundspot.web.sessions import SessionStore
from web_media import write_clip


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
    """What gradio and the guard do with an upload."""
    arrived = store.root / "hash" / name
    arrived.parent.mkdir(exist_ok=True)
    arrived.write_bytes(b"x" * size)
    place = store.add_upload(arrived)
    arrived.unlink()
    return place


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
    store.claim(mine, upload(store, "new.mp4"))
    assert [path.exists() for path in uploads] == [True, False, True]
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


def test_the_disk_is_not_filled(store: SessionStore):
    assert store.has_room()
    upload(store, size=1_000_001)
    assert not store.has_room()


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
    assert store.has_room()


def test_limits(tmp_path: Path):
    path = write_clip(tmp_path / "a.mp4")
    assert check_upload(path, Limits()).kind == "video"
    with pytest.raises(
        SoundspotError, match="a.mp4 is 2 s long, but this page accepts up to 1.5 s"
    ):
        check_upload(path, Limits(seconds=1.5))
    with pytest.raises(SoundspotError, match="64 x 48 pixels, .* up to 0.003 megapixels"):
        check_upload(path, Limits(megapixels=0.003))
    with pytest.raises(SoundspotError, match="a limit above 0 for seconds, got nan"):
        Limits(seconds=float("nan"))
