"""Stands between the network and gradio: what gradio would allow, but this page must not.

Gradio stores equal uploads of different visitors under one name, fetches web addresses that are
given in place of files, and lends itself as a proxy to them. Here each upload gets a place of its
own, and no address outside is ever asked, neither by the server nor, by its policy, by the browser.
"""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from soundspot.web import memory
from soundspot.web.limits import MB
from soundspot.web.store import Store

BODY = 1 * MB  # of a request that is no upload
BUSY = "soundspot is busy, and too many requests are waiting already: try again in a minute"
NO_ROOM = "the server has no room for another file: try again in a few minutes"
TOO_LONG = "this request is too long: files must be uploaded"
OUTSIDE = "soundspot takes uploaded files only, not web addresses"
POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; worker-src 'self' blob:; frame-ancestors 'none'; "
    "form-action 'self'; base-uri 'self'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Guard:
    """An ASGI application around gradio's.

    Args:
        app: Gradio's.
        store: Where uploads go.
    """

    def __init__(self, app: App, store: Store) -> None:
        self.app = app
        self.store = store
        self._uploading = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = unquote(scope["path"])
        send = _with_headers(send)
        if "/proxy=" in path or is_outside(path.partition("/file=")[2]):
            await _refuse(send, 403, OUTSIDE)
        elif "/heartbeat/" in path:
            with self.store.watched(path.rpartition("/heartbeat/")[2]):
                await self._beat(scope, receive, send)
            await asyncio.to_thread(memory.give_back)
        elif scope["method"] != "POST":
            await self.app(scope, receive, send)
        elif path.rstrip("/").endswith("/upload"):
            await self._upload(scope, receive, send)
        else:
            await self._call(scope, receive, send)

    async def _beat(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let gradio's heartbeat run until the page is closed, which it would see only later."""
        message = await receive()
        gone = asyncio.ensure_future(receive())
        beat = asyncio.ensure_future(self.app(scope, _once(message, asyncio.Event().wait), send))
        try:
            await asyncio.wait({gone, beat}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            beat.cancel()
            await asyncio.gather(gone, beat, return_exceptions=True)

    async def _upload(self, scope: Message, receive: Receive, send: Send) -> None:
        if not await asyncio.to_thread(self.store.has_room):
            await _refuse(send, 507, NO_ROOM)
            return
        # Gradio's places are shared, so they may go only when nobody waits for one.
        self._uploading += 1
        try:
            status, headers, body = await _collect(self.app, scope, receive)
            if status == 200:
                places = [str(self.store.issue(Path(path))) for path in json.loads(body)]
                body = json.dumps(places).encode()
            elif status == 413:
                body = f"this page takes files of up to {self.store.limits.upload_mb} MB".encode()
        finally:
            self._uploading -= 1
            if not self._uploading:
                self._clean()
        await _answer(send, status, headers, body)

    def _clean(self) -> None:
        for folder in self.store.root.iterdir():
            if not folder.name.startswith(("upload-", "session-")):
                if folder.is_dir():
                    shutil.rmtree(folder, ignore_errors=True)
                else:
                    folder.unlink(missing_ok=True)  # what an upload that broke off left behind

    async def _call(self, scope: Message, receive: Receive, send: Send) -> None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > BODY:
                await _refuse(send, 413, TOO_LONG)
                return
            if not message.get("more_body", False):
                break
        if names_outside(bytes(body)):
            await _refuse(send, 400, OUTSIDE)
            return
        whole = {"type": "http.request", "body": bytes(body), "more_body": False}
        await self.app(scope, _once(whole, receive), _say_busy(send))


def is_outside(path: str) -> bool:
    """Whether this names something elsewhere, by any protocol."""
    return "://" in path or path.lower().startswith(("http:", "https:", "//"))


def names_outside(body: bytes) -> bool:
    """Whether a request gives an address in place of a file."""
    try:
        return any(is_outside(path) for path in _paths(json.loads(body or b"null")))
    except ValueError:
        return False  # gradio refuses it
    except RecursionError:
        return True  # who hides a name so deep has no good reason


def _paths(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        if isinstance(data.get("path"), str):
            yield data["path"]
        for value in data.values():
            yield from _paths(value)
    elif isinstance(data, list):
        for value in data:
            yield from _paths(value)


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return wrapped


def _say_busy(send: Send) -> Send:
    """Replace what gradio says of a full queue."""
    full = False

    async def wrapped(message: Message) -> None:
        nonlocal full
        if message["type"] == "http.response.start" and message["status"] == 503:
            full = True
            await _refuse(send, 503, BUSY)
        elif not full:
            await send(message)

    return wrapped


def _once(message: Message, then: Callable[[], Awaitable[Any]]) -> Receive:
    """Give a message that was read already, then what comes."""
    messages = [message]

    async def wrapped() -> Any:
        return messages.pop() if messages else await then()

    return wrapped


async def _collect(app: App, scope: Message, receive: Receive) -> tuple[int, list[Any], bytes]:
    """The whole answer of an application."""
    status, headers, body = 500, [], bytearray()

    async def keep(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], message["headers"]
        else:
            body.extend(message.get("body", b""))

    await app(scope, receive, keep)
    return status, headers, bytes(body)


async def _answer(send: Send, status: int, headers: list[Any], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    kept = [pair for pair in headers if pair[0].lower() != b"content-length"]
    await send({"type": "http.response.start", "status": status, "headers": [*kept, length]})
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Send, status: int, sentence: str) -> None:
    headers = [(b"content-type", b"application/json")]
    body = json.dumps({"detail": sentence, "error": sentence}).encode()
    await _answer(send, status, headers, body)
