"""Any video, image or sound file -> RGB frames and mono 16 kHz sound.

Every time is in seconds from the first picture of a video, or from the start of a sound file.

Axes: height width = the picture as displayed; samples, total = mono sound at 16 kHz.
"""

import itertools
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from av.container import InputContainer
from jaxtyping import Float32, UInt8

from soundspot.media import decoding
from soundspot.media.decoding import SAMPLE_RATE, MediaError
from soundspot.media.writing import flac_bytes, jpeg_bytes, write_flac, write_jpeg, write_video

__all__ = [
    "SAMPLE_RATE",
    "SILENCE_PEAK",
    "SOUND_SAMPLES",
    "SOUND_SECONDS",
    "Clip",
    "MediaError",
    "MediaInfo",
    "cut",
    "flac_bytes",
    "is_silent",
    "iter_clips",
    "iter_frames",
    "iter_sound",
    "jpeg_bytes",
    "probe",
    "read_clip",
    "read_frame",
    "read_sound",
    "read_waveform",
    "write_flac",
    "write_jpeg",
    "write_video",
]

SOUND_SECONDS = 3.0
SOUND_SAMPLES = 48_000
SILENCE_PEAK = 1e-4  # half of the peak-to-peak swing; below it nothing is to be heard (-80 dB)

_LAST_FRAME_HOLD = 0.1  # s; a padded sound track may outlast the last picture by this much
_SOUND_END_SLACK = 0.5  # s; the tracks of a clip rarely end together
_SEEK_FROM = 20  # s; up to here decoding from the start costs no more than a seek

PathLike = str | os.PathLike[str]
Kind = Literal["image", "sound", "video"]


@dataclass(frozen=True)
class MediaInfo:
    """What a file holds.

    Attributes:
        path: The file.
        kind: A "video" has moving pictures and perhaps sound.
        duration: Seconds; for a video those of its pictures, None for an image.
        size: (width, height) as displayed, after rotation; None for a sound.
        has_sound: Whether there is a sound track (it may be silent).
    """

    path: Path
    kind: Kind
    duration: float | None
    size: tuple[int, int] | None
    has_sound: bool


@dataclass(frozen=True)
class Clip:
    """A frame and the sound around it.

    Attributes:
        frame: The RGB picture.
        waveform: 3 s of mono 16 kHz sound.
        at: The moment in seconds; None for an image with the middle of a sound.
    """

    frame: UInt8[np.ndarray, "height width 3"]
    waveform: Float32[np.ndarray, " samples"]
    at: float | None


def check_sound(path: str | Path) -> None:
    """Refuse a file without sound where one is needed."""
    if not probe(path).has_sound:
        raise MediaError(f"{path} has no sound to locate: give a sound file (--audio).")


def probe(path: PathLike) -> MediaInfo:
    """Say what a file holds, or raise `MediaError` if it is no readable image, sound or video."""
    path = Path(path)
    found = _inspect(path)
    if found.kind == "image":
        return MediaInfo(path, "image", None, decoding.image_size(path), has_sound=False)
    if found.kind == "sound":
        return MediaInfo(path, "sound", found.duration, None, has_sound=True)
    for _, frame in decoding.decode(path, "video", 0.0):
        height, width, _ = decoding.to_rgb(path, frame).shape
        return MediaInfo(path, "video", found.duration, (width, height), found.has_sound)
    raise _missing(path, found, "picture", 0.0)


def read_frame(path: PathLike, at: float | None = None) -> UInt8[np.ndarray, "height width 3"]:
    """Read an image, or the frame that a video shows at a moment.

    Args:
        path: A video, or an image (an animated one gives its first frame).
        at: Seconds; by default the middle of the video. An image ignores it.
    """
    path = Path(path)
    with _opened(path) as (found, container):
        return _frame(path, found, at, container)


def read_sound(
    path: PathLike, at: float | None = None, seconds: float = SOUND_SECONDS
) -> Float32[np.ndarray, " samples"]:
    """Read a window of the sound, as `cut` takes it from the whole; refuse silence.

    Far into a long file it seeks, if the file's time stamps count samples. The samples are those
    of a full decode, but for the noise that AAC leaves to the decoder to draw.

    Args:
        path: A sound file or a video with sound.
        at: The middle of the window in seconds; by default the middle of the clip.
        seconds: The length of the window.
    """
    path = Path(path)
    with _opened(path) as (found, container):
        _require_sound(path, found)
        at = _moment(path, found, at)
        return _heard(path, found, at, next(_windows(path, [at], seconds, container)))


def read_waveform(path: PathLike) -> Float32[np.ndarray, " samples"]:
    """Read the whole sound; sample i is heard i/16000 s after the first picture."""
    path = Path(path)
    with _opened(path) as (found, container):
        _require_sound(path, found)
        blocks = decoding.sound_blocks(path, 0, container)
        return np.concatenate([np.zeros(0, np.float32), *blocks])


def read_clip(path: PathLike, audio: PathLike | None = None, at: float | None = None) -> Clip:
    """Read a frame and the 3 s of sound around it: from a video, or an image and a sound file.

    Args:
        path: A video, or an image if `audio` is given.
        audio: The sound of the image, or one that replaces the video's and shares its clock.
        at: Seconds; by default the middle of the video, or of the sound that goes with an image.
    """
    path = Path(path)
    with _opened(path) as (found, container):
        if audio is not None:
            if found.kind == "video":
                at = _moment(path, found, at)
            return Clip(_frame(path, found, at, container), read_sound(audio, at), at)
        _require_sound(path, found)
        _require_picture(path, found)
        at = _moment(path, found, at)
        # The sound first: after the seek to the frame the container is no longer fresh.
        window = next(_windows(path, [at], SOUND_SECONDS, container))
        frame = _frame(path, found, at, container)
        return Clip(frame, _heard(path, found, at, window), at)


def iter_frames(
    path: PathLike, fps: float
) -> Iterator[tuple[float, UInt8[np.ndarray, "height width 3"]]]:
    """Walk a video at a steady rate in constant memory: (0, frame), (1/fps, frame), ..."""
    path = Path(path)
    if _inspect(path).kind != "video":
        raise MediaError(f"{path} has no moving pictures: give a video.")
    frames = decoding.decode(path, "video", 0.0)
    for time, frame in decoding.shown(frames, _ticks(fps), hold=-decoding.CLOCK_TOLERANCE):
        yield time, decoding.to_rgb(path, frame)


def iter_clips(path: PathLike, fps: float) -> Iterator[Clip]:
    """Walk a video at a steady rate in constant memory, with the sound around each frame.

    Unlike `read_clip` it walks through silence, and gives zeros where the sound has ended.
    """
    path = Path(path)
    _require_sound(path, _inspect(path))
    windows = _windows(path, _ticks(fps), SOUND_SECONDS)
    for (time, frame), window in zip(iter_frames(path, fps), windows, strict=False):
        yield Clip(frame, np.zeros(SOUND_SAMPLES, np.float32) if window is None else window, time)


def iter_sound(
    path: PathLike, times: Iterable[float], seconds: float
) -> Iterator[Float32[np.ndarray, " samples"] | None]:
    """Walk through the sound around growing times in constant memory; None where it has ended.

    Unlike `read_sound` it walks through silence.
    """
    path = Path(path)
    _require_sound(path, _inspect(path))
    for window in _windows(path, times, seconds):
        if window is not None and not np.isfinite(window).all():
            raise MediaError(f"{path} is damaged: its sound has infinite samples.")
        yield window


def cut(
    waveform: Float32[np.ndarray, " total"], centre: float | None, samples: int
) -> Float32[np.ndarray, " samples"]:
    """Take the window around a moment: shifted inside at the ends, tiled from a shorter sound.

    Args:
        waveform: The whole sound.
        centre: Seconds; None for the middle.
        samples: The length of the window.
    """
    total = len(waveform)
    if total == 0:
        raise MediaError(f"Expected a sound to take {samples} samples from, got an empty one.")
    if total < samples:
        return np.resize(waveform, samples)  # np.resize repeats the array
    middle = total / 2 if centre is None else centre * SAMPLE_RATE
    start = min(max(round(middle - samples / 2), 0), total - samples)
    return waveform[start : start + samples].copy()


def is_silent(waveform: Float32[np.ndarray, " samples"]) -> bool:
    """Whether nothing is to be heard; a constant offset is not a sound."""
    return float(np.ptp(waveform)) / 2 < SILENCE_PEAK


class _Found(NamedTuple):
    kind: Kind
    duration: float  # 0 for an image
    has_sound: bool


def _inspect(path: Path) -> _Found:
    with _opened(path) as (found, _):
        return found


@contextmanager
def _opened(path: Path) -> Iterator[tuple[_Found, InputContainer | None]]:
    """Open a file and say what it holds; an image needs no container."""
    try:
        if path.exists() and not path.is_file():
            raise MediaError(f"{path} is not a file: expected an image, a sound or a video.")
        with path.open("rb") as file:
            if not file.read(1):
                raise MediaError(f"{path} is empty (0 bytes).")
    except OSError as error:
        raise MediaError(f"Cannot open {path}: {error.strerror}.") from error
    if decoding.image_size(path) is not None:
        yield _Found("image", 0.0, has_sound=False), None
        return
    with decoding.open_container(path) as container:
        video = decoding.find_stream(container, "video")
        audio = decoding.find_stream(container, "audio")
        stream = audio if video is None else video
        if stream is None:
            raise MediaError(f"{path} has neither pictures nor sound that can be decoded.")
        duration = decoding.duration(path, container, stream)
        if not duration > 0:
            raise MediaError(f"{path} has zero length.")
        kind: Kind = "sound" if video is None else "video"
        yield _Found(kind, duration, audio is not None), container


def _moment(path: Path, found: _Found, at: float | None) -> float:
    """Settle when: the middle by default, else a moment that must lie inside."""
    if at is None:
        return found.duration / 2
    if not 0 <= at <= found.duration + decoding.CLOCK_TOLERANCE:
        raise MediaError(f"{path} is {found.duration:.2f} s long: it has no moment {at} s.")
    return at


def _frame(
    path: Path, found: _Found, at: float | None, container: InputContainer | None
) -> UInt8[np.ndarray, "height width 3"]:
    _require_picture(path, found)
    if container is None:
        return decoding.read_image(path)
    at = _moment(path, found, at)
    near = decoding.frame_at(container, at)
    if near is not None:
        return decoding.to_rgb(path, near)
    for start in (at, 0.0):  # from the start if the seek led to a picture that needs earlier ones
        frames = decoding.decode(path, "video", start)
        _, frame = next(decoding.shown(frames, [at], _LAST_FRAME_HOLD), (at, None))
        if frame is None:
            raise _missing(path, found, "picture", at)
        if not frame.is_corrupt:
            return decoding.to_rgb(path, frame)
    raise MediaError(f"{path} is damaged: its picture at {at:.2f} s cannot be decoded.")


def _require_sound(path: Path, found: _Found) -> None:
    if not found.has_sound:
        article = "an" if found.kind == "image" else "a"
        sentence = f"{path} is {article} {found.kind} without sound: give a sound file too."
        raise MediaError(sentence, "no sound")


def _require_picture(path: Path, found: _Found) -> None:
    if found.kind == "sound":
        raise MediaError(f"{path} has no picture, only sound: give an image or a video.")


def _heard(
    path: Path, found: _Found, at: float, window: Float32[np.ndarray, " samples"] | None
) -> Float32[np.ndarray, " samples"]:
    """Refuse a window in which there is nothing to hear."""
    if window is None:
        raise _missing(path, found, "sound", at)
    if not np.isfinite(window).all():
        raise MediaError(f"{path} is damaged: its sound at {at:.2f} s has infinite samples.")
    if is_silent(window):
        sentence = f"{path} is silent at {at:.2f} s: give another moment or sound."
        raise MediaError(sentence, "silent")
    return window


def _missing(path: Path, found: _Found, what: str, at: float) -> MediaError:
    return MediaError(
        f"{path} is cut short or damaged: it announces {found.duration:.2f} s"
        f" but has no {what} at {at:.2f} s."
    )


def _positive(fps: float) -> float:
    if not 0 < fps < math.inf:
        raise MediaError(f"Expected a number of frames per second above 0, got {fps}.")
    return fps


def _ticks(fps: float) -> Iterator[float]:
    return (k / _positive(fps) for k in itertools.count())


def _windows(
    path: Path, times: Iterable[float], seconds: float, fresh: InputContainer | None = None
) -> Iterator[Float32[np.ndarray, " samples"] | None]:
    """`cut` the whole sound at growing times, None after its end, holding a few seconds of it."""
    blocks = None
    buffer = np.zeros(0, np.float32)
    begin = 0  # the clip's second at which the buffer begins
    for at in times:
        # The earliest window ends at the slack before `at`; a second is for the decoder to warm up.
        oldest = max(0, int(at - seconds - _SOUND_END_SLACK) - 1)
        if blocks is None:
            begin = oldest if oldest >= _SEEK_FROM else 0
            blocks = decoding.sound_blocks(path, begin, fresh)
        while begin + len(buffer) / SAMPLE_RATE < max(at + seconds / 2, seconds):
            block = next(blocks, None)
            if block is None:
                break
            buffer = np.concatenate([buffer, block])
            # Whole seconds, so that `cut` rounds as it does on the whole.
            drop = max(0, min(oldest - begin, len(buffer) // SAMPLE_RATE))
            begin, buffer = begin + drop, buffer[drop * SAMPLE_RATE :]
        end = begin + len(buffer) / SAMPLE_RATE
        has_sound = len(buffer) > 0 and at <= end + _SOUND_END_SLACK
        yield cut(buffer, at - begin, round(seconds * SAMPLE_RATE)) if has_sound else None
