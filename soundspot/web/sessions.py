"""The visitors' files: each session has its own, and they are removed when it ends.

An upload arrives before its session is known: it gets a folder with a name that nobody can guess,
and belongs to the session that uses it first. The root holds only uploads and results.
"""

import os
import secrets
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soundspot.common.errors import SoundspotError
from soundspot.media.clips import MediaInfo
from soundspot.parallel.heap import trim_heaps
from soundspot.web.limits import MB, Limits

SWEEP_EVERY = 60.0  # s


@dataclass
class Session:
    """One visitor's files and work."""

    folder: Path  # of the results
    last_seen: float  # time of the last sign of life
    uploads: list[Path] = field(default_factory=list)  # the most recently used last
    infos: dict[Path, MediaInfo] = field(default_factory=dict)  # of uploads that were probed
    results: list[Path] = field(default_factory=list)  # the newest last
    stop: threading.Event = field(default_factory=threading.Event)  # the work is not wanted
    shown: dict[str, Any] = field(default_factory=dict)  # what its page shows, see `handlers`


class SessionStore:
    """All sessions and their files, in one temporary folder that `clear` removes.

    Args:
        limits: How much may be kept.
        clock: Returns the time in seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.root = Path(tempfile.mkdtemp(prefix="soundspot-web-")).resolve()
        self._clock = clock
        self._lock = threading.RLock()
        self._sessions: dict[str, Session] = {}
        self._unclaimed: dict[Path, float] = {}
        self._open_pages: Counter[str] = Counter()
        self._reserved = 0  # bytes that uploads under way may still write

    def touch(self, session: Session) -> None:
        """Record a sign of life."""
        session.last_seen = self._clock()

    def upload_folder(self) -> Path | None:
        """A new folder for an upload; None if too many wait for somebody to use them."""
        self.sweep()
        if len(self._unclaimed) >= self.limits.visitors * self.limits.kept:
            return None
        return self._folder(self.root, "upload-")

    def add_upload(self, upload: Path) -> Path:
        """Record a complete upload, in a folder of its own."""
        with self._lock:
            self._unclaimed[upload] = self._clock()
        return upload

    def reserve(self, size: int) -> bool:
        """Reserve room on the disk for an upload, if there is any; `release` what was written."""
        with self._lock:
            if self._free(self.limits.for_uploads) < self._reserved + size:
                return False
            self._reserved += size
            return True

    def release(self, size: int) -> None:
        """Give back reserved room: it has been used, or is not needed."""
        with self._lock:
            self._reserved -= size

    def check_room(self) -> None:
        """Refuse to write results on a full disk."""
        if self._free(1.0) <= 0:
            raise SoundspotError("the server's disk quota is full: try again in a few minutes")

    def _free(self, share: float) -> float:
        """Bytes that are left of a share of the disk."""
        return share * self.limits.disk_mb * MB - _bytes_below(self.root)

    def session(self, key: str) -> Session:
        """Get or open the session with this key.

        Programs have no page that tells when it is closed, so they make room for new visitors.
        """
        self.sweep()
        with self._lock:
            if key not in self._sessions and len(self._sessions) >= self.limits.visitors:
                programs = [other for other in self._sessions if not self._open_pages[other]]
                if not programs:
                    raise SoundspotError(
                        f"soundspot already has {len(self._sessions)} visitors, the most it can "
                        "serve: try again in a few minutes"
                    )
                self.close(min(programs, key=lambda other: self._sessions[other].last_seen))
            if key not in self._sessions:
                self._sessions[key] = Session(self._folder(self.root, "session-"), self._clock())
            self.touch(self._sessions[key])
            return self._sessions[key]

    @contextmanager
    def page_open(self, key: str) -> Iterator[None]:
        """Keep a session while its page is open, and close it afterwards."""
        self._open_pages[key] += 1
        try:
            yield
        finally:
            self._open_pages[key] -= 1
            if self._open_pages[key] <= 0:
                del self._open_pages[key]
                self.close(key)

    def claim(self, session: Session, path: Path) -> Path:
        """Assign an upload to a session; refuse other paths, and uploads of other sessions."""
        with self._lock:
            if path in session.uploads:
                session.uploads.remove(path)
            elif self._unclaimed.pop(path, None) is None:
                raise SoundspotError(
                    f"the upload {path.name} is no longer available: upload it again"
                )
            for old in self._keep(session.uploads, path):
                session.infos.pop(old, None)
        return path

    def result_path(self, session: Session, name: str) -> Path:
        """A new path with this file name, for a result."""
        self.check_room()
        folder = self._folder(session.folder)
        with self._lock:
            self._keep(session.results, folder / name)
        return folder / name

    @contextmanager
    def making(self, session: Session, name: str) -> Iterator[Path]:
        """A new path for a result that takes long: it gets old only once it is made."""
        self.check_room()
        path = self._folder(session.folder) / name
        try:
            yield path
        finally:
            if path.exists():
                with self._lock:
                    self._keep(session.results, path)
            else:
                shutil.rmtree(path.parent, ignore_errors=True)

    def close(self, key: str) -> None:
        """Close a session: stop its work and remove its files."""
        with self._lock:
            session = self._sessions.pop(key, None)
        if session is not None:
            session.stop.set()
            for folder in (session.folder, *(upload.parent for upload in session.uploads)):
                shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> None:
        """Close idle sessions, and remove uploads that nobody used."""
        now = self._clock()
        with self._lock:
            idle = [k for k, s in self._sessions.items() if now - s.last_seen > self.limits.idle]
            forgotten = [p for p, t in self._unclaimed.items() if now - t > self.limits.unclaimed]
            for path in forgotten:
                del self._unclaimed[path]
                shutil.rmtree(path.parent, ignore_errors=True)
        for key in idle:
            self.close(key)

    @contextmanager
    def sweeping(self, every: float = SWEEP_EVERY) -> Iterator[None]:
        """Sweep while the context lasts, so that nothing waits for the next visitor.

        Memory is returned as well: work whose answer nobody fetches has no other end.
        """
        done = threading.Event()

        def sweep_on() -> None:
            while not done.wait(every):
                self.sweep()
                trim_heaps()

        threading.Thread(target=sweep_on, name="sweeper", daemon=True).start()
        try:
            yield
        finally:
            done.set()

    def clear(self) -> None:
        """Close all sessions and remove the root."""
        for key in list(self._sessions):
            self.close(key)
        shutil.rmtree(self.root, ignore_errors=True)

    @staticmethod
    def _folder(parent: Path, prefix: str = "") -> Path:
        folder = parent / f"{prefix}{secrets.token_hex(16)}"  # only who was told the name knows it
        folder.mkdir(mode=0o700)
        return folder

    def _keep(self, files: list[Path], new: Path) -> list[Path]:
        """Add a file; the oldest ones beyond the limit are removed and returned."""
        files.append(new)
        removed = files[: -self.limits.kept]
        del files[: -self.limits.kept]
        for old in removed:
            shutil.rmtree(old.parent, ignore_errors=True)
        return removed


def _bytes_below(root: Path) -> int:
    """Total size of all files; files that vanish meanwhile do not count."""
    total = 0
    for folder, _, names in os.walk(root):  # unlike glob, it tolerates folders that vanish
        for name in names:
            with suppress(OSError):
                total += Path(folder, name).stat().st_size
    return total
