"""Any video, image or sound file -> RGB frames and mono 16 kHz sound.

Every time is in seconds from the first picture of a video, or from the start of a sound file.
Every reader takes a path, its `MediaInfo` or an open file (see `opening`).
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from soundspot.common.errors import MediaError
from soundspot.media import decoding, images, sound
from soundspot.media.decoding import SAMPLE_RATE, Picture, TimedSound, Waveform
from soundspot.media.opening import Media, MediaInfo, OpenMedia, opened, probe
from soundspot.media.sound import SILENCE_PEAK, SOUND_SAMPLES, SOUND_SECONDS, cut, is_silent
from soundspot.media.writing import flac_bytes, jpeg_bytes, write_flac, write_jpeg, write_video

__all__ = [
    "SAMPLE_RATE", "SILENCE_PEAK", "SOUND_SAMPLES", "SOUND_SECONDS", "Clip", "Media", "MediaError",
    "MediaInfo", "OpenMedia", "cut", "flac_bytes", "heard_span", "is_silent", "iter_frames",
    "iter_windows", "jpeg_bytes", "opened", "probe", "read_clip", "read_frame", "read_frames",
    "read_sound", "read_sounds", "read_waveform", "write_flac", "write_jpeg", "write_video",
]  # fmt: skip

_LAST_FRAME_HOLD = 0.1  # s; a padded sound track may outlast the last picture by this much


@dataclass(frozen=True)
class Clip:
    """A frame and the 3 s of sound around second `at`, None for an image with a sound's middle.

    `heard` is from where to where the sound is, which is repeated if it is shorter than 3 s.
    """

    frame: Picture
    waveform: Waveform
    at: float | None
    heard: tuple[float, float] | None = None


def read_frame(media: Media, at: float | None = None) -> Picture:
    """Read an image, or the frame that a video shows at a second, by default its middle."""
    return read_frames(media, [at])[0]


def read_frames(media: Media, times: Sequence[float | None]) -> list[decoding.AnyPicture]:
    """`read_frame` at several moments in any order, from one opening of the file."""
    with opened(media) as file:
        path = file.info.path
        file.info.require_picture()
        if file.image is not None:
            return [images.decode_image(path, file.image)] * len(times)
        moments = [file.info.moment(at) for at in times]
        frames = {at: file.frame_at(at) for at in moments}
        # From the start if the seek led to a picture that needs earlier ones.
        for from_start in (False, True):
            rest = sorted(at for at, frame in frames.items() if frame is None)
            if rest:
                walk = file.walk("video", 0.0 if from_start else rest[0])
                shown = decoding.shown(walk, rest, _LAST_FRAME_HOLD)
                walked = dict(itertools.islice(shown, len(rest)))
                if len(walked) < len(rest):
                    raise file.info.missing("picture", rest[len(walked)])
                frames |= {at: f for at, f in walked.items() if not f.is_corrupt}
        pictures = []
        for at in moments:
            if (frame := frames[at]) is None:
                raise MediaError(f"{path} is damaged: its picture at {at:.2f} s cannot be decoded")
            pictures.append(decoding.to_rgb(path, frame))
        return pictures


def read_sound(media: Media, at: float | None = None, seconds: float = SOUND_SECONDS) -> Waveform:
    """Read the sound around a second, by default the middle, as `cut` does; refuse silence."""
    return read_sounds(media, [(at, seconds)])[0]


def read_sounds(
    media: Media, moments: Sequence[tuple[float | None, float]]
) -> list[decoding.AnyWaveform]:
    """`read_sound` of several (at, seconds) in any order, from one opening of the file."""
    with opened(media) as file:
        file.info.require_sound()
        wanted = [(file.info.moment(at), seconds) for at, seconds in moments]
        order = sorted(set(wanted))
        walk = sound.seek_windows(file, [(at, (seconds,)) for at, seconds in order])
        sounds = {
            moment: _audible(file, moment[0], windows)
            for moment, windows in zip(order, walk, strict=True)
        }
        return [sounds[moment] for moment in wanted]


def read_waveform(media: Media) -> Waveform:
    """Read the whole sound; sample i is heard i/16000 s after the first picture."""
    with opened(media) as file:
        file.info.require_sound()
        blocks = sound.sound_blocks(file.info.path, 0, file.walk("audio"))
        return np.concatenate([np.zeros(0, np.float32), *blocks])


def read_clip(media: Media, audio: Media | None = None, at: float | None = None) -> Clip:
    """Read a frame and the 3 s of sound around it: from a video, or an image and a sound file.

    A video may also have a separate sound, which shares its clock. The moment is by default the
    middle of the video, or of the sound that goes with an image.
    """
    with opened(media) as file:
        info = file.info
        if audio is not None:
            if info.kind == "video":
                at = info.moment(at)
            with opened(audio) as track:
                frame, waveform = read_frame(file, at), read_sound(track, at)
                return Clip(frame, waveform, at, heard_span(track, at))
        info.require_sound()
        info.require_picture()
        at = info.moment(at)
        # The sound first: after the seek to the frame it would need a second opening.
        windows = next(sound.seek_windows(file, [(at, (SOUND_SECONDS,))]))
        frame = read_frame(file, at)
        return Clip(frame, _audible(file, at, windows), at, heard_span(file, at))


def heard_span(media: OpenMedia, at: float | None) -> tuple[float, float]:
    """Start and end of the 3 s around a moment, as `cut` takes them, or of a shorter sound."""
    total = media.sound_seconds()
    if total < SOUND_SECONDS:
        return 0.0, total
    middle = media.info.moment(None) if at is None else at
    start = min(max(middle - SOUND_SECONDS / 2, 0.0), total - SOUND_SECONDS)
    return start, start + SOUND_SECONDS


def iter_frames(media: Media, fps: float) -> Iterator[tuple[float, Picture]]:
    """Walk a video at a steady rate in constant memory: (0, frame), (1/fps, frame), ..."""
    with opened(media) as file:
        file.info.require_video()
        if not 0 < fps < math.inf:
            raise MediaError(f"expected frames per second above 0, got {fps}", "bad-input")
        times = (k / fps for k in itertools.count())
        frames = decoding.shown(file.walk("video"), times, hold=-decoding.CLOCK_TOLERANCE)
        for time, frame in frames:
            yield time, decoding.to_rgb(file.info.path, frame)


def iter_windows(
    media: Media,
    times: Iterable[float],
    lengths: Sequence[float],
    frames: Iterator[TimedSound] | None = None,
) -> Iterator[sound.Windows | None]:
    """Walk through the sound at growing times in constant memory; None where it has ended.

    Unlike `read_sound` it walks through silence. A window of each of `lengths` is cut around every
    time. `frames` is the decoded sound from its start, if somebody walks through it already.
    """
    with opened(media) as file:
        file.info.require_sound()
        frames = file.walk("audio") if frames is None else frames
        moments = ((at, lengths) for at in times)
        yield from sound.walk_windows(file.info.path, frames, moments, max(lengths))


def _audible(file: OpenMedia, at: float, windows: sound.Windows | None) -> Waveform:
    """The window of a moment, in which there must be something to hear."""
    path = file.info.path
    if windows is None:
        raise file.info.missing("sound", at)
    if is_silent(windows[0]):
        blocks = sound.sound_blocks(path, 0, file.walk("audio"))
        if all(is_silent(block) for block in blocks if block.size):  # no moment would help
            raise MediaError(f"{path} is silent from start to end: give another sound", "silent")
        sentence = f"{path} is silent at {at:.2f} s: give another moment or sound"
        raise MediaError(sentence, "silent")
    return windows[0]
