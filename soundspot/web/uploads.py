"""Receive uploads, in place of gradio: each file straight into its own folder.

Gradio stores equal files of different visitors once, does not check for room on the disk, and
keeps form fields of any size in memory. Here room is reserved as the bytes arrive, and whatever is
refused or interrupted leaves nothing behind.
"""

import asyncio
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import IO

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from soundspot.web.limits import MB
from soundspot.web.sessions import SessionStore

NO_ROOM = "the server's disk quota is full: try again in a few minutes"
MALFORMED = "this upload is malformed: send the file as multipart/form-data"
BLOCK = 1 * MB  # room is reserved in blocks, as looking for it takes a while
MAX_FORM = 100_000  # bytes of a request beside its file
LONGEST_NAME = 200  # bytes
LOOK_EVERY, LOOKS = 0.1, 30  # s, for the progress; and how often if there is no such upload


class UploadError(Exception):
    """An upload that is refused: a status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Upload:
    """One request: its files, as they arrive, and how much of them has."""

    def __init__(self, sessions: SessionStore, boundary: bytes | str) -> None:
        self.files: list[Path] = []
        self.name, self.arrived, self.done = "", 0, False
        self._sessions = sessions
        self._lock = threading.Lock()  # a thread may still write when the request is canceled
        self._closed = False
        self._stored = self._reserved = 0  # bytes that were written, and that may be
        self._file: IO[bytes] | None = None
        self._field, self._value = b"", b""
        self._headers: dict[bytes, bytes] = {}
        self._form = MAX_FORM
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._headers.clear,
                "on_part_data": self._on_data,
                "on_part_end": self._close,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._open,
            },
        )

    def write(self, chunk: bytes) -> None:
        """Take the next part of the body."""
        with self._lock:
            if self._closed:
                return
            self.arrived += len(chunk)
            self._check_size(self.arrived - MAX_FORM)
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise UploadError(400, MALFORMED) from error
            except OSError as error:  # the disk itself is full
                raise UploadError(507, NO_ROOM) from error

    def finish(self) -> list[Path]:
        """The files, once the body has arrived; from now on they may be used."""
        try:
            self._parser.finalize()
        except FormParserError as error:
            raise UploadError(400, MALFORMED) from error
        if self._file is not None:
            raise UploadError(400, MALFORMED)  # it ends within a file
        for path in self.files:
            self._sessions.add_upload(path)
        self.done = True
        return self.files

    def close(self) -> None:
        """Give back what was reserved, and remove the files if they are incomplete."""
        with self._lock:
            self._closed = True
            self._close()
            self._sessions.release(self._reserved)
            self._reserved = 0
            if not self.done:
                for path in self.files:
                    shutil.rmtree(path.parent, ignore_errors=True)

    def _check_size(self, size: int) -> None:
        limit = self._sessions.limits.upload_mb
        if size > limit * MB:
            raise UploadError(413, f"this page accepts files of up to {limit} MB")

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += self._counted(data[start:end])

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += self._counted(data[start:end])

    def _counted(self, form: bytes) -> bytes:
        self._form -= len(form)
        if self._form < 0:
            raise UploadError(413, MALFORMED)
        return form

    def _on_header_end(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field, self._value = b"", b""

    def _open(self) -> None:
        """Start the file of a part; a part without a file name is a field that nobody needs."""
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if b"filename" not in options:
            return
        if len(self.files) >= self._sessions.limits.kept:
            raise UploadError(413, "this request has too many files: send them one by one")
        self.name = file_name(options[b"filename"].decode("utf-8", "replace"))
        folder = self._sessions.upload_folder()
        if folder is None:
            raise UploadError(507, NO_ROOM)
        self.files.append(folder / self.name)
        self._file = self.files[-1].open("wb", buffering=0)

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._file is None:
            self._counted(data[start:end])
            return
        size = end - start
        self._stored += size
        self._check_size(self._stored)
        if size > self._reserved:
            fitting = (some for some in (size + BLOCK, size) if self._sessions.reserve(some))
            if not (more := next(fitting, 0)):
                raise UploadError(507, NO_ROOM)
            self._reserved += more
        if self._file.write(memoryview(data)[start:end]) != size:
            raise UploadError(507, NO_ROOM)
        self._reserved -= size
        self._sessions.release(size)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def file_name(given: str) -> str:
    """A safe name for a file, as close as possible to what its visitor calls it."""
    last = given.replace("\\", "/").rpartition("/")[2]
    kept = "".join(c for c in last if c.isprintable() and c not in '<>:"|?*#%').strip(". ")
    path = PurePosixPath(kept)
    return path.stem.encode()[:LONGEST_NAME].decode(errors="ignore") + path.suffix[:10] or "file"


class Uploads:
    """The uploads under way."""

    def __init__(self, sessions: SessionStore) -> None:
        self.sessions = sessions
        self._under_way: dict[str, Upload] = {}  # by the name that the page gives them

    async def receive(self, request: Request) -> Response:
        """Store the files of a request; answers with their paths, as gradio does."""
        kind, options = parse_options_header(request.headers.get("content-type"))
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            return PlainTextResponse(MALFORMED, 400)
        upload = Upload(self.sessions, options[b"boundary"])
        name = request.query_params.get("upload_id", "")
        self._under_way[name] = upload
        body = request.stream()
        try:
            async for chunk in body:
                await asyncio.to_thread(upload.write, chunk)
            files = await asyncio.to_thread(upload.finish)
            return JSONResponse([os.fspath(path) for path in files])
        except UploadError as error:
            await asyncio.to_thread(upload.close)  # make room before the rest has arrived
            await self._drain(body)
            return PlainTextResponse(str(error), error.status)
        except ClientDisconnect:
            return Response()  # to nobody
        finally:
            await asyncio.shield(asyncio.to_thread(upload.close))
            if self._under_way.get(name) is upload:
                del self._under_way[name]

    async def _drain(self, body: AsyncIterator[bytes]) -> None:
        """Read on, as many clients look at the answer only after they have sent everything."""
        left = self.sessions.limits.upload_mb * MB
        try:
            async for chunk in body:
                left -= len(chunk)
                if left < 0:
                    return
        except ClientDisconnect:
            return

    def progress(self, name: str) -> Response:
        """Server-sent events about an upload, as gradio's page expects them."""
        return StreamingResponse(self._events(name), media_type="text/event-stream")

    async def _events(self, name: str) -> AsyncIterator[str]:
        seen = 0
        for _ in range(LOOKS):  # the page may ask before it sends
            if name in self._under_way:
                break
            await asyncio.sleep(LOOK_EVERY)
        while (upload := self._under_way.get(name)) is not None:
            if upload.arrived > seen:
                news = {
                    "msg": "update",
                    "orig_name": upload.name,
                    "chunk_size": upload.arrived - seen,
                }
                seen = upload.arrived
                yield f"data: {json.dumps(news)}\n\n"
            await asyncio.sleep(LOOK_EVERY)
        yield f"data: {json.dumps({'msg': 'done'})}\n\n"
