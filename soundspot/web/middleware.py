"""Sits in front of gradio: lets through what the page needs, and answers uploads itself.

Neither the server nor, by its Content-Security-Policy, the browser contacts any other address.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from soundspot.parallel.heap import trim_heaps
from soundspot.web import routes
from soundspot.web.limits import MB
from soundspot.web.login import Login
from soundspot.web.sessions import SessionStore
from soundspot.web.uploads import Uploads

MAX_BODY = 1 * MB  # of requests other than uploads
BUSY = "soundspot is busy and its queue is full: try again in a minute"
TOO_LONG = "this request is too long: files must be uploaded"
EXTERNAL = "soundspot accepts uploaded files only, not web addresses"
REFUSED = "this page does not offer that"
LOGIN = "log in with the name and password of this page"
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
    """ASGI middleware around gradio's application.

    Args:
        app: The application.
        sessions: Where uploads are kept.
        login: Who may use the page; None for everybody.
    """

    def __init__(self, app: ASGIApp, sessions: SessionStore, login: Login | None = None) -> None:
        self.app = app
        self.sessions = sessions
        self.login = login
        self._uploads = Uploads(sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        else:
            await self._answer(scope, receive, _with_headers(send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        if not await self._may_enter(Request(scope), path):
            challenge = {"WWW-Authenticate": 'Basic realm="soundspot", charset="UTF-8"'}
            response = _refusal(401, LOGIN, challenge)
        elif routes.is_address(path.partition("/file=")[2]):
            response = _refusal(403, EXTERNAL)
        elif not routes.is_allowed(method, path):
            response = _refusal(404, REFUSED)
        elif path.startswith(routes.HEARTBEAT):
            await self._heartbeat(scope, receive, send)
            return
        elif path == routes.PROGRESS:
            response = self._uploads.progress(Request(scope).query_params.get("upload_id", ""))
        elif method != "POST":
            await self.app(scope, receive, send)
            if routes.ANSWER.fullmatch(path):  # the work is done; programs have no heartbeat
                await asyncio.to_thread(trim_heaps)
            return
        elif path == routes.UPLOAD:
            response = await self._uploads.receive(Request(scope, receive))
        else:
            response = await self._call(scope, receive)
        await response(scope, receive, send)

    async def _may_enter(self, request: Request, path: str) -> bool:
        if self.login is None or path == routes.LAUNCH:
            return True
        return await asyncio.to_thread(self.login.accepts, request.headers.get("authorization", ""))

    async def _heartbeat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run gradio's heartbeat until the page is closed, which gradio would notice only later."""
        with self.sessions.page_open(scope["path"].removeprefix(routes.HEARTBEAT)):
            message = await receive()
            gone = asyncio.ensure_future(receive())
            replayed = _replay(message, asyncio.Event().wait)
            beat = asyncio.ensure_future(self.app(scope, replayed, send))
            try:
                await asyncio.wait({gone, beat}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                beat.cancel()
                await asyncio.gather(gone, beat, return_exceptions=True)
        await asyncio.to_thread(trim_heaps)

    async def _call(self, scope: Scope, receive: Receive) -> Response:
        body = bytearray()
        try:
            async for chunk in Request(scope, receive).stream():
                body += chunk
                if len(body) > MAX_BODY:
                    return _refusal(413, TOO_LONG)
            checked = routes.without_addresses(bytes(body))
        except ClientDisconnect:
            return Response()  # to nobody
        except routes.ExternalAddressError:
            return _refusal(400, EXTERNAL)
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        headers.append((b"content-length", str(len(checked)).encode()))
        whole = {"type": "http.request", "body": checked, "more_body": False}
        response = await _collect(self.app, {**scope, "headers": headers}, _replay(whole, receive))
        return _refusal(503, BUSY) if response.status_code == 503 else response


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


def _refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"detail": sentence, "error": sentence}, status, headers)
