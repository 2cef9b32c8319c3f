"""The files of the visitors: each session has its own, and they go when it ends.

An upload comes before its session is known: it gets a folder with a name that nobody can guess,
and belongs to the session that uses it first. Nothing but uploads and results lies below the root.
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

from soundspot.common.errors import SoundspotError
from soundspot.web.limits import MB, Limits


@dataclass
class Session:
    """What a visitor has here.

    Attributes:
        folder: For results.
        seen: When there was a sign of life.
        uploads: Files of the visitor's, the one used last at the end.
        results: Files made for the visitor, the newest at the end.
        stop: Set when the work in hand is no longer wanted.
    """

    folder: Path
    seen: float
    uploads: list[Path] = field(default_factory=list)
    results: list[Path] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)


class Store:
    """All sessions and their files, below one temporary folder that `clear` removes.

    Args:
        limits: How much may be kept.
        clock: Tells the seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.root = Path(tempfile.mkdtemp(prefix="soundspot-web-")).resolve()
        self._clock = clock
        self._lock = threading.RLock()
        self._sessions: dict[str, Session] = {}
        self._unclaimed: dict[Path, float] = {}
        self._watched: Counter[str] = Counter()

    def touch(self, session: Session) -> None:
        """Note a sign of life."""
        session.seen = self._clock()

    def issue(self, upload: Path) -> Path:
        """Give an upload that has arrived a place of its own."""
        place = self._folder(self.root, "upload-") / upload.name
        place.hardlink_to(upload)
        with self._lock:
            self._unclaimed[place] = self._clock()
        return place

    def session(self, key: str) -> Session:
        """The session of this name, a new one if need be.

        Programs come without a page that says when it is closed: they make room for others.
        """
        self.sweep()
        with self._lock:
            if key not in self._sessions and len(self._sessions) >= self.limits.visitors:
                silent = [other for other in self._sessions if not self._watched[other]]
                if not silent:
                    raise SoundspotError(
                        f"{len(self._sessions)} visitors are here, and there is no room for more: "
                        "try again in a few minutes"
                    )
                self.close(min(silent, key=lambda other: self._sessions[other].seen))
            if key not in self._sessions:
                self._sessions[key] = Session(self._folder(self.root, "session-"), self._clock())
            self.touch(self._sessions[key])
            return self._sessions[key]

    @contextmanager
    def watched(self, key: str) -> Iterator[None]:
        """Hold a session as long as its page is open, and end it then."""
        self._watched[key] += 1
        try:
            yield
        finally:
            self._watched[key] -= 1
            if self._watched[key] <= 0:
                del self._watched[key]
                self.close(key)

    def claim(self, session: Session, path: Path) -> Path:
        """Make an upload the session's; only what was uploaded, by no other session, is taken."""
        with self._lock:
            if path in session.uploads:
                session.uploads.remove(path)
            elif self._unclaimed.pop(path, None) is None:
                raise SoundspotError(f"the upload {path.name} is no longer here: upload it again")
            session.uploads.append(path)
            for old in _drop_oldest(session.uploads, self.limits.kept):
                shutil.rmtree(old.parent, ignore_errors=True)
            return path

    def place(self, session: Session, name: str) -> Path:
        """A path for a new result that ends in this name."""
        folder = self._folder(session.folder)
        with self._lock:
            session.results.append(folder / name)
            for old in _drop_oldest(session.results, self.limits.kept):
                shutil.rmtree(old.parent, ignore_errors=True)
        return folder / name

    def stop(self, key: str) -> None:
        """Stop the work of a session, if there is one."""
        found = self._sessions.get(key)
        if found is not None:
            found.stop.set()

    def close(self, key: str) -> None:
        """End a session: stop its work and remove its files."""
        with self._lock:
            found = self._sessions.pop(key, None)
        if found is not None:
            found.stop.set()
            for folder in (found.folder, *(upload.parent for upload in found.uploads)):
                shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> None:
        """End the sessions that fell asleep, and remove uploads that nobody used."""
        now = self._clock()
        with self._lock:
            asleep = [k for k, s in self._sessions.items() if now - s.seen > self.limits.idle]
            forgotten = [p for p, t in self._unclaimed.items() if now - t > self.limits.unclaimed]
            for path in forgotten:
                del self._unclaimed[path]
        for key in asleep:
            self.close(key)
        for path in forgotten:
            shutil.rmtree(path.parent, ignore_errors=True)

    def has_room(self) -> bool:
        """Whether one more upload may come."""
        self.sweep()
        used = _bytes_below(self.root)
        return used + self.limits.upload_mb * MB <= self.limits.disk_mb * MB

    def clear(self) -> None:
        """End everything."""
        for key in list(self._sessions):
            self.close(key)
        shutil.rmtree(self.root, ignore_errors=True)

    @staticmethod
    def _folder(parent: Path, prefix: str = "") -> Path:
        folder = parent / f"{prefix}{secrets.token_hex(16)}"  # to know it is to have been told
        folder.mkdir(mode=0o700)
        return folder


def _drop_oldest(files: list[Path], keep: int) -> list[Path]:
    old = files[:-keep]
    del files[:-keep]
    return old


def _bytes_below(root: Path) -> int:
    """Of all files; what is removed meanwhile does not count."""
    total = 0
    for folder, _, names in os.walk(root):  # unlike glob it bears folders that vanish
        for name in names:
            with suppress(OSError):
                total += Path(folder, name).stat().st_size
    return total
