"""A whole video -> the same video with a moving heat map, its sound, and what is heard below it.

Maps are made at a steady rate, smoothed over time and interpolated for every picture. Two decoders
walk through the file, one for the maps and one for the pictures, so that nothing is kept but the
two maps around the current picture.

Axes: h w the grid of the map, height width pixels of a picture.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from PIL import Image
from torch.nn import functional as F

from soundspot.common.errors import SoundspotError
from soundspot.common.progress import progress
from soundspot.inference import figures
from soundspot.inference.localization import heard_line, stretched, verdict
from soundspot.inference.localizer import Localizer
from soundspot.inference.sound_events import QUIET
from soundspot.media import decoding
from soundspot.media.clips import (
    SOUND_SECONDS,
    MediaError,
    check_sound,
    iter_frames,
    iter_sound,
    probe,
)
from soundspot.media.writing import FORMATS, Timed, is_video_name, write_moving

MAPS_PER_SECOND = 4.0
MEMORY = 0.4  # s; how long the smoothed map remembers
NOW = 1.0  # s; what decides whether anything sounds at a moment
FAINT = 0.4  # strength of a map whose source is probably not in the picture
LARGEST = 960  # pixels of the longer side of what is written; more would hold up the maps
LAYER = 480  # pixels of the longer side at which heat is drawn; larger pictures enlarge it
SILENCE = "silence"

T = TypeVar("T")


@dataclass(frozen=True)
class Moment:
    """What was found at one time of a video.

    Attributes:
        at: Seconds into the video.
        silent: Whether nothing is to be heard; then the rest is empty.
        score: The peak of S.
        visible: Whether the source is probably in the picture; None if that is not calibrated.
        labels: What is heard, best first.
    """

    at: float
    silent: bool
    score: float | None = None
    visible: bool | None = None
    labels: tuple[tuple[str, float], ...] = ()

    def line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, eq=False)
class SmoothedMap:
    """The smoothed map at one time, None as long as nothing was heard.

    Attributes:
        at: Seconds into the video.
        similarity: The map S.
        strength: How strongly it is drawn, 0 in silence.
        caption: Lines to be read below it.
    """

    at: float
    similarity: Float32[np.ndarray, "h w"] | None
    strength: float
    caption: tuple[str, ...]


@dataclass(frozen=True)
class Rendered:
    """What a video came to: how many maps, in how many of them nothing was to be heard."""

    maps: int
    silent: int


def render_video(
    localizer: Localizer,
    path: str | Path,
    out: str | Path,
    *,
    audio: str | Path | None = None,
    maps_per_second: float = MAPS_PER_SECOND,
    note: Callable[[Moment], object] = lambda moment: None,
) -> Rendered:
    """Write a video with a moving heat map over it; memory does not grow with its length.

    Args:
        localizer: The model.
        path: A video, with sound unless `audio` is given.
        out: The video to write: .mp4, .mov, .mkv or .webm.
        audio: A sound file in place of the video's sound.
        maps_per_second: How often to look; pictures in between show interpolated maps.
        note: Called with every moment that a map was made of.

    Example:
        >>> soundspot.render_video(soundspot.load(), "clip.mp4", "where.mp4", maps_per_second=1.0)
        Rendered(maps=2, silent=0)
    """
    path, out = Path(path), Path(out)
    sound = path if audio is None else Path(audio)
    seconds = check_inputs(path, audio)
    check_video(out, [path, sound])
    if not 0 < maps_per_second < math.inf:
        raise SoundspotError(f"expected a number of maps a second above 0, not {maps_per_second}")
    counts = {True: 0, False: 0}

    def count(moment: Moment) -> Moment:
        counts[moment.silent] += 1
        note(moment)
        return moment

    glows = smooth_maps(localizer, path, sound, maps_per_second, count)
    bar = progress(_ahead(glows), "localising", math.ceil(seconds * maps_per_second))
    pictures = _pictures(path, bar, localizer.card.trained)
    with _spared_core():
        write_moving(out, pictures, sound, _frame_rate(path), seconds)
    return Rendered(counts[True] + counts[False], counts[True])


def _ahead(glows: Iterator[SmoothedMap]) -> Iterator[SmoothedMap]:
    """Make the next map while pictures are drawn and encoded."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, glows, None)
        while (glow := coming.result()) is not None:
            coming = pool.submit(next, glows, None)
            yield glow


@contextmanager
def _spared_core() -> Iterator[None]:
    """Leave a core to the pictures: threads of torch that wait for each other are slow by far."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads - 1))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _frame_rate(path: Path) -> float:
    with decoding.open_container(path) as container:
        stream = decoding.find_stream(container, "video")
        announced = float(getattr(stream, "guessed_rate", None) or 25)
    return min(max(announced, 1.0), 120.0)  # a file of varying rate may announce its clock's


def check_inputs(path: Path, audio: str | Path | None) -> float:
    """The seconds of a video, which must have moving pictures and, or the audio file, sound."""
    info = probe(path)
    if info.kind != "video" or info.duration is None:
        raise MediaError(f"{path} is no video but {info.kind}: a video is made of a video only.")
    check_sound(path if audio is None else audio)
    return info.duration


def check_video(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse a path that no video can be written to, before any work is done for it."""
    if not is_video_name(path):
        endings = ", ".join(FORMATS)
        raise SoundspotError(f"a video's name must end in one of {endings}, unlike {path}")
    figures.check_file(path, list(inputs))


def smooth_maps(
    localizer: Localizer,
    path: Path,
    sound: Path,
    rate: float,
    note: Callable[[Moment], object] = lambda moment: None,
) -> Iterator[SmoothedMap]:
    """The maps of a video at a steady rate, each blended with those just before it.

    A map counts for nothing in silence, so that there the last one stays in place and fades, and
    the next sound does not inherit it.
    """
    keep = math.exp(-1 / (rate * MEMORY))
    mean: Float32[np.ndarray, "h w"] | None = None
    strength = 0.0
    ticks = [(k / rate for k in itertools.count()) for _ in range(2)]
    around = iter_sound(sound, ticks[0], SOUND_SECONDS)
    now = iter_sound(sound, ticks[1], NOW)
    for (at, frame), window, close in zip(iter_frames(path, rate), around, now, strict=False):
        if window is None or close is None or float(np.ptp(close)) / 2 < QUIET:
            note(Moment(at, silent=True))
            strength *= keep
            yield SmoothedMap(at, mean, strength, (SILENCE, ""))
            continue
        ((s, labels),) = localizer.locate([frame], [window])
        score, threshold = float(s.max()), localizer.threshold
        visible = None if threshold is None else score >= threshold
        note(Moment(at, False, score, visible, tuple(labels)))
        aim = FAINT if visible is False else 1.0
        if mean is None:
            mean, strength = s, aim
        else:
            mean, strength = blend(mean, strength, s, aim, keep)
        yield SmoothedMap(at, mean, strength, (heard_line(labels), verdict(score, threshold)))


def blend(
    mean: Float32[np.ndarray, "h w"],
    strength: float,
    s: Float32[np.ndarray, "h w"],
    aim: float,
    keep: float,
) -> tuple[Float32[np.ndarray, "h w"], float]:
    """One step of an exponential average in which every map weighs as much as it is strong."""
    old, new = keep * strength, (1 - keep) * aim
    return np.asarray((old * mean + new * s) / (old + new), np.float32), old + new


def interpolate(
    glows: Iterator[SmoothedMap], frames: Iterable[tuple[float, T]]
) -> Iterator[tuple[T, SmoothedMap]]:
    """Give each frame the map of its time, between the two around it; the last stays to the end."""
    before = next(glows, None)
    after = None if before is None else next(glows, None)
    for at, frame in frames:
        while before is not None and after is not None and after.at <= at:
            before, after = after, next(glows, None)
        if before is None:
            return
        if after is None or before.similarity is None or after.similarity is None:
            yield frame, SmoothedMap(at, before.similarity, before.strength, before.caption)
            continue
        share = (at - before.at) / (after.at - before.at)
        s = (1 - share) * before.similarity + share * after.similarity
        strength = (1 - share) * before.strength + share * after.strength
        yield frame, SmoothedMap(at, s.astype(np.float32), strength, before.caption)


def _pictures(path: Path, glows: Iterator[SmoothedMap], trained: bool) -> Iterator[Timed]:
    for frame, glow in interpolate(glows, decoding.decode(path, "video", 0.0)):
        yield Timed(glow.at, draw(decoding.to_rgb(path, frame), glow, trained))


def draw(
    frame: UInt8[np.ndarray, "height width 3"], glow: SmoothedMap, trained: bool
) -> UInt8[np.ndarray, "page_height page_width 3"]:
    """A picture of the video with its heat map and its caption; a large one is made smaller."""
    height, width = _at_most(LARGEST, *frame.shape[:2])
    if (height, width) != frame.shape[:2]:
        small = Image.fromarray(frame).resize((width, height), Image.Resampling.BOX)
        frame = np.asarray(small)
    size = _at_most(LAYER, height, width)
    heat = np.zeros(size, np.float32)
    if glow.similarity is not None:
        grid = torch.from_numpy(glow.similarity)[None, None]
        heat = stretched(F.interpolate(grid, size=size, mode="bilinear")[0, 0].numpy())
    picture = figures.overlay(frame, heat, strength=glow.strength)
    return figures.captioned(picture, glow.caption, trained)


def _at_most(side: int, height: int, width: int) -> tuple[int, int]:
    shrink = min(1.0, side / max(height, width))
    return max(1, round(height * shrink)), max(1, round(width * shrink))
