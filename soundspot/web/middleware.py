"""Filters the requests to gradio: refuses what gradio would allow but this page must not.

Gradio stores equal uploads of different visitors as one file, fetches web addresses that are given
instead of files, and acts as a proxy to them. Here each upload is stored separately, and neither
the server nor, by its Content-Security-Policy, the browser contacts any other address.
"""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from soundspot.web.heap import trim_heaps
from soundspot.web.limits import MB
from soundspot.web.sessions import SessionStore

MAX_BODY = 1 * MB  # of requests other than uploads
BUSY = "soundspot is busy and its queue is full: try again in a minute"
NO_ROOM = "the server's disk quota is full: try again in a few minutes"
TOO_LONG = "this request is too long: files must be uploaded"
EXTERNAL = "soundspot accepts uploaded files only, not web addresses"
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


class RequestFilter:
    """ASGI middleware around gradio's application.

    Args:
        app: Gradio's application.
        sessions: Holds the uploads.
    """

    def __init__(self, app: App, sessions: SessionStore) -> None:
        self.app = app
        self.sessions = sessions
        self._uploading = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = unquote(scope["path"])
        send = _with_headers(send)
        if "/proxy=" in path or is_external(path.partition("/file=")[2]):
            await _refuse(send, 403, EXTERNAL)
        elif "/heartbeat/" in path:
            with self.sessions.page_open(path.rpartition("/heartbeat/")[2]):
                await self._heartbeat(scope, receive, send)
            await asyncio.to_thread(trim_heaps)
        elif scope["method"] != "POST":
            await self.app(scope, receive, send)
        elif path.rstrip("/").endswith("/upload"):
            await self._upload(scope, receive, send)
        else:
            await self._call(scope, receive, send)

    async def _heartbeat(self, scope: Message, receive: Receive, send: Send) -> None:
        """Run gradio's heartbeat until the page is closed, which gradio would notice only later."""
        message = await receive()
        gone = asyncio.ensure_future(receive())
        beat = asyncio.ensure_future(self.app(scope, _replay(message, asyncio.Event().wait), send))
        try:
            await asyncio.wait({gone, beat}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            beat.cancel()
            await asyncio.gather(gone, beat, return_exceptions=True)

    async def _upload(self, scope: Message, receive: Receive, send: Send) -> None:
        if not await asyncio.to_thread(self.sessions.has_room):
            await _refuse(send, 507, NO_ROOM)
            return
        # Visitors share gradio's own folders, so these may go only when no upload is under way.
        self._uploading += 1
        try:
            status, headers, body = await _collect(self.app, scope, receive)
            if status == 200:
                paths = [str(self.sessions.add_upload(Path(path))) for path in json.loads(body)]
                body = json.dumps(paths).encode()
            elif status == 413:
                largest = self.sessions.limits.upload_mb
                body = f"this page accepts files of up to {largest} MB".encode()
        finally:
            self._uploading -= 1
            if not self._uploading:
                self._remove_originals()
        await _respond(send, status, headers, body)

    def _remove_originals(self) -> None:
        for folder in self.sessions.root.iterdir():
            if not folder.name.startswith(("upload-", "session-")):
                if folder.is_dir():
                    shutil.rmtree(folder, ignore_errors=True)
                else:
                    folder.unlink(missing_ok=True)  # left by an interrupted upload

    async def _call(self, scope: Message, receive: Receive, send: Send) -> None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > MAX_BODY:
                await _refuse(send, 413, TOO_LONG)
                return
            if not message.get("more_body", False):
                break
        if names_external(bytes(body)):
            await _refuse(send, 400, EXTERNAL)
            return
        whole = {"type": "http.request", "body": bytes(body), "more_body": False}
        await self.app(scope, _replay(whole, receive), _explain_busy(send))


def is_external(path: str) -> bool:
    """Whether this is a web address, of any protocol."""
    return "://" in path or path.lower().startswith(("http:", "https:", "//"))


def names_external(body: bytes) -> bool:
    """Whether a request gives a web address instead of a file."""
    try:
        return any(is_external(path) for path in _paths(json.loads(body or b"null")))
    except ValueError:
        return False  # gradio refuses it
    except RecursionError:
        return True  # nobody nests a file name this deep for a good reason


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


def _explain_busy(send: Send) -> Send:
    """Replace gradio's message about a full queue."""
    full = False

    async def wrapped(message: Message) -> None:
        nonlocal full
        if message["type"] == "http.response.start" and message["status"] == 503:
            full = True
            await _refuse(send, 503, BUSY)
        elif not full:
            await send(message)

    return wrapped


def _replay(message: Message, then: Callable[[], Awaitable[Any]]) -> Receive:
    """Receive a message that was already read, then what follows."""
    messages = [message]

    async def wrapped() -> Any:
        return messages.pop() if messages else await then()

    return wrapped


async def _collect(app: App, scope: Message, receive: Receive) -> tuple[int, list[Any], bytes]:
    """Collect the whole response of an application."""
    status, headers, body = 500, [], bytearray()

    async def keep(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], message["headers"]
        else:
            body.extend(message.get("body", b""))

    await app(scope, receive, keep)
    return status, headers, bytes(body)


async def _respond(send: Send, status: int, headers: list[Any], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    kept = [pair for pair in headers if pair[0].lower() != b"content-length"]
    await send({"type": "http.response.start", "status": status, "headers": [*kept, length]})
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Send, status: int, sentence: str) -> None:
    headers = [(b"content-type", b"application/json")]
    body = json.dumps({"detail": sentence, "error": sentence}).encode()
    await _respond(send, status, headers, body)
