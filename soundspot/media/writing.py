"""RGB pictures and sound -> files; a video is written as its pictures come, in constant memory.

Axes: height width = a picture; samples of mono sound at 16 kHz; wide = samples of stereo sound at
48 kHz, which every codec of a video accepts.
"""

import io
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.container import OutputContainer
from av.error import FFmpegError
from av.video.frame import VideoFrame
from jaxtyping import Float32, UInt8
from PIL import Image

from soundspot.common.files import atomic_write
from soundspot.media.decoding import SAMPLE_RATE, MediaError, TimedSound

PathLike = str | os.PathLike[str]
CLOCK = 90_000  # ticks per second of the pictures' time stamps
SOUND_RATE = 48_000
_BLOCK = 1024  # samples
_HOLE = SOUND_RATE // 10  # time stamps this far ahead of the samples mean missing sound


class Codecs(NamedTuple):
    """What the name of a file asks for."""

    video: str
    audio: str
    options: dict[str, str]


_H264 = Codecs("libx264", "aac", {"crf": "20", "preset": "veryfast"})
_VP9 = Codecs("libvpx-vp9", "libopus", {"crf": "30", "b:v": "0", "deadline": "realtime"})
FORMATS = {".mp4": _H264, ".mov": _H264, ".mkv": _H264, ".webm": _VP9}


class SoundTrack(NamedTuple):
    """A sound in blocks, and how many channels (mono or stereo) and samples per second it has."""

    rate: int
    layout: str
    blocks: Iterable[Float32[np.ndarray, "_channels _samples"]]


class Timed(NamedTuple):
    """A picture and the second at which it appears."""

    at: float
    picture: UInt8[np.ndarray, "height width 3"]


def write_flac(path: PathLike, waveform: Float32[np.ndarray, " samples"]) -> None:
    """Write mono 16 kHz sound as 16-bit FLAC; samples outside [-1, 1] are clipped."""
    with writing(Path(path)) as temporary:
        temporary.write_bytes(flac_bytes(waveform))


def flac_bytes(waveform: Float32[np.ndarray, " samples"]) -> bytes:
    """Encode the bytes that `write_flac` writes."""
    memory = io.BytesIO()
    with av.open(memory, "w", format="flac") as output:
        stream = output.add_stream("flac", rate=SAMPLE_RATE, layout="mono", format="s16")
        output.mux([*stream.encode(_pcm(waveform)), *stream.encode(None)])
    return memory.getvalue()


def write_jpeg(path: PathLike, frame: UInt8[np.ndarray, "height width 3"]) -> None:
    """Write an RGB picture as JPEG of quality 95."""
    with writing(Path(path)) as temporary:
        temporary.write_bytes(jpeg_bytes(frame))


def jpeg_bytes(frame: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """Encode the bytes that `write_jpeg` writes."""
    memory = io.BytesIO()
    Image.fromarray(frame).save(memory, "JPEG", quality=95)
    return memory.getvalue()


def is_video_name(path: Path) -> bool:
    """Whether the suffix is that of a video that can be written."""
    return path.suffix.lower() in FORMATS


def write_video(
    path: PathLike,
    frames: Iterable[UInt8[np.ndarray, "height width 3"]],
    waveform: Float32[np.ndarray, " samples"] | None,
    fps: float,
) -> None:
    """Write pictures at a steady rate, taking them one by one, and a sound.

    Args:
        path: Its suffix is one of FORMATS.
        frames: Pictures of one size; an odd side is made even by repeating its last line.
        waveform: Mono 16 kHz sound from the start on, left out after the last picture, or None.
        fps: Frames per second.
    """
    if not 0 < fps < math.inf:
        raise MediaError(f"Expected a number of frames per second above 0, got {fps}.")
    pictures = (Timed(index / fps, frame) for index, frame in enumerate(frames))
    track = None
    if waveform is not None:
        starts = range(0, len(waveform), _BLOCK)
        blocks = (waveform[None, start : start + _BLOCK] for start in starts)
        track = SoundTrack(SAMPLE_RATE, "mono", blocks)
    write_timed_video(Path(path), pictures, track, fps)


def write_timed_video(
    path: Path,
    pictures: Iterable[Timed],
    track: SoundTrack | None,
    rate: float,
    seconds: float | None = None,
) -> None:
    """Write pictures as they come, each at its time, and a sound that ends with them.

    Args:
        path: Its suffix is one of FORMATS.
        pictures: Of one size; an odd side is made even by repeating its last line.
        track: The sound, or None.
        rate: About how many pictures per second, which helps the encoder.
        seconds: When the last picture ends; by default after 1 / rate.
    """
    codecs = FORMATS.get(path.suffix.lower())
    if codecs is None:
        choices = ", ".join(FORMATS)
        raise MediaError(f"Cannot write {path}: the name of a video ends in one of {choices}.")
    moving = iter(pictures)
    first = next(moving, None)
    if first is None:
        raise MediaError(f"Cannot write {path}: expected pictures, got none.")
    height, width, _ = first.picture.shape
    with writing(path) as temporary, av.open(f"file:{temporary}", "w") as output:
        average = Fraction(rate).limit_denominator(1001)
        video: Any = output.add_stream(codecs.video, rate=average, options=codecs.options)
        video.pix_fmt = "yuv420p"
        video.height, video.width = height + height % 2, width + width % 2
        video.codec_context.time_base = Fraction(1, CLOCK)
        sound = _start_sound(output, codecs.audio, track)
        last = -1
        for at, picture in itertools.chain([first], moving):
            if picture.shape != first.picture.shape:
                raise MediaError(f"Cannot write {path}: its pictures change size at {at:.2f} s.")
            even = np.pad(picture, [(0, height % 2), (0, width % 2), (0, 0)], "edge")
            frame = VideoFrame.from_ndarray(even, "rgb24")
            last = max(round(at * CLOCK), last + 1)  # broken files show two pictures at once
            frame.pts, frame.time_base = last, Fraction(1, CLOCK)
            output.mux(video.encode(frame))
            # In step with the pictures: a muxer keeps the track that runs ahead in memory.
            sound(at)
        sound(at + 1 / rate if seconds is None else seconds)
        output.mux(video.encode(None))
        sound(None)


def _start_sound(
    output: OutputContainer, codec: str, track: SoundTrack | None
) -> Callable[[float | None], None]:
    """Add the track to a video; the result writes it up to a second, and None ends it."""
    if track is None:
        return lambda until: None
    stream: Any = output.add_stream(codec, rate=track.rate, layout=track.layout)
    blocks, written = iter(track.blocks), 0

    def write(until: float | None) -> None:
        nonlocal written
        if until is None:
            if written:
                output.mux(stream.encode(None))
            return
        while written < until * track.rate and (block := next(blocks, None)) is not None:
            frame = AudioFrame.from_ndarray(np.ascontiguousarray(block), "fltp", track.layout)
            frame.sample_rate, frame.pts = track.rate, written
            frame.time_base = Fraction(1, track.rate)
            output.mux(stream.encode(frame))
            written += block.shape[1]

    return write


def copy_sound(path: Path, frames: Iterable[TimedSound]) -> SoundTrack:
    """The decoded sound of another file as a track of a video that shares its clock.

    Args:
        path: Named in errors.
        frames: The sound from its start.
    """
    return SoundTrack(SOUND_RATE, "stereo", _stereo_blocks(path, frames))


def _stereo_blocks(
    path: Path, frames: Iterable[TimedSound]
) -> Iterator[Float32[np.ndarray, "2 wide"]]:
    """The sound from time 0 on, without what comes before it and with silence in its holes."""
    resampler = av.AudioResampler("fltp", "stereo", SOUND_RATE)
    clock, rate = None, 0  # the place of the next sample, which may be before 0
    for time, frame in frames:
        rate = rate or frame.sample_rate
        if frame.sample_rate != rate:
            raise MediaError(f"{path} changes its sampling rate at {time:.2f} s: convert it first.")
        place = round(time * SOUND_RATE)
        if clock is None:
            clock = min(place, 0)
        hole = place - clock
        while hole > _HOLE:
            silence = min(hole, SOUND_RATE)
            yield np.zeros((2, silence), np.float32)
            hole, clock = hole - silence, clock + silence
        frame.pts = None  # the resampler need not know of jittering time stamps
        for part in resampler.resample(frame):
            block = part.to_ndarray()[:, max(-clock, 0) :]
            clock += part.samples
            if block.shape[1]:
                yield block


def _pcm(waveform: Float32[np.ndarray, " samples"]) -> AudioFrame:
    """The 16-bit frame that reads back as the waveform."""
    whole = np.clip(np.round(waveform * 2**15), -(2**15), 2**15 - 1).astype(np.int16)
    frame = AudioFrame.from_ndarray(whole[None], "s16", "mono")
    frame.sample_rate, frame.pts, frame.time_base = SAMPLE_RATE, 0, Fraction(1, SAMPLE_RATE)
    return frame


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Write beside the target and rename; errors of FFmpeg become a sentence."""
    try:
        with atomic_write(path) as part:
            yield part
    except FFmpegError as error:
        raise MediaError(f"Cannot write {path}: {error.strerror or error}.") from error
