"""A whole video -> the same video with a moving heat map, its sound, and what is heard below it.

Maps are made at a steady rate, smoothed over time and interpolated for every picture. Two decoders
walk through the pictures, one for the maps and one for the output, so that only the two maps around
the current picture are kept. A third walks through the sound, for both. One thread makes maps, one
draws, and one decodes and writes; each is at most a few pictures ahead.

Axes: b pictures, h w the grid of the map.
"""

import itertools
import json
import math
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import av
import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot.common.errors import SoundspotError
from soundspot.common.progress import progress
from soundspot.inference import outputs
from soundspot.inference.localizer import Localizer, Pictures
from soundspot.inference.result import Localization
from soundspot.inference.sound_events import QUIET
from soundspot.inference.video_drawing import draw
from soundspot.media import decoding, writing
from soundspot.media.clips import SOUND_SECONDS, iter_frames, iter_windows
from soundspot.media.decoding import TimedSound
from soundspot.media.opening import Media, OpenMedia, opened
from soundspot.media.planes import to_frame, to_planes
from soundspot.parallel.devices import torch_threads

MAPS_PER_SECOND = 4.0
MEMORY = 0.4  # s; how long the smoothed map remembers
NOW = 1.0  # s; the sound that decides whether a moment is silent
LARGEST = 960  # pixels of the longer side of the output; more would slow down the maps
DRAWN_AHEAD = 3  # pictures that are drawn while others are decoded and written
SILENCE = "Silence."
PATCHES = 16  # along a side, in which the change of a scene is averaged
# The largest change of a patch, in standard deviations of ImageNet's pixels: about 3 of 256 gray
# levels. Noise of compression is below it; a thing that moves is far above, even in one patch.
STILL = 0.05
REMEMBERED = 2  # pictures: the whole frame, and the window that was enlarged

Grid = Float32[np.ndarray, "h w"]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class VideoMoment:
    """A time of a video in seconds, and its answer; None if nothing can be heard."""

    at: float
    found: Localization | None

    def line(self) -> str:
        """One line of JSON."""
        known = {} if self.found is None else self.found.summary()
        facts = {key: known.get(key) for key in ("score", "verdict", "caption", "labels", "route")}
        return json.dumps({"at": self.at, "silent": self.found is None, **facts})


@dataclass(frozen=True, eq=False)
class SmoothedMap:
    """The smoothed map at one time of a video.

    Attributes:
        at: Seconds into the video.
        similarity: The map S; None until something is heard.
        strength: How strongly it is drawn, 0 in silence.
        caption: Lines of text below it.
    """

    at: float
    similarity: Grid | None
    strength: float
    caption: tuple[str, ...]


@dataclass(frozen=True)
class Rendered:
    """How many maps a video has, and how many of them are of silence."""

    maps: int
    silent: int


def render_video(
    localizer: Localizer,
    path: Media,
    out: str | Path,
    *,
    audio: Media | None = None,
    maps_per_second: float = MAPS_PER_SECOND,
    reuse: bool = True,
    note: Callable[[VideoMoment], object] = lambda moment: None,
) -> Rendered:
    """Write a video with a moving heat map over it; memory does not grow with its length.

    Args:
        localizer: The model.
        path: A video, with sound unless `audio` is given.
        out: The video to write: .mp4, .mov, .mkv or .webm.
        audio: A sound file that replaces the video's sound.
        maps_per_second: How often to make a map; pictures in between show interpolated maps.
        reuse: Whether scenes that do not change are encoded only once (see `StillScenes`).
        note: Called with every moment that a map was made of.

    Example:
        >>> soundspot.render_video(soundspot.load(), "clip.mp4", "where.mp4", maps_per_second=1.0)
        Rendered(maps=2, silent=0)
    """
    if not 0 < maps_per_second < math.inf:
        raise SoundspotError(f"expected a number of maps per second above 0, got {maps_per_second}")
    if reuse:
        part = localizer.learned
        still = part.encoders._replace(visual=StillScenes(part.encoders.visual))
        localizer = replace(localizer, learned=replace(part, given=still))
    counts = {True: 0, False: 0}

    def count(moment: VideoMoment) -> None:
        counts[moment.found is None] += 1
        note(moment)

    with opened(path) as video, opened(video if audio is None else audio) as sound:
        video.info.require_video()
        sound.info.require_sound()
        seconds = video.info.duration or 0.0
        inputs = [video.info.path, sound.info.path]
        outputs.check_file(Path(out), inputs, "video", writing.FORMATS)
        heard, copied = _shared(sound.walk("audio"))
        maps = smooth_maps(localizer, video, sound, maps_per_second, count, heard)
        # Closed before the files: another thread reads from them.
        # A core is left to the pictures: torch threads that wait for each other are far slower.
        with torch_threads(max(1, torch.get_num_threads() - 1)), closing(_ahead(maps)) as ahead:
            bar = progress(ahead, "localizing", math.ceil(seconds * maps_per_second))
            trained = localizer.card.trained

            def drawn(shown: tuple[Any, SmoothedMap]) -> tuple[float, av.VideoFrame]:
                frame, now = shown
                picture = to_planes(video.info.path, frame, LARGEST)
                drawing = draw(picture, now.similarity, now.strength, now.caption, trained)
                return now.at, to_frame(drawing)

            pictures = _mapped_ahead(drawn, interpolate(bar, video.walk("video")))
            blocks = writing.stereo_blocks(sound.info.path, copied)
            track = writing.SoundTrack(writing.SOUND_RATE, "stereo", blocks)
            writing.write_timed_video(Path(out), pictures, track, _frame_rate(video), seconds)
    return Rendered(counts[True] + counts[False], counts[True])


class StillScenes(nn.Module):
    """A visual encoder that gives its last features again while what it sees stays the same.

    A picture is compared with those that were encoded last, so slow changes add up. It serves one
    video at a time, picture by picture.
    """

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual
        self.reused = 0  # how often the features were given again
        self._last: deque[tuple[Tensor, Tensor]] = deque(maxlen=REMEMBERED)  # views, features

    def forward(self, *views: Float[Tensor, "b 3 _h _w"]) -> Tensor:
        """The features of the views, or of those before if they look the same."""
        for seen, known in self._last:
            if _same_scene(seen, views[0]):
                self.reused += 1
                return known
        features: Tensor = self.visual(*views)
        self._last.append((views[0], features))
        return features


def _same_scene(old: Float[Tensor, "_b 3 _h _w"], new: Float[Tensor, "_c 3 _i _j"]) -> bool:
    if old.shape != new.shape:
        return False
    change = F.adaptive_avg_pool2d((new - old).abs().mean(dim=1, keepdim=True), PATCHES)
    return float(change.max()) < STILL


def _shared(items: Iterator[T]) -> tuple[Iterator[T], Iterator[T]]:
    """`itertools.tee` for two threads."""
    lock = threading.Lock()

    def take(reader: Iterator[T]) -> Iterator[T]:
        while True:
            with lock:
                try:
                    item = next(reader)
                except StopIteration:
                    return
            yield item

    first, second = itertools.tee(items)
    return take(first), take(second)


def _ahead(maps: Iterator[SmoothedMap]) -> Generator[SmoothedMap]:
    """Make the next map while pictures are drawn and encoded."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, maps, None)
        while (smoothed := coming.result()) is not None:
            coming = pool.submit(next, maps, None)
            yield smoothed


def _mapped_ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """`map` that works on the next few items while the caller is busy with the last."""
    with ThreadPoolExecutor(1) as pool:
        coming: deque[Future[R]] = deque()
        for item in items:
            coming.append(pool.submit(function, item))
            if len(coming) > DRAWN_AHEAD:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def _frame_rate(video: OpenMedia) -> float:
    announced = float(decoding.find_stream(video.container, "video").guessed_rate or 25)
    return min(max(announced, 1.0), 120.0)  # a file of varying rate may announce its clock's


def smooth_maps(
    localizer: Localizer,
    video: Media,
    sound: Media,
    rate: float,
    note: Callable[[VideoMoment], object] = lambda moment: None,
    heard: Iterator[TimedSound] | None = None,
) -> Iterator[SmoothedMap]:
    """The maps of a video at a steady rate, each blended with those just before it.

    A map counts for nothing in silence: there the last one stays in place and fades, and the next
    sound does not inherit it. `heard` is the decoded sound, if somebody walks through it already.
    """
    keep = math.exp(-1 / (rate * MEMORY))
    mean: Grid | None = None
    strength = 0.0
    ticks = (k / rate for k in itertools.count())
    sounds = iter_windows(sound, ticks, (SOUND_SECONDS, NOW), heard)
    for (at, frame), windows in zip(iter_frames(video, rate), sounds, strict=False):
        if windows is None or float(np.ptp(windows[1])) / 2 < QUIET:
            note(VideoMoment(at, None))
            strength *= keep
            yield SmoothedMap(at, mean, strength, (SILENCE,))
            continue
        (found,) = localizer.answer(Pictures([frame]), localizer.hear([windows[0]]))
        note(VideoMoment(at, found))
        s, aim = found.similarity, found.strength
        mean, strength = (s, aim) if mean is None else blend(mean, strength, s, aim, keep)
        yield SmoothedMap(at, mean, strength, (found.caption,))


def blend(mean: Grid, strength: float, s: Grid, aim: float, keep: float) -> tuple[Grid, float]:
    """One step of an exponential average in which maps are weighted by their strength."""
    old, new = keep * strength, (1 - keep) * aim
    return np.asarray((old * mean + new * s) / (old + new), np.float32), old + new


def interpolate(
    maps: Iterator[SmoothedMap], frames: Iterable[tuple[float, T]]
) -> Iterator[tuple[T, SmoothedMap]]:
    """Give each frame the map of its time, between the two around it; the last stays to the end."""
    before = next(maps, None)
    if before is None:
        return
    after = next(maps, None)
    for at, frame in frames:
        while after is not None and after.at <= at:
            before, after = after, next(maps, None)
        if after is None or before.similarity is None or after.similarity is None:
            yield frame, replace(before, at=at)
            continue
        share = (at - before.at) / (after.at - before.at)
        s = (1 - share) * before.similarity + share * after.similarity
        strength = (1 - share) * before.strength + share * after.strength
        yield frame, SmoothedMap(at, s.astype(np.float32), strength, before.caption)
