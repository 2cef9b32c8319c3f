"""RGB pictures and sound -> files; a video is written as its pictures come, in constant memory.

Axes: height width = a picture; samples of mono sound at 16 kHz; wide = samples of stereo sound at
48 kHz, which every codec of a video takes.
"""

import io
import itertools
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.error import FFmpegError
from av.video.frame import VideoFrame
from jaxtyping import Float32, UInt8
from PIL import Image

from soundspot.common.files import atomic_write
from soundspot.media import decoding
from soundspot.media.decoding import SAMPLE_RATE, MediaError

PathLike = str | os.PathLike[str]
CLOCK = 90_000  # ticks a second of the pictures' time stamps
SOUND_RATE = 48_000
_HOLE = SOUND_RATE // 10  # time stamps this far ahead of the samples mean missing sound


class Codecs(NamedTuple):
    """What the name of a file asks for."""

    video: str
    audio: str
    options: dict[str, str]


_H264 = Codecs("libx264", "aac", {"crf": "20", "preset": "veryfast"})
_VP9 = Codecs("libvpx-vp9", "libopus", {"crf": "30", "b:v": "0", "deadline": "realtime"})
_VIDEO_SUFFIXES = (".mp4", ".mov", ".mkv")
FORMATS = {".mp4": _H264, ".mov": _H264, ".mkv": _H264, ".webm": _VP9}


class Timed(NamedTuple):
    """A picture and the second from which on it is shown."""

    at: float
    picture: UInt8[np.ndarray, "height width 3"]


def write_flac(path: PathLike, waveform: Float32[np.ndarray, " samples"]) -> None:
    """Write mono 16 kHz sound as 16-bit FLAC; what lies outside [-1, 1] is clipped."""
    with writing(Path(path)) as temporary:
        temporary.write_bytes(flac_bytes(waveform))


def flac_bytes(waveform: Float32[np.ndarray, " samples"]) -> bytes:
    """Encode what `write_flac` writes."""
    memory = io.BytesIO()
    with av.open(memory, "w", format="flac") as output:
        stream = output.add_stream("flac", rate=SAMPLE_RATE, layout="mono", format="s16")
        output.mux([*stream.encode(_pcm(waveform, 0)), *stream.encode(None)])
    return memory.getvalue()


def write_jpeg(path: PathLike, frame: UInt8[np.ndarray, "height width 3"]) -> None:
    """Write an RGB picture as JPEG of quality 95."""
    with writing(Path(path)) as temporary:
        temporary.write_bytes(jpeg_bytes(frame))


def jpeg_bytes(frame: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """Encode what `write_jpeg` writes."""
    memory = io.BytesIO()
    Image.fromarray(frame).save(memory, "JPEG", quality=95)
    return memory.getvalue()


def write_video(
    path: PathLike,
    frames: Iterable[UInt8[np.ndarray, "height width 3"]],
    waveform: Float32[np.ndarray, " samples"] | None,
    fps: float,
) -> None:
    """Write H.264 pictures and AAC sound, taking the frames one by one.

    Args:
        path: Ends in .mp4, .mov or .mkv.
        frames: Pictures of one size; an odd side is made even by repeating its last line.
        waveform: Mono 16 kHz sound from the start on, left out after the last picture, or None.
        fps: Frames per second.
    """
    path = Path(path)
    if not 0 < fps < math.inf:
        raise MediaError(f"Expected a number of frames per second above 0, got {fps}.")
    if path.suffix.lower() not in _VIDEO_SUFFIXES:
        choices = ", ".join(_VIDEO_SUFFIXES)
        raise MediaError(f"Cannot write {path}: the name of a video ends in one of {choices}.")
    pictures = iter(frames)
    first = next(pictures, None)
    if first is None:
        raise MediaError(f"Cannot write {path}: expected frames, got none.")
    height, width, _ = first.shape
    rate = Fraction(fps).limit_denominator(100_000)
    with writing(path) as temporary, av.open(f"file:{temporary}", "w") as output:
        video = output.add_stream("libx264", rate=rate, options={"crf": "18"})
        video.pix_fmt = "yuv420p"
        video.height, video.width = height + height % 2, width + width % 2
        if waveform is not None:
            sound = output.add_stream("aac", rate=SAMPLE_RATE, layout="mono")
        for index, picture in enumerate(itertools.chain([first], pictures)):
            if picture.shape != first.shape:
                raise MediaError(f"Cannot write {path}: frame {index} is not {width}x{height}.")
            even = np.pad(picture, [(0, height % 2), (0, width % 2), (0, 0)], "edge")
            frame = VideoFrame.from_ndarray(even, "rgb24")
            frame.pts, frame.time_base = index, 1 / rate
            output.mux(video.encode(frame))
            # In step with the pictures: a muxer keeps the track that runs ahead in memory.
            begin, end = (round(k * SAMPLE_RATE / rate) for k in (index, index + 1))
            if waveform is not None and begin < len(waveform):
                output.mux(sound.encode(_pcm(waveform[begin:end], begin)))
        output.mux(video.encode(None))
        if waveform is not None:
            output.mux(sound.encode(None))


def is_video_name(path: Path) -> bool:
    """Whether a file of this name would be a video."""
    return path.suffix.lower() in FORMATS


def write_moving(
    path: Path, pictures: Iterable[Timed], sound: Path, rate: float, seconds: float
) -> None:
    """Write pictures as they come, each at its time, and beside them the sound of another file.

    The sound is encoded anew and ends with the pictures.

    Args:
        path: Ends as one of FORMATS.
        pictures: Of one size; an odd side is made even by repeating its last line.
        sound: A video or sound on the same clock.
        rate: About how many pictures a second, which helps the encoder.
        seconds: How long the last picture is shown, counted from the start.
    """
    codecs = FORMATS[path.suffix.lower()]
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
        track: Any = output.add_stream(codecs.audio, rate=SOUND_RATE, layout="stereo")
        blocks = _sound(sound)
        heard, last = 0, -1

        def hear(until: float) -> None:
            nonlocal heard
            while heard < until * SOUND_RATE and (block := next(blocks, None)) is not None:
                output.mux(track.encode(_audio_frame(block, heard)))
                heard += block.shape[1]

        for at, picture in itertools.chain([first], moving):
            if picture.shape != first.picture.shape:
                raise MediaError(f"Cannot write {path}: its pictures change size at {at:.2f} s.")
            even = np.pad(picture, [(0, height % 2), (0, width % 2), (0, 0)], "edge")
            frame = VideoFrame.from_ndarray(even, "rgb24")
            last = max(round(at * CLOCK), last + 1)  # broken files show two pictures at once
            frame.pts, frame.time_base = last, Fraction(1, CLOCK)
            output.mux(video.encode(frame))
            # In step with the pictures: a muxer keeps the track that runs ahead in memory.
            hear(at)
        hear(seconds)
        output.mux(video.encode(None))
        if heard:
            output.mux(track.encode(None))


def _audio_frame(block: Float32[np.ndarray, "2 wide"], start: int) -> AudioFrame:
    frame = AudioFrame.from_ndarray(np.ascontiguousarray(block), "fltp", "stereo")
    frame.sample_rate, frame.pts, frame.time_base = SOUND_RATE, start, Fraction(1, SOUND_RATE)
    return frame


def _sound(path: Path) -> Iterator[Float32[np.ndarray, "2 wide"]]:
    """The sound from time 0 on, without what comes before it and with silence in its holes."""
    resampler = av.AudioResampler("fltp", "stereo", SOUND_RATE)
    clock, rate = None, 0  # the place of the next sample, which may be before 0
    for time, frame in decoding.decode(path, "audio", 0.0):
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
        frame.pts = None  # jitter of the time stamps is no news to the resampler
        for part in resampler.resample(frame):
            block = part.to_ndarray()[:, max(-clock, 0) :]
            clock += part.samples
            if block.shape[1]:
                yield block


def _pcm(waveform: Float32[np.ndarray, " samples"], start: int) -> AudioFrame:
    """The 16-bit frame that reads back as the waveform; `start` is its place in the sound."""
    whole = np.clip(np.round(waveform * 2**15), -(2**15), 2**15 - 1).astype(np.int16)
    frame = AudioFrame.from_ndarray(whole[None], "s16", "mono")
    frame.sample_rate, frame.pts, frame.time_base = SAMPLE_RATE, start, Fraction(1, SAMPLE_RATE)
    return frame


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Write beside the target and rename; what FFmpeg says of a failure becomes a sentence."""
    try:
        with atomic_write(path) as part:
            yield part
    except FFmpegError as error:
        raise MediaError(f"Cannot write {path}: {error.strerror or error}.") from error
