"""Decode with PyAV: frames with their times.

Time 0 is the first picture of a video or the start of a sound, whatever the file's time stamps.

Axes: height width = the picture as displayed; samples = mono at 16 kHz.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import av
import numpy as np
from av.container import InputContainer
from av.sidedata.sidedata import SideDataContainer
from av.video.reformatter import Interpolation
from jaxtyping import Float32, UInt8

from soundspot.common.errors import MediaError
from soundspot.media import deadline

SAMPLE_RATE = 16_000
MOST_PIXELS = 2**26  # of a picture; a small file may claim any number, and each takes memory

CLOCK_TOLERANCE = 1e-3  # s; Matroska rounds time stamps to a millisecond
_BELIEVED = 86_400  # s; nobody shows one picture for longer, and a longer file is measured

# Text that FFmpeg would draw as a video, or that only points to other files and the network.
_NOT_MEDIA = {"concat", "dash", "hls", "imf", "lavfi", "rtsp", "sdp", "tty", "webm_dash_manifest"}
# Images are Pillow's, in the formats of `images`; a name such as %03d.png means many files here.
_IMAGES = {name for name in av.formats_available if name.endswith("_pipe")} | {
    "image2",
    "image2pipe",
}
_FORMATS = ",".join(sorted(av.formats_available - _NOT_MEDIA - _IMAGES))
_GUESSED_DURATION = {"aac", "ac3", "mp3", "mpeg"}  # no index: FFmpeg divides size by bit rate

Picture = UInt8[np.ndarray, "height width 3"]
Waveform = Float32[np.ndarray, " samples"]
# For sequences of different sizes: an axis named with _ is not compared.
AnyPicture = UInt8[np.ndarray, "_height _width 3"]
AnyWaveform = Float32[np.ndarray, " _samples"]
TimedSound = tuple[float, av.AudioFrame]  # a decoded piece of sound and its second

Track = Literal["video", "audio"]
T = TypeVar("T")


class HangError(MediaError):
    """A decoder that does not answer."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is damaged: a picture takes longer than {deadline.SECONDS:.0f} s to decode"
        )


@contextmanager
def open_container(path: Path) -> Iterator[InputContainer]:
    """Open a sound or video; what the decoder says, here or in the body, becomes a sentence.

    Pictures of more than MOST_PIXELS are refused, by their decoder too if the header lies.
    """
    try:
        # "file:" keeps FFmpeg from taking a name with a colon for a network protocol.
        container = av.open(
            f"file:{path}",
            container_options={"format_whitelist": _FORMATS},
            metadata_errors="replace",
            timeout=deadline.SECONDS,
        )
    except av.FFmpegError as error:
        with path.open("rb") as file:
            is_mp4 = file.read(8)[4:] == b"ftyp"
        why = "it is cut short: its index (moov) is missing" if is_mp4 else error.strerror
        raise MediaError(f"{path} is not a readable image, sound or video ({why})") from error
    try:
        for stream in container.streams.video:
            if stream.codec_context is not None:  # an unknown codec has no decoder and no size
                stream.codec_context.options = {"max_pixels": str(MOST_PIXELS)}
                check_size(path, stream.width or 0, stream.height or 0)
        with explain(f"{path} is cut short or damaged"):
            yield container
    except HangError:  # the decoder is still at work
        raise
    except BaseException:
        container.close()
        raise
    container.close()


def check_size(path: Path, width: int, height: int) -> None:
    """Refuse pictures that are too large, before there is memory for them."""
    if width * height > MOST_PIXELS:
        large = f"{path} has pictures of {width} x {height} pixels"
        raise MediaError(f"{large}: at most {MOST_PIXELS:,} can be read, so make them smaller")


@contextmanager
def explain(
    problem: str, errors: tuple[type[Exception], ...] = (av.FFmpegError,)
) -> Iterator[None]:
    """Turn errors into a sentence that says what the problem is."""
    try:
        yield
    except MediaError:
        raise
    except errors as error:
        raise MediaError(f"{problem} ({getattr(error, 'strerror', None) or error})") from error


def find_stream(container: InputContainer, kind: Track) -> Any:
    """Find the first stream that can be decoded, or None; the cover of a sound is not a video."""
    kinds = av.stream.Disposition
    stills = kinds.attached_pic | kinds.timed_thumbnails
    for stream in getattr(container.streams, kind):
        if stream.codec_context is not None and not stream.disposition & stills:
            return stream
    return None


def announced_duration(container: InputContainer, stream: Any) -> float | None:
    """Seconds from time 0 to the end of a stream; None if the file does not say."""
    zero = _time_zero(container)
    announced = _announced(container, stream)
    return None if announced is None or announced - zero > _BELIEVED else announced - zero


def duration(path: Path, container: InputContainer, stream: Any) -> float:
    """`announced_duration`, or found out; nothing is read from the container itself."""
    if (announced := announced_duration(container, stream)) is not None:
        return announced
    # Nothing is announced (browsers record like that): read it through, without decoding.
    last = 0
    with open_container(path) as again:
        for packet in _read(again.demux(again.streams[stream.index])):
            begin = last if packet.pts is None else packet.pts
            last = max(last, begin + (packet.duration or 0))
    return float(last * stream.time_base) - _time_zero(container)


def _announced(container: InputContainer, stream: Any) -> float | None:
    """The time stamp at which a stream ends, as the header has it."""
    if container.format.name in _GUESSED_DURATION:
        return None
    if stream.duration:
        return float(((stream.start_time or 0) + stream.duration) * stream.time_base)
    if container.duration:
        # Matroska announces its last time stamp, others the length.
        start = 0 if "matroska" in container.format.name else container.start_time or 0
        return float((start + container.duration) / av.time_base)
    return None


def _read(items: Iterable[T]) -> Iterator[T]:
    """What a container holds, packet by packet or frame by frame."""
    try:
        yield from items
    except IndexError as error:  # PyAV lists the tracks when it opens a file
        reason = "a track begins that was not announced"
        raise av.InvalidDataError(0, reason) from error


def decode(
    path: Path,
    kind: Track,
    start: float,
    container: InputContainer | None = None,
) -> Iterator[tuple[float, Any]]:
    """Decode (time, frame) from `start` or before it on.

    `start` is 0, or a second to seek to if that is exact (see `seeks_exactly`). From an open
    `container` nothing has been read yet if `start` is 0.
    """
    source = open_container(path) if container is None else nullcontext(container)
    with source as file, explain(f"{path} is cut short or damaged"):
        stream = find_stream(file, kind)
        if stream is None:
            raise MediaError(f"{path} has no {kind} that can be decoded")
        place = path, file, stream
        frames = _seek(*place, start) if start > 0 else _frames(*place)
        if frames is not None:
            yield from _timed(path, file, stream, frames)
            return
    yield from decode(path, kind, 0.0)


def _frames(path: Path, container: InputContainer, stream: Any) -> Iterator[Any]:
    """Decode from here on, pictures within the deadline."""
    frames = _read(container.decode(stream))
    if stream.type != "video":
        return frames
    return deadline.within(frames, partial(HangError, path), container)


def _timed(
    path: Path, container: InputContainer, stream: Any, frames: Iterable[Any]
) -> Iterator[tuple[float, Any]]:
    """Frames with their times; those without a time stamp follow each other steadily."""
    counted = _is_counted(container, stream)
    interval = 1 / (stream.guessed_rate or Fraction(25)) if stream.type == "video" else 0
    zero = _time_zero(container)
    time = float(-interval)
    for number, frame in enumerate(frames):
        stamped = frame.time is not None and not counted
        before, time = time, frame.time - zero if stamped else float(time + interval)
        if stream.type == "video" and number and time - before > _BELIEVED:
            raise MediaError(f"{path} is damaged: its pictures jump ahead to {time:.2f} s")
        yield time, frame


def _is_counted(container: InputContainer, stream: Any) -> bool:
    """AVI stamps pictures in the order of decoding, not of showing: they are counted instead."""
    return bool(stream.type == "video" and container.format.name == "avi")


def seeks_exactly(container: InputContainer, kind: Track) -> bool:
    """Whether after a seek it is known exactly which frame or sample comes next."""
    stream = find_stream(container, kind)
    if stream is None or _is_counted(container, stream):
        return False
    # Only time stamps that count samples put the sound back exactly where it belongs.
    return kind == "video" or bool(stream.time_base * stream.rate == 1)


def frame_at(path: Path, container: InputContainer, at: float) -> av.VideoFrame | None:
    """Seek to the frame that is shown at a moment, and decode only what it needs.

    It is the frame that `shown` finds, or None where that is not certain: `decode` must tell then.
    """
    if not seeks_exactly(container, "video"):
        return None
    stream = find_stream(container, "video")
    place = int((at + _time_zero(container)) / stream.time_base)
    try:
        container.seek(place, stream=stream)
        if (stamp := _stamp_at(container, stream, at)) is None:
            return None
        container.seek(place, stream=stream)
        picture = (_decode_one(container, stream, stamp) for _ in range(1))
        return next(deadline.within(picture, partial(HangError, path), container))
    except av.FFmpegError:
        return None


def _stamp_at(container: InputContainer, stream: Any, at: float) -> int | None:
    """Read on from a key frame for the time stamp of the frame that is shown at a moment."""
    zero = _time_zero(container)
    ticks, second = stream.time_base.as_integer_ratio()  # Fractions are slow

    def is_later(stamp: int) -> bool:
        return bool(at < stamp * ticks / second - zero - CLOCK_TOLERANCE)

    best: int | None = None
    for number, packet in enumerate(_read(container.demux(stream))):
        if packet.pts is None or packet.is_corrupt:
            return None  # damaged, or the end: how long the last frame is shown is not known here
        if number == 0 and (is_later(packet.pts) or not packet.is_keyframe):
            return None  # the index led elsewhere
        if packet.dts is not None and is_later(packet.dts):
            return best  # no packet to come is shown before it is decoded
        if not is_later(packet.pts) and not packet.is_discard:
            best = packet.pts if best is None else max(best, packet.pts)
    return None


def _decode_one(container: InputContainer, stream: Any, stamp: int) -> av.VideoFrame | None:
    """Decode on from a key frame, leaving out what the frame with a time stamp does not need."""
    context = stream.codec_context
    if not context.is_open:
        stream.thread_type = "NONE"  # one thread per core costs more than it saves
    # No other frame refers to these. (H.265 has some to which frames of its higher layers do.)
    context.skip_frame = "NONREF" if context.name == "h264" else "DEFAULT"
    for packet in _read(container.demux(stream)):
        wanted = packet.pts == stamp
        if wanted:
            context.skip_frame = "DEFAULT"
        for frame in stream.decode(packet) + (stream.decode(None) if wanted else []):
            if frame.is_corrupt:
                return None
            if frame.pts == stamp:
                return frame  # type: ignore[no-any-return]
        if wanted:
            break
    return None


def shown(
    frames: Iterable[tuple[float, av.VideoFrame]], times: Iterable[float], hold: float
) -> Iterator[tuple[float, av.VideoFrame]]:
    """Pair growing times with the frame shown at each, until `hold` s after the last one's end."""
    wanted = iter(times)
    time = next(wanted, math.inf)
    current: av.VideoFrame | None = None
    begin = end = 0.0
    for start, frame in frames:
        while current is not None and time < start - CLOCK_TOLERANCE:
            yield time, current
            time = next(wanted, math.inf)
        length = float(frame.duration * (frame.time_base or 0)) or start - begin
        current, begin, end = frame, start, start + length
    while current is not None and time < end + hold:
        yield time, current
        time = next(wanted, math.inf)


def to_rgb(path: Path, frame: av.VideoFrame, largest: int | None = None) -> Picture:
    """Convert a frame and turn it as its display matrix says; no side has over `largest` pixels."""
    with explain(f"{path} has pictures that cannot be shown"):
        small = frame
        if largest is not None:
            height, width = at_most(largest, frame.height, frame.width)
            small = frame.reformat(width, height, "rgb24", interpolation=Interpolation.AREA)
        picture: Any = small.to_ndarray(format="rgb24")
    return np.asarray(turned(frame, picture))


def at_most(side: int, height: int, width: int) -> tuple[int, int]:
    """Height and width of a picture whose longer side may not exceed `side`."""
    shrink = min(1.0, side / max(height, width))
    return max(1, round(height * shrink)), max(1, round(width * shrink))


def turned(frame: av.VideoFrame, picture: Any) -> Any:
    """Rows and columns of a frame's picture as they are displayed."""
    try:
        # `frame.side_data` would be kept by the frame and keep it: a cycle that holds the picture,
        # and through it the decoder, until Python looks for cycles.
        side_data: Any = SideDataContainer(frame)  # type: ignore[call-arg]
    except ValueError:  # PyAV does not know all of FFmpeg's kinds of side data
        return np.ascontiguousarray(np.rot90(picture, round(frame.rotation / 90)))
    matrix = side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return np.asarray(picture)
    # x' = ax + cy, y' = bx + dy, where quarter turns have a = d = 0 and the others b = c = 0.
    a, b, _, c, d, *_ = np.frombuffer(matrix, np.int32)
    if abs(b) > abs(a):
        picture, a, d = picture.swapaxes(0, 1), c, b
    return np.ascontiguousarray(picture[:: -1 if d < 0 else 1, :: -1 if a < 0 else 1])


def _seek(path: Path, container: InputContainer, stream: Any, start: float) -> Iterator[Any] | None:
    """Decode from a key frame at or before `start` on; None if the seek does not lead there."""
    if stream.type == "video":
        stream.codec_context.skip_frame = "DEFAULT"  # `_decode_one` may have left it otherwise
    zero = _time_zero(container)
    # An index may hold decoding times, some frames ahead of showing: look further back as well.
    for target in (start, start - 2, start - 10):
        if target <= 0:
            return None
        try:
            container.seek(int((target + zero) / stream.time_base), stream=stream)
            frames = _frames(path, container, stream)
            first = next(frames, None)
        except av.FFmpegError:
            return None
        if first is None or first.time is None:
            return None
        if first.time - zero <= start + CLOCK_TOLERANCE:
            return itertools.chain([first], frames)
    return None


def _time_zero(container: InputContainer) -> float:
    """The time stamp, in seconds, from which the clip is counted: the first picture's."""
    # So picture n of a steady video is at n/fps; sound may begin some milliseconds before it.
    video = find_stream(container, "video")
    if video is not None and video.start_time is not None:
        return float(video.start_time * video.time_base)
    return (container.start_time or 0) / av.time_base
