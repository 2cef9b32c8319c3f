"""What the page refuses before gradio sees it."""

import asyncio
import base64
import json
from collections.abc import Iterator

import httpx
import pytest

from soundspot.web import login, middleware, routes
from soundspot.web.limits import Limits
from soundspot.web.login import Login
from soundspot.web.middleware import BUSY, EXTERNAL, RequestFilter
from soundspot.web.sessions import SessionStore

API = "/gradio_api"


@pytest.fixture
def store() -> Iterator[SessionStore]:
    sessions = SessionStore(Limits())
    yield sessions
    sessions.clear()


async def _inner(scope, receive, send):
    """Says what it was asked; the call of /full meets gradio's full queue."""
    message = await receive()
    status = 503 if scope["path"].endswith("/full") else 200
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def ask(
    store: SessionStore,
    method: str,
    path: str,
    body: bytes = b"",
    who: Login | None = None,
    **headers: str,
) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(RequestFilter(_inner, store, who))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path, content=body, headers=headers)

    return asyncio.run(go())


@pytest.mark.parametrize(
    "address",
    [
        "http://example.org/x",
        "https://example.org/a.png",
        "HTTP:/example.org",
        "http%3A%2F%2Fexample.org",
        "%20https://example.org",
        "//example.org/x",
        "\\\\example.org\\x",
        "ftp://example.org",
        "file:///etc/passwd",
        "data:text/html,x",
        "/tmp/http://example.org",
    ],
)
def test_the_server_fetches_nothing(store: SessionStore, address: str):
    for route in ("file=", "file/", "proxy=", "stream/"):
        answer = ask(store, "GET", f"{API}/{route}{address}")
        assert answer.status_code in (403, 404), route
    body = json.dumps({"data": [[{"path": address.replace("%20", " ")}]]}).encode()
    answer = ask(store, "POST", f"{API}/queue/join", body)
    assert answer.status_code == 400 and answer.json()["detail"] == EXTERNAL


def test_a_value_may_not_be_a_web_address_either(store: SessionStore):
    for value in ("https://example.org/a.mp4", [" FTP://a"], {"b": {"video": "http:\\\\a"}}):
        body = json.dumps({"data": [value]}).encode()
        assert ask(store, "POST", f"{API}/call/localize", body).status_code == 400
    for value in ("a siren", "notes: http is a protocol", "C:\\clip.mp4", 7, None):
        body = json.dumps({"data": [value]}).encode()
        assert ask(store, "POST", f"{API}/call/localize", body).content == body


def test_calls_name_uploads_only(store: SessionStore):
    shown = {"path": "/tmp/http.mp4", "url": "http://elsewhere/a.mp4", "size": 3}
    answer = ask(store, "POST", f"{API}/queue/join", json.dumps({"data": [shown]}).encode())
    assert answer.status_code == 200
    assert answer.json() == {"data": [{"path": "/tmp/http.mp4", "size": 3}]}
    deep = b"[" * 100_000
    assert ask(store, "POST", f"{API}/queue/join", deep).status_code == 400
    assert ask(store, "POST", f"{API}/queue/join", b"{").content == b"{"  # gradio refuses it


def test_a_call_is_at_most_a_megabyte(store: SessionStore):
    body = json.dumps({"data": ["x" * 999_000]}).encode()
    assert ask(store, "POST", f"{API}/queue/join", body).status_code == 200
    body = json.dumps({"data": ["x" * 1_000_000]}).encode()
    assert ask(store, "POST", f"{API}/queue/join", body).status_code == 413


def test_only_what_the_page_needs_reaches_gradio(store: SessionStore):
    page = [
        *("/", "/config", "/theme.css", "/favicon.ico", "/static/img/logo.svg", "/assets/a/b.js"),
        *(f"{API}/info", f"{API}/queue/data?session_hash=a", f"{API}/file=/tmp/a b.mp4"),
        *(f"{API}/call/localize/123", f"{API}/startup-events"),
    ]
    assert [path for path in page if ask(store, "GET", path).status_code != 200] == []
    posts = [f"{API}/{end}" for end in ("queue/join", "run/predict", "call/localize", "cancel")]
    assert [path for path in posts if ask(store, "POST", path).status_code != 200] == []
    others = [
        *("/login", "/logout", "/monitoring", "/monitoring/summary", "/docs", "/openapi.json"),
        *("/pwa_icon", "/svelte/x.js", "/gradio_api", "/dev/reload"),
        *(f"{API}/custom_component/a/client/b/c.js", f"{API}/stream/a/b/1/playlist.m3u8"),
        *(f"{API}/component_server", f"{API}/process_recording", f"{API}/deep_link"),
        *(f"{API}/token", f"{API}/user", f"{API}/vibe-edit", f"{API}/runs", f"{API}/stream/a"),
    ]
    for method in ("GET", "POST", "PUT", "DELETE"):
        reached = [path for path in others if ask(store, method, path).status_code != 404]
        assert reached == []
    assert ask(store, "DELETE", "/config").status_code == 404


def test_web_sockets_are_closed(store: SessionStore):
    sent = []

    async def go() -> None:
        async def note(message):
            sent.append(message["type"])

        await RequestFilter(_inner, store)({"type": "websocket"}, None, note)

    asyncio.run(go())
    assert sent == ["websocket.close"]


def test_memory_is_returned_after_every_answer(store: SessionStore, monkeypatch):
    """And when a page is closed; programs need not have a heartbeat whose end could be noticed."""
    trimmed = []
    monkeypatch.setattr(middleware, "trim_heaps", lambda: trimmed.append(1))
    for path in ("/", f"{API}/file=/tmp/a.mp4", f"{API}/info"):
        ask(store, "GET", path)
    assert trimmed == []
    ends = ("queue/data?session_hash=a", "call/localize/123", "heartbeat/a")
    for number, end in enumerate(ends, 1):
        ask(store, "GET", f"{API}/{end}")
        assert len(trimmed) == number


def test_a_full_queue_is_explained(store: SessionStore):
    answer = ask(store, "POST", f"{API}/call/full", b"{}")
    assert answer.status_code == 503 and answer.json()["detail"] == BUSY


def test_what_every_answer_tells_the_browser(store: SessionStore):
    """To ask nobody else, to tell nobody where it comes from, and not to guess what a file is."""
    answers = [ask(store, "GET", path) for path in ("/", f"{API}/file=http://a", "/login")]
    answers.append(ask(store, "POST", f"{API}/upload"))
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self' data: blob:;") and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def basic(user: str, password: str) -> dict[str, str]:
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {token}"}


def test_nothing_is_served_before_the_login(store: SessionStore, monkeypatch):
    monkeypatch.setattr(login, "N", 2)  # fast
    who = Login("anna", b"salt", login._digest("pass:wörd", b"salt"))
    for path in ("/", f"{API}/file=/etc/passwd", "/static/a.js", f"{API}/heartbeat/a"):
        answer = ask(store, "GET", path, who=who)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
    assert ask(store, "POST", f"{API}/upload", who=who).status_code == 401
    assert ask(store, "GET", routes.LAUNCH, who=who).status_code == 200  # gradio's own
    right = basic("anna", "pass:wörd")
    for _ in range(2):
        assert ask(store, "GET", "/", who=who, **right).status_code == 200
        for wrong in (
            *(basic("anna", "pass"), basic("anne", "pass:wörd"), basic("anna", "")),
            *({"authorization": "Basic ???"}, {"authorization": "Bearer anna"}),
        ):
            assert ask(store, "GET", "/", who=who, **wrong).status_code == 401


def test_the_password_is_hashed_once(store: SessionStore, monkeypatch):
    monkeypatch.setattr(login, "N", 2)
    who = Login("anna", b"salt", login._digest("password", b"salt"))
    hashed = []
    digest = login._digest
    monkeypatch.setattr(login, "_digest", lambda *given: hashed.append(1) or digest(*given))
    for _ in range(5):
        assert ask(store, "GET", "/", who=who, **basic("anna", "password")).status_code == 200
    assert len(hashed) == 1
