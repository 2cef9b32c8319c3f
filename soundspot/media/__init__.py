"""Media files to arrays, and back."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import TypeVar

PICTURES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
SOUNDS = frozenset({".mp3", ".wav", ".flac", ".m4a", ".ogg", ".aac", ".opus"})
VIDEOS = frozenset(
    {".mp4", ".webm", ".mkv", ".avi", ".mov", ".flv", ".m4v", ".mpg", ".mpeg", ".3gp", ".wmv"}
)

FileName = TypeVar("FileName", str, PurePath)


def sound_of_picture(group: Sequence[FileName]) -> FileName | None:
    """The sound file in a group that consists of one picture and one sound, else None."""
    sounds = [file for file in group if PurePath(file).suffix.lower() in SOUNDS]
    pictures = [file for file in group if PurePath(file).suffix.lower() in PICTURES]
    return sounds[0] if len(group) == 2 and len(sounds) == len(pictures) == 1 else None
