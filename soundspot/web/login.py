"""A user name and a hashed password, asked for by the browser before anything is served."""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from soundspot.common.errors import SoundspotError

KIND = "scrypt"
N, R, P = 2**14, 8, 5  # 16 MB and about a third of a second
SHORTEST = 8


@dataclass
class Login:
    """Who may use the page; `salt` and `digest` stand in the password file."""

    user: str
    salt: bytes
    digest: bytes
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _accepted: bytes = field(default=b"", repr=False)  # keyed hash of the header that was right

    def accepts(self, header: str) -> bool:
        """Whether an Authorization header has the right name and password."""
        mark = hmac.digest(self._key, header.encode("utf-8", "surrogateescape"), "sha256")
        if self._accepted and hmac.compare_digest(mark, self._accepted):
            return True
        scheme, _, value = header.partition(" ")
        try:
            given = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError):
            return False
        user, colon, password = given.partition(":")
        if scheme.lower() != "basic" or not colon:
            return False
        with self._lock:  # guessing is slow, and takes one core and 16 MB at most
            right = hmac.compare_digest(_digest(password, self.salt), self.digest)
        right &= hmac.compare_digest(user.encode(), self.user.encode())
        if right:
            self._accepted = mark
        return right


def read_login(auth: str, ask: Callable[[str], str] | None = None) -> Login:
    """Read USER:FILE; the file is made if it is missing and somebody can be asked.

    Args:
        auth: A user name and the file with the hash of the password.
        ask: Asks for a password without showing it; None if there is nobody to ask.
    """
    user, colon, name = auth.partition(":")
    if not (user and colon and name):
        raise SoundspotError(f"expected --auth USER:FILE, got {auth!r}")
    path = Path(name)
    if not path.exists():
        if ask is None:
            raise SoundspotError(
                f"there is no password file {path}: run the command once in a terminal to make it"
            )
        write_password(path, _new_password(user, ask))
    try:
        kind, salt, digest = path.read_text("utf-8").split()
        if kind != KIND or len(bytes.fromhex(digest)) != 64:
            raise ValueError
        return Login(user, bytes.fromhex(salt), bytes.fromhex(digest))
    except (OSError, ValueError) as error:
        raise SoundspotError(
            f"{path} is not a password file of soundspot: delete it, and run the command in a "
            "terminal to make a new one"
        ) from error


def write_password(path: Path, password: str) -> None:
    """Write a password's hash to a file that only its owner can read."""
    salt = secrets.token_bytes(16)
    line = f"{KIND} {salt.hex()} {_digest(password, salt).hex()}\n"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(line)
    except OSError as error:
        raise SoundspotError(f"cannot write {path}: {error.strerror}") from error


def _new_password(user: str, ask: Callable[[str], str]) -> str:
    password = ask(f"New password for {user}: ")
    if len(password) < SHORTEST:
        raise SoundspotError(f"expected a password of at least {SHORTEST} characters")
    if ask("Repeat it: ") != password:
        raise SoundspotError("the two passwords differ: run the command again")
    return password


def _digest(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode("utf-8", "surrogateescape"), salt=salt, n=N, r=R, p=P)
