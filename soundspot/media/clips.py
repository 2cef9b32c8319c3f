"""Any video, image or sound file -> RGB frames and mono 16 kHz sound.

Every time is in seconds from the first picture of a video, or from the start of a sound file.
Every reader takes a path, its `MediaInfo` or an open file (see `opening`).

Axes: height width = the picture as displayed; samples = mono sound at 16 kHz.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, UInt8

from soundspot.media import decoding, images
from soundspot.media.decoding import SAMPLE_RATE, MediaError, TimedSound
from soundspot.media.opening import Media, MediaInfo, OpenMedia, opened, probe
from soundspot.media.sound import (
    SILENCE_PEAK,
    SOUND_SAMPLES,
    SOUND_SECONDS,
    Windows,
    check_finite,
    cut,
    is_silent,
    seek_windows,
    walk_windows,
)
from soundspot.media.writing import flac_bytes, jpeg_bytes, write_flac, write_jpeg, write_video

__all__ = [
    "SAMPLE_RATE",
    "SILENCE_PEAK",
    "SOUND_SAMPLES",
    "SOUND_SECONDS",
    "Clip",
    "Media",
    "MediaError",
    "MediaInfo",
    "OpenMedia",
    "cut",
    "flac_bytes",
    "is_silent",
    "iter_frames",
    "iter_sound",
    "iter_windows",
    "jpeg_bytes",
    "opened",
    "probe",
    "read_clip",
    "read_frame",
    "read_frames",
    "read_sound",
    "read_sounds",
    "read_waveform",
    "write_flac",
    "write_jpeg",
    "write_video",
]

_LAST_FRAME_HOLD = 0.1  # s; a padded sound track may outlast the last picture by this much

Picture = UInt8[np.ndarray, "height width 3"]


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


def read_frame(media: Media, at: float | None = None) -> UInt8[np.ndarray, "height width 3"]:
    """Read an image, or the frame that a video shows at a moment.

    Args:
        media: A video, or an image (an animated one gives its first frame).
        at: Seconds; by default the middle of the video. An image ignores it.
    """
    return read_frames(media, [at])[0]


def read_frames(media: Media, times: Sequence[float | None]) -> list[Picture]:
    """`read_frame` at several moments in any order, from one opening of the file."""
    with opened(media) as file:
        info = file.info
        info.require_picture()
        if file.image is not None:
            return [images.decode_image(info.path, file.image)] * len(times)
        moments = [info.moment(at) for at in times]
        pictures = _sought_frames(file, moments)
        # From the start if the seek led to a picture that needs earlier ones.
        for from_start in (False, True):
            rest = sorted(set(moments) - set(pictures))
            if rest:
                pictures |= _walked_frames(file, rest, 0.0 if from_start else rest[0])
        for at in moments:
            if at not in pictures:
                raise MediaError(
                    f"{info.path} is damaged: its picture at {at:.2f} s cannot be decoded."
                )
        return [pictures[at] for at in moments]


def read_sound(
    media: Media, at: float | None = None, seconds: float = SOUND_SECONDS
) -> Float32[np.ndarray, " samples"]:
    """Read a window of the sound, as `cut` takes it from the whole; refuse silence.

    Far into a long file it seeks, if the file's time stamps count samples. The samples are those
    of a full decode, except for the noise that AAC leaves to the decoder to draw.

    Args:
        media: A sound file or a video with sound.
        at: The middle of the window in seconds; by default the middle of the clip.
        seconds: The length of the window.
    """
    return read_sounds(media, [(at, seconds)])[0]


def read_sounds(
    media: Media, moments: Sequence[tuple[float | None, float]]
) -> list[Float32[np.ndarray, " _samples"]]:
    """`read_sound` of several (at, seconds) in any order, from one opening of the file."""
    with opened(media) as file:
        file.info.require_sound()
        wanted = [(file.info.moment(at), seconds) for at, seconds in moments]
        order = sorted(set(wanted))
        walk = seek_windows(file, [(at, (seconds,)) for at, seconds in order])
        sounds = {
            moment: _audible(file.info, moment[0], windows)
            for moment, windows in zip(order, walk, strict=True)
        }
        return [sounds[moment] for moment in wanted]


def read_waveform(media: Media) -> Float32[np.ndarray, " samples"]:
    """Read the whole sound; sample i is heard i/16000 s after the first picture."""
    with opened(media) as file:
        file.info.require_sound()
        blocks = decoding.sound_blocks(file.info.path, 0, file.walk("audio"))
        return np.concatenate([np.zeros(0, np.float32), *blocks])


def read_clip(media: Media, audio: Media | None = None, at: float | None = None) -> Clip:
    """Read a frame and the 3 s of sound around it: from a video, or an image and a sound file.

    Args:
        media: A video, or an image if `audio` is given.
        audio: The sound of the image, or one that replaces the video's and shares its clock.
        at: Seconds; by default the middle of the video, or of the sound that goes with an image.
    """
    with opened(media) as file:
        info = file.info
        if audio is not None:
            if info.kind == "video":
                at = info.moment(at)
            return Clip(read_frame(file, at), read_sound(audio, at), at)
        info.require_sound()
        info.require_picture()
        at = info.moment(at)
        # The sound first: after the seek to the frame it would need a second opening.
        windows = next(seek_windows(file, [(at, (SOUND_SECONDS,))]))
        frame = read_frame(file, at)
        return Clip(frame, _audible(info, at, windows), at)


def iter_frames(media: Media, fps: float) -> Iterator[tuple[float, Picture]]:
    """Walk a video at a steady rate in constant memory: (0, frame), (1/fps, frame), ..."""
    with opened(media) as file:
        path = file.info.path
        if file.info.kind != "video":
            raise MediaError(f"{path} has no moving pictures: give a video.")
        if not 0 < fps < math.inf:
            raise MediaError(f"Expected a number of frames per second above 0, got {fps}.")
        times = (k / fps for k in itertools.count())
        frames = decoding.shown(file.walk("video"), times, hold=-decoding.CLOCK_TOLERANCE)
        for time, frame in frames:
            yield time, decoding.to_rgb(path, frame)


def iter_sound(
    media: Media, times: Iterable[float], seconds: float
) -> Iterator[Float32[np.ndarray, " samples"] | None]:
    """`iter_windows` of one length."""
    for windows in iter_windows(media, times, (seconds,)):
        yield None if windows is None else windows[0]


def iter_windows(
    media: Media,
    times: Iterable[float],
    lengths: Sequence[float],
    frames: Iterator[TimedSound] | None = None,
) -> Iterator[Windows | None]:
    """Walk through the sound at growing times in constant memory; None where it has ended.

    Unlike `read_sound` it walks through silence.

    Args:
        media: A sound file or a video with sound.
        times: The middle of the windows in seconds.
        lengths: Seconds of each window that is cut around every time.
        frames: The decoded sound from its start, if somebody walks through it already.
    """
    with opened(media) as file:
        file.info.require_sound()
        path, moments = file.info.path, ((at, lengths) for at in times)
        frames = file.walk("audio") if frames is None else frames
        for windows in walk_windows(path, frames, moments, max(lengths)):
            for window in windows or ():
                check_finite(path, window)
            yield windows


def _sought_frames(file: OpenMedia, times: Iterable[float]) -> dict[float, Picture]:
    """The frames that a seek alone can tell."""
    frames = {at: file.frame_at(at) for at in times}
    path = file.info.path
    return {at: decoding.to_rgb(path, frame) for at, frame in frames.items() if frame is not None}


def _walked_frames(file: OpenMedia, times: Sequence[float], start: float) -> dict[float, Picture]:
    """The frames at growing times, without those that are corrupt."""
    shown = decoding.shown(file.walk("video", start), times, _LAST_FRAME_HOLD)
    frames = dict(itertools.islice(shown, len(times)))
    for at in times:
        if at not in frames:
            raise file.info.missing("picture", at)
    path = file.info.path
    return {at: decoding.to_rgb(path, f) for at, f in frames.items() if not f.is_corrupt}


def _audible(
    info: MediaInfo, at: float, windows: Windows | None
) -> Float32[np.ndarray, " samples"]:
    """The window of a moment, in which there must be something to hear."""
    if windows is None:
        raise info.missing("sound", at)
    check_finite(info.path, windows[0])
    if is_silent(windows[0]):
        sentence = f"{info.path} is silent at {at:.2f} s: give another moment or sound."
        raise MediaError(sentence, "silent")
    return windows[0]
