"""RGB pictures and sound -> files; a video is written as its pictures come, in constant memory."""

import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from av.container import OutputContainer
from av.video.reformatter import ColorRange, Colorspace
from jaxtyping import Float32
from PIL import Image

from soundspot.common.errors import MediaError
from soundspot.common.files import atomic_write, write_bytes
from soundspot.media.decoding import SAMPLE_RATE, AnyPicture, Picture, TimedSound, Waveform
from soundspot.media.opening import PathLike
from soundspot.media.sound import LONGEST_HOLE

BT709 = Colorspace.ITU709  # what players assume of most videos
CLOCK = 90_000  # ticks per second of the pictures' time stamps
SOUND_RATE = 48_000  # of a copied sound track; every codec accepts it
_BLOCK = 1024  # samples
_HOLE = SOUND_RATE // 10  # time stamps this far ahead of the samples mean missing sound


# Codecs of the pictures and of the sound, and options of the first.
_H264 = ("libx264", "aac", {"crf": "20", "preset": "veryfast"})
_VP9 = ("libvpx-vp9", "libopus", {"crf": "30", "b:v": "0", "deadline": "realtime"})
FORMATS = {".mp4": _H264, ".mov": _H264, ".mkv": _H264, ".webm": _VP9}


class SoundTrack(NamedTuple):
    """A sound in blocks, and how many channels (mono or stereo) and samples per second it has."""

    rate: int
    layout: str
    blocks: Iterable[Float32[np.ndarray, "_channels _samples"]]


def write_flac(path: PathLike, waveform: Waveform) -> None:
    """Write mono 16 kHz sound as 16-bit FLAC; samples outside [-1, 1] are clipped."""
    with _writing(Path(path)) as part:
        part.write_bytes(flac_bytes(waveform))


def flac_bytes(waveform: Waveform) -> bytes:
    """Encode the bytes that `write_flac` writes."""
    whole = np.clip(np.round(waveform * 2**15), -(2**15), 2**15 - 1).astype(np.int16)
    frame = av.AudioFrame.from_ndarray(whole[None], "s16", "mono")
    frame.sample_rate, frame.pts, frame.time_base = SAMPLE_RATE, 0, Fraction(1, SAMPLE_RATE)
    memory = io.BytesIO()
    with av.open(memory, "w", format="flac") as output:
        stream = output.add_stream("flac", rate=SAMPLE_RATE, layout="mono", format="s16")
        output.mux([*stream.encode(frame), *stream.encode(None)])
    return memory.getvalue()


def write_jpeg(path: PathLike, frame: Picture) -> None:
    """Write an RGB picture as JPEG of quality 95."""
    write_bytes(Path(path), jpeg_bytes(frame))


def jpeg_bytes(frame: Picture) -> bytes:
    """Encode the bytes that `write_jpeg` writes."""
    memory = io.BytesIO()
    Image.fromarray(frame).save(memory, "JPEG", quality=95)
    return memory.getvalue()


def is_video_name(path: Path) -> bool:
    """Whether the suffix is that of a video that can be written."""
    return path.suffix.lower() in FORMATS


def write_video(
    path: PathLike, frames: Iterable[AnyPicture], waveform: Waveform | None, fps: float
) -> None:
    """Write pictures of one size at a steady rate, taking them one by one, and a sound.

    See `write_timed_video`.
    """
    if not 0 < fps < math.inf:
        raise MediaError(f"expected a number of frames per second above 0, got {fps}")
    pictures = ((index / fps, frame) for index, frame in enumerate(frames))
    track = None
    if waveform is not None:
        starts = range(0, len(waveform), _BLOCK)
        blocks = (waveform[None, start : start + _BLOCK] for start in starts)
        track = SoundTrack(SAMPLE_RATE, "mono", blocks)
    write_timed_video(Path(path), pictures, track, fps)


def write_timed_video(
    path: Path,
    pictures: Iterable[tuple[float, AnyPicture]],
    track: SoundTrack | None,
    rate: float,
    seconds: float | None = None,
) -> None:
    """Write pictures of one size as they come, each at its time, and a sound that ends with them.

    The suffix is one of FORMATS; an odd side is made even by repeating a line. There are about
    `rate` pictures per second, and the last one ends at `seconds`, by default after 1 / rate.
    """
    if not is_video_name(path):
        choices = ", ".join(FORMATS)
        raise MediaError(f"cannot write {path}: the name of a video ends in one of {choices}")
    codec, sound_codec, options = FORMATS[path.suffix.lower()]
    moving = iter(pictures)
    first = next(moving, None)
    if first is None:
        raise MediaError(f"cannot write {path}: expected pictures, got none")
    shape = first[1].shape
    height, width, _ = shape
    with _writing(path) as temporary, av.open(f"file:{temporary}", "w") as output:
        average = Fraction(rate).limit_denominator(1001)
        video: Any = output.add_stream(codec, rate=average, options=options)
        video.pix_fmt = "yuv420p"
        video.height, video.width = height + height % 2, width + width % 2
        video.codec_context.time_base = Fraction(1, CLOCK)
        video.codec_context.colorspace, video.codec_context.color_range = BT709, ColorRange.MPEG
        sound = _start_sound(output, sound_codec, track)
        last = -1
        for at, picture in itertools.chain([first], moving):
            if picture.shape != shape:
                raise MediaError(f"cannot write {path}: its pictures change size at {at:.2f} s")
            frame = _encodable(picture)
            last = max(round(at * CLOCK), last + 1)  # broken files show two pictures at once
            frame.pts, frame.time_base = last, Fraction(1, CLOCK)
            output.mux(video.encode(frame))
            # In step with the pictures: a muxer keeps the track that runs ahead in memory.
            sound(at)
        sound(at + 1 / rate if seconds is None else seconds)
        output.mux(video.encode(None))
        sound(None)


def _encodable(picture: AnyPicture) -> av.VideoFrame:
    height, width, _ = picture.shape
    if height % 2 or width % 2:
        picture = np.pad(picture, [(0, height % 2), (0, width % 2), (0, 0)], "edge")
    frame = av.VideoFrame.from_ndarray(picture, "rgb24")
    return frame.reformat(format="yuv420p", dst_colorspace=BT709, dst_color_range=ColorRange.MPEG)


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
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(block), "fltp", track.layout)
            frame.sample_rate, frame.pts = track.rate, written
            frame.time_base = Fraction(1, track.rate)
            output.mux(stream.encode(frame))
            written += block.shape[1]

    return write


def stereo_blocks(
    path: Path, frames: Iterable[TimedSound]
) -> Iterator[Float32[np.ndarray, "2 wide"]]:
    """Resample a decoded sound to 48 kHz from time 0 on, with silence in its holes."""
    resampler = av.AudioResampler("fltp", "stereo", SOUND_RATE)
    clock, rate = None, 0  # the place of the next sample, which may be before 0
    for time, frame in frames:
        rate = rate or frame.sample_rate
        if frame.sample_rate != rate:
            raise MediaError(f"{path} changes its sampling rate at {time:.2f} s: convert it first")
        place = round(time * SOUND_RATE)
        if clock is None:
            clock = min(place, 0)
        hole = place - clock
        if hole > LONGEST_HOLE * SOUND_RATE:
            raise MediaError(f"{path} is damaged: its sound jumps ahead to {time:.2f} s")
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


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    """Write beside the target and rename; errors of FFmpeg become a sentence."""
    try:
        with atomic_write(path) as part:
            yield part
    except av.FFmpegError as error:
        raise MediaError(f"cannot write {path}: {error.strerror or error}") from error
