"""Uploads: counted as they arrive, each for itself, and nothing is left of what is refused."""

import asyncio
import errno
import io
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from soundspot.web import sessions
from soundspot.web.limits import Limits
from soundspot.web.middleware import RequestFilter
from soundspot.web.sessions import SessionStore
from soundspot.web.uploads import NO_ROOM, Upload, file_name

ADDRESS = "http://here/gradio_api/upload"
FORM = {"content-type": "multipart/form-data; boundary=BOUNDARY"}
CHUNK = 65_536


@pytest.fixture
def store() -> Iterator[SessionStore]:
    store = SessionStore(Limits(disk_mb=4, upload_mb=20))
    yield store
    store.clear()


async def _gradio(scope, receive, send):
    raise AssertionError("uploads do not reach gradio")


def client_of(store: SessionStore) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(RequestFilter(_gradio, store)))


def form(*files: tuple[str, bytes], end: bytes = b"--BOUNDARY--\r\n") -> bytes:
    parts = [
        b'--BOUNDARY\r\nContent-Disposition: form-data; name="files"; filename="%s"\r\n\r\n%s\r\n'
        % (name.encode(), data)
        for name, data in files
    ]
    return b"".join(parts) + end


async def slowly(body: bytes, store: SessionStore, largest: list[int]) -> AsyncIterator[bytes]:
    """Send piece by piece, while others do, and note how full the disk gets."""
    for start in range(0, len(body), CHUNK):
        yield body[start : start + CHUNK]
        largest.append(on_disk(store))
        await asyncio.sleep(0.001)


def on_disk(store: SessionStore) -> int:
    return sessions._bytes_below(store.root)  # folders may vanish meanwhile


def send(store: SessionStore, *bodies: bytes) -> tuple[list[httpx.Response], int]:
    """Send several requests at once; returns the answers, and the most that was on the disk."""
    largest = [0]

    async def go() -> list[httpx.Response]:
        async with client_of(store) as client:
            sent = (
                client.post(ADDRESS, content=slowly(body, store, largest), headers=FORM)
                for body in bodies
            )
            return await asyncio.gather(*sent)

    return asyncio.run(go()), max(largest)


def test_an_upload_is_stored_under_its_name(store: SessionStore):
    (answer,), _ = send(store, form(("a dog.mp4", b"woof" * 100_000), ("b.wav", b"")))
    dog, wav = map(Path, answer.json())
    assert (dog.name, wav.name) == ("a dog.mp4", "b.wav") and dog.parent != wav.parent
    assert dog.read_bytes() == b"woof" * 100_000 and wav.read_bytes() == b""
    assert dog.parents[1] == store.root and dog.parent.stat().st_mode & 0o777 == 0o700
    assert store.claim(store.session("me"), dog) == dog


def test_many_files_in_one_request_are_counted_together(store: SessionStore):
    body = form(*((f"{k}.mp4", bytes(900_000)) for k in range(10)))
    (answer,), largest = send(store, body)
    assert (answer.status_code, answer.text) == (507, NO_ROOM)
    assert 2_000_000 < largest <= 4_000_000 and list(store.root.iterdir()) == []


def test_uploads_at_the_same_time_are_counted_together(store: SessionStore):
    body = form(("a.mp4", bytes(900_000)))
    answers, largest = send(store, *[body] * 12)
    accepted = [answer for answer in answers if answer.status_code == 200]
    assert {answer.status_code for answer in answers} == {200, 507}
    assert 1 <= len(accepted) <= 4 and largest <= 4_000_000
    assert on_disk(store) == 900_000 * len(accepted)
    for answer in accepted:
        store.claim(store.session("me"), Path(answer.json()[0]))
    store.close("me")  # all that was reserved is free again
    answers, _ = send(store, form(("a.mp4", bytes(3_500_000))))
    assert answers[0].status_code == 200


def test_a_file_too_large_is_refused_and_leaves_nothing():
    store = SessionStore(Limits(upload_mb=1))
    (answer,), largest = send(store, form(("a.mp4", bytes(1_000_000))))
    assert answer.status_code == 200
    store.clear()
    store = SessionStore(Limits(upload_mb=1))
    (answer,), largest = send(store, form(("a.mp4", bytes(1_000_001))))
    assert answer.status_code == 413 and answer.text == "this page accepts files of up to 1 MB"
    assert largest <= 1_000_000 and list(store.root.iterdir()) == []
    store.clear()


def test_equal_uploads_at_once_do_not_touch_each_other(store: SessionStore):
    """Whatever is cleaned up after one, whether it succeeds or not, stays clear of the others."""
    store.limits = replace(store.limits, disk_mb=40)  # each reserves a block more than it needs
    good = form(("same.mp4", b"x" * 300_000))
    broken = form(("same.mp4", b"x" * 300_000), end=b"")[:-CHUNK]
    answers, _ = send(store, good, broken, good, form(("short.mp4", b"x")), broken)
    assert [answer.status_code for answer in answers] == [200, 400, 200, 200, 400]
    first, second = (Path(answers[k].json()[0]) for k in (0, 2))
    assert first != second and first.stat().st_size == second.stat().st_size == 300_000
    assert len(list(store.root.iterdir())) == 3


def test_an_upload_that_takes_long_is_not_swept_away(store: SessionStore, monkeypatch):
    """The ten minutes that an upload may wait for somebody begin when it has arrived."""
    body = form(("a.mp4", b"x" * 1000))
    upload = Upload(store, b"BOUNDARY")
    upload.write(body[:500])
    later = store._clock() + 2 * store.limits.unclaimed
    monkeypatch.setattr(store, "_clock", lambda: later)
    store.sweep()
    upload.write(body[500:])
    (path,) = upload.finish()
    upload.close()
    store.sweep()
    assert path.read_bytes() == b"x" * 1000


def test_an_interrupted_upload_leaves_nothing(store: SessionStore):
    async def leave() -> AsyncIterator[bytes]:
        yield form(("a.mp4", bytes(900_000)))[:-CHUNK]
        raise ConnectionError

    async def go() -> None:
        async with client_of(store) as client:
            await client.post(ADDRESS, content=leave(), headers=FORM)

    with pytest.raises(ConnectionError):
        asyncio.run(go())
    assert list(store.root.iterdir()) == []
    answers, _ = send(store, form(("a.mp4", bytes(3_500_000))))
    assert answers[0].status_code == 200  # nothing stayed reserved


def test_a_disk_that_is_full_before_its_quota_is_explained(store: SessionStore, monkeypatch):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda *_, **__: Full())
    (answer,), _ = send(store, form(("a.mp4", b"x")))
    assert (answer.status_code, answer.text) == (507, NO_ROOM)
    assert list(store.root.iterdir()) == []


def test_what_is_no_upload_is_refused(store: SessionStore):
    field = b'--BOUNDARY\r\nContent-Disposition: form-data; name="x"\r\n\r\n%s\r\n'
    small, large = form(end=field % b"y" + b"--BOUNDARY--\r\n"), field % bytes(200_000)
    header = b"--BOUNDARY\r\nX-Long: " + b"y" * 200_000
    many = form(*((f"{k}.mp4", b"z") for k in range(13)))
    answers, _ = send(store, small, large, header, b"no form", many)
    assert [answer.status_code for answer in answers] == [200, 413, 400, 400, 413]
    assert answers[0].json() == [] and list(store.root.iterdir()) == []

    async def bare() -> httpx.Response:
        async with client_of(store) as client:
            return await client.post(ADDRESS, content=b"abc")

    assert asyncio.run(bare()).status_code == 400


def test_uploads_that_nobody_uses_are_limited_in_number():
    store = SessionStore(Limits(visitors=1, kept=3))
    for _ in range(3):
        assert send(store, form(("a.mp4", b"x")))[0][0].status_code == 200
    assert send(store, form(("a.mp4", b"x")))[0][0].status_code == 507
    store.clear()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("clip.mp4", "clip.mp4"),
        ("../../etc/passwd", "passwd"),
        ("C:\\videos\\dog.mov", "dog.mov"),
        ("..", "file"),
        ("", "file"),
        ("a\x00b<>:\n|?.wav", "ab.wav"),
        (".bashrc", "bashrc"),
        ("größe 東京.mp4", "größe 東京.mp4"),
        ("%03d.png", "03d.png"),
        ("e" * 500 + ".mp4", "e" * 200 + ".mp4"),
        ("東" * 500 + ".mp4", "東" * 66 + ".mp4"),
    ],
)
def test_file_names(given: str, name: str):
    assert file_name(given) == name


def test_the_progress_of_an_upload_can_be_followed(store: SessionStore):
    body = form(("dog.mp4", bytes(1_500_000)))

    async def go() -> str:
        async with client_of(store) as client:
            started = asyncio.Event()

            async def content() -> AsyncIterator[bytes]:
                for start in range(0, len(body), CHUNK):
                    yield body[start : start + CHUNK]
                    started.set()
                    await asyncio.sleep(0.02)

            address = f"{ADDRESS}?upload_id=u1"
            sent = asyncio.create_task(client.post(address, content=content(), headers=FORM))
            await started.wait()
            events = await client.get(f"{ADDRESS}_progress?upload_id=u1")
            await sent
            return events.text

    news = [json.loads(line[6:]) for line in asyncio.run(go()).split("\n\n") if line]
    assert news[-1] == {"msg": "done"} and news[0]["orig_name"] == "dog.mp4"
    assert sum(new.get("chunk_size", 0) for new in news) <= len(body)
