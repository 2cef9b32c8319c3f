"""Filters the requests to gradio: refuses what gradio would allow but this page must not.

Gradio stores equal uploads of different visitors as one file, fetches web addresses that are given
instead of files, and acts as a proxy to them. Here each upload is stored separately, and neither
the server nor, by its Content-Security-Policy, the browser contacts any other address.
"""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class RequestFilter:
    """ASGI middleware around gradio's application; `sessions` holds the uploads."""

    def __init__(self, app: ASGIApp, sessions: SessionStore) -> None:
        self.app = app
        self.sessions = sessions
        self._uploading = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = unquote(scope["path"])
        send = _with_headers(send)
        if "/proxy=" in path or is_external(path.partition("/file=")[2]):
            await _refusal(403, EXTERNAL)(scope, receive, send)
        elif "/heartbeat/" in path:
            with self.sessions.page_open(path.rpartition("/heartbeat/")[2]):
                await self._heartbeat(scope, receive, send)
            await asyncio.to_thread(trim_heaps)
        elif scope["method"] != "POST":
            await self.app(scope, receive, send)
        else:
            answer = self._upload if path.rstrip("/").endswith("/upload") else self._call
            response = await answer(scope, receive)
            await response(scope, receive, send)

    async def _heartbeat(self, scope: Scope, receive: Receive, send: Send) -> None:
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

    async def _upload(self, scope: Scope, receive: Receive) -> Response:
        if not await asyncio.to_thread(self.sessions.has_room):
            return _refusal(507, NO_ROOM)
        # Visitors share gradio's own folders, so these may go only when no upload is under way.
        self._uploading += 1
        try:
            response = await _collect(self.app, scope, receive)
            if response.status_code == 200:
                uploads = map(Path, json.loads(response.body))
                return JSONResponse([str(self.sessions.add_upload(path)) for path in uploads])
        finally:
            self._uploading -= 1
            if not self._uploading:
                self._remove_originals()
        if response.status_code == 413:
            largest = self.sessions.limits.upload_mb
            return PlainTextResponse(f"this page accepts files of up to {largest} MB", 413)
        return response

    def _remove_originals(self) -> None:
        for folder in self.sessions.root.iterdir():
            if not folder.name.startswith(("upload-", "session-")):
                if folder.is_dir():
                    shutil.rmtree(folder, ignore_errors=True)
                else:
                    folder.unlink(missing_ok=True)  # left by an interrupted upload

    async def _call(self, scope: Scope, receive: Receive) -> Response:
        body = b""
        try:
            async for chunk in Request(scope, receive).stream():
                body += chunk
                if len(body) > MAX_BODY:
                    return _refusal(413, TOO_LONG)
        except ClientDisconnect:
            return Response()  # to nobody
        if names_external(body):
            return _refusal(400, EXTERNAL)
        whole = {"type": "http.request", "body": body, "more_body": False}
        response = await _collect(self.app, scope, _replay(whole, receive))
        return _refusal(503, BUSY) if response.status_code == 503 else response


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
        data = list(data.values())
    if isinstance(data, list):
        for value in data:
            yield from _paths(value)


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return wrapped


def _replay(message: Message, then: Callable[[], Awaitable[Any]]) -> Receive:
    """Receive a message that was already read, then what follows."""
    messages = [message]

    async def wrapped() -> Any:
        return messages.pop() if messages else await then()

    return wrapped


async def _collect(app: ASGIApp, scope: Scope, receive: Receive) -> Response:
    """Collect the whole response of an application."""
    response, body = Response(status_code=500), bytearray()

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            response.status_code, response.raw_headers = message["status"], message["headers"]
        else:
            body.extend(message.get("body", b""))

    await app(scope, receive, keep)
    response.body = bytes(body)
    return response


def _refusal(status: int, sentence: str) -> Response:
    return JSONResponse({"detail": sentence, "error": sentence}, status)
