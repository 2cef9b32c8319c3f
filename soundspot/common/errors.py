"""The exception whose message is written for the user, and whose code is for programs."""

from typing import Literal, get_args

Code = Literal[
    "bad-input",  # whatever has no code of its own
    "bad-config",  # a key, a value or an override of a recipe or of a file of ours
    "missing",  # a file or folder that is not there
    "exists",  # a place that holds something else already
    "busy",  # another process works there
    "no-write",  # a full disk, a folder without permission
    "damaged",  # a file of ours that cannot be read
    "unreadable",  # a picture, sound or video that cannot be decoded
    "no-sound",
    "silent",
    "no-picture",  # or none that moves
    "no-features",  # a pair set whose features are not (all) encoded
    "unknown-model",
    "no-weights",  # an encoder's weights cannot be had
    "not-installed",  # an optional package
]
CODES: tuple[str, ...] = get_args(Code)


class SoundspotError(Exception):
    """Bad input: one sentence that says what was expected, what was given and what to do.

    The command line prints the sentence, with its own advice for some codes, and exits with code 2.

    Attributes:
        code: What went wrong, in a word that does not change when the sentence does.
    """

    code: Code = "bad-input"

    def __init__(self, message: object, code: Code | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class MediaError(SoundspotError):
    """A file that cannot give what was asked of it; the message names the file and says why."""

    code: Code = "unreadable"


class ConfigError(SoundspotError):
    """A recipe, an override or a file of settings that does not fit."""

    code: Code = "bad-config"


class BusyError(SoundspotError):
    """Another process holds a lock."""

    code: Code = "busy"


def install_advice(extra: str) -> str:
    """How to get an optional dependency, in words for the end of a message."""
    return f"pip install 'soundspot[{extra}]', or in a clone pip install '.[{extra}]'"
