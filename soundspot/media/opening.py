"""What a file holds, and a handle on the open file.

Every reader of `clips` takes a path, the `MediaInfo` that `probe` gave for it, or an `OpenMedia`.
A path is opened and inspected, an info only opened, an open file neither.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from av.container import InputContainer
from av.video.frame import VideoFrame
from PIL import Image

from soundspot.common.errors import Code, MediaError
from soundspot.media import decoding, images
from soundspot.media.decoding import Track

PathLike = str | os.PathLike[str]
Kind = Literal["image", "sound", "video"]
LOWEST_RATE = 1000  # Hz; at 1 Hz, which a damaged file may claim, a song lasts for months


@dataclass(frozen=True)
class MediaInfo:
    """What a file holds: `size` is (width, height) as displayed, and a sound track may be silent.

    The duration is that of a video's pictures, None for an image; a "video" need not have sound.
    """

    path: Path
    kind: Kind
    duration: float | None
    size: tuple[int, int] | None
    has_sound: bool

    @property
    def _is_a(self) -> str:
        return f"{self.path} is {'an' if self.kind == 'image' else 'a'} {self.kind}"

    def require_sound(self) -> None:
        """Raise `MediaError` if there is no sound track."""
        if not self.has_sound:
            raise MediaError(f"{self._is_a} without sound: give a sound file too", "no-sound")

    def require_picture(self) -> None:
        """Raise `MediaError` if there is nothing to see."""
        if self.kind == "sound":
            sentence = f"{self.path} has no picture, only sound: give an image or a video"
            raise MediaError(sentence, "no-picture")

    def require_video(self) -> None:
        """Raise `MediaError` if there are no moving pictures."""
        if self.kind != "video":
            raise MediaError(f"{self._is_a}, not a video: give a video", "no-picture")

    def moment(self, at: float | None) -> float:
        """A moment of a video or sound: the middle by default, else one that must lie inside."""
        duration = self.duration or 0.0
        if at is None:
            return duration / 2
        if not 0 <= at <= duration + decoding.CLOCK_TOLERANCE:
            sentence = f"{self.path} is {duration:.2f} s long: it has no moment {at} s"
            raise MediaError(sentence, "bad-input")
        return at

    def missing(self, what: str, at: float) -> MediaError:
        """The error for a file that ends before it says it does."""
        return MediaError(
            f"{self.path} is cut short or damaged: it announces {self.duration or 0.0:.2f} s"
            f" but has no {what} at {at:.2f} s"
        )


@dataclass(eq=False)
class OpenMedia:
    """An open file and what it holds; the size of a video is not known yet."""

    info: MediaInfo
    image: Image.Image | None = None
    container: Any = None

    def __post_init__(self) -> None:
        # Not every format can be rewound, so only the first walk from the start may have it.
        self._unread = self.container

    def walk(self, kind: Track, start: float = 0.0) -> Iterator[Any]:
        """Decode (time, frame) from the start, or from `start` or before it where that is exact.

        Only one walk at a time may seek. From the start, each walk but the first opens the file
        again, so that several may run side by side.
        """
        unread, self._unread = self._unread, None
        if start > 0 and decoding.seeks_exactly(self.container, kind):
            return decoding.decode(self.info.path, kind, start, self.container)
        return decoding.decode(self.info.path, kind, 0.0, unread)

    def sound_seconds(self) -> float:
        """When the sound ends, as the file announces it; else when the file ends."""
        stream = decoding.find_stream(self.container, "audio")
        announced = decoding.announced_duration(self.container, stream)
        return self.info.duration or 0.0 if announced is None else announced

    def frame_at(self, at: float) -> VideoFrame | None:
        """Seek to the frame shown at a moment; None if only a walk can tell."""
        self._unread = None
        return decoding.frame_at(self.info.path, self.container, at)


Media = PathLike | MediaInfo | OpenMedia


def probe(media: Media) -> MediaInfo:
    """Say what a file holds; raise `MediaError` if it is not a readable image, sound or video."""
    with opened(media) as file:
        info = file.info
        if info.kind != "video" or info.size is not None:
            return info
        for _, frame in file.walk("video"):
            height, width, _ = decoding.to_rgb(info.path, frame).shape
            return replace(info, size=(width, height))
    raise info.missing("picture", 0.0)


@contextmanager
def opened(media: Media) -> Iterator[OpenMedia]:
    """Open a file and find out what it holds; one that is open already is left open."""
    if isinstance(media, OpenMedia):
        yield media
        return
    known = media if isinstance(media, MediaInfo) else None
    path = media.path if isinstance(media, MediaInfo) else Path(media)
    _check_file(path)
    image = images.open_image(path) if known is None or known.kind == "image" else None
    if image is not None:
        with image:
            size = images.upright_size(path, image)
            yield OpenMedia(MediaInfo(path, "image", None, size, has_sound=False), image)
        return
    with decoding.open_container(path) as container:
        yield OpenMedia(known or _inspect(path, container), container=container)


def _check_file(path: Path) -> None:
    try:
        if path.exists() and not path.is_file():
            raise MediaError(f"{path} is not a file: expected an image, a sound or a video")
        with path.open("rb") as file:
            if not file.read(1):
                raise MediaError(f"{path} is empty (0 bytes)")
    except OSError as error:
        code: Code = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        raise MediaError(f"cannot open {path}: {error.strerror}", code) from error


def _inspect(path: Path, container: InputContainer) -> MediaInfo:
    """What a sound or video holds; nothing is read from the container."""
    video = decoding.find_stream(container, "video")
    audio = decoding.find_stream(container, "audio")
    stream = audio if video is None else video
    if stream is None:
        raise MediaError(f"{path} has neither pictures nor sound that can be decoded")
    if audio is not None and audio.rate and audio.rate < LOWEST_RATE:
        raise MediaError(f"{path} has a sound of {audio.rate} samples per second: convert it first")
    duration = decoding.duration(path, container, stream)
    if not duration > 0:
        raise MediaError(f"{path} has zero length")
    kind: Kind = "sound" if video is None else "video"
    return MediaInfo(path, kind, duration, None, audio is not None)
