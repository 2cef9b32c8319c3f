"""What the page refuses before gradio sees it."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from soundspot.web.limits import Limits
from soundspot.web.middleware import BUSY, RequestFilter, is_external, names_external
from soundspot.web.sessions import SessionStore


@pytest.fixture
def store() -> Iterator[SessionStore]:
    sessions = SessionStore(Limits())
    yield sessions
    sessions.clear()


async def _inner(scope, receive, send):
    """Says what it was asked; the path /full is gradio's full queue."""
    message = await receive()
    status = 503 if scope["path"] == "/full" else 200
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def ask(store: SessionStore, method: str, path: str, body: bytes = b"") -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(RequestFilter(_inner, store))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path, content=body)

    return asyncio.run(go())


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=https://example.org/a.png",
        "/gradio_api/file=HTTP:/example.org",
        "/gradio_api/proxy=https://example.org",
    ],
)
def test_the_server_fetches_nothing(store: SessionStore, path: str):
    assert ask(store, "GET", path).status_code == 403


def test_calls_name_uploads_only(store: SessionStore):
    good = json.dumps({"data": [{"path": "/tmp/a.mp4", "url": "http://here/a.mp4"}]}).encode()
    answer = ask(store, "POST", "/queue/join", good)
    assert answer.status_code == 200 and answer.content == good  # the body arrives whole
    bad = json.dumps({"data": [[{"path": "https://example.org/a.mp4"}]]}).encode()
    answer = ask(store, "POST", "/queue/join", bad)
    assert answer.status_code == 400 and "uploaded files only" in answer.json()["detail"]
    assert names_external(b"[" * 100_000) and not names_external(b"{")
    assert is_external("ftp://a") and is_external("//a") and not is_external("/tmp/http.mp4")


def test_a_call_is_at_most_a_megabyte(store: SessionStore):
    assert ask(store, "POST", "/queue/join", b"x" * 1_000_000).status_code == 200
    assert ask(store, "POST", "/queue/join", b"x" * 1_000_001).status_code == 413


def test_a_full_queue_is_explained(store: SessionStore):
    answer = ask(store, "POST", "/full", b"{}")
    assert answer.status_code == 503 and answer.json()["detail"] == BUSY


def test_what_every_answer_tells_the_browser(store: SessionStore):
    for answer in (ask(store, "GET", "/"), ask(store, "GET", "/file=http://a")):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self' data: blob:;") and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
