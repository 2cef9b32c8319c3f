"""A whole video -> the same video with a moving heat map, its sound, and what is heard below it.

Maps are made at a steady rate, smoothed over time and interpolated for every picture. Maps and
pictures are decoded side by side, so only the two maps around the current picture are kept. One
thread makes maps, one draws, and one encodes; each is at most a few items ahead.

Axes: h w the grid of the map.
"""

import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float32

from soundspot.common.errors import SoundspotError
from soundspot.common.progress import progress
from soundspot.inference import figures, outputs
from soundspot.inference.localizer import Localizer, Pictures
from soundspot.inference.maps import map_heat, resize_map
from soundspot.inference.moments import QUIET
from soundspot.inference.outlines import Outliner, Seen, glow, load_outliner
from soundspot.inference.result import Localization
from soundspot.media import decoding, writing
from soundspot.media.clips import SOUND_SECONDS, iter_frames, iter_windows
from soundspot.media.decoding import AnyPicture, Picture
from soundspot.media.films import walk_films
from soundspot.media.opening import Media, OpenMedia, opened
from soundspot.parallel.devices import torch_threads

MAPS_PER_SECOND = 4.0
MEMORY = 0.4  # s; how long the smoothed map remembers
NOW = 1.0  # s; the sound that decides whether a moment is silent
LARGEST = 960  # pixels of the longer side of the output; more would slow down the maps
LAYER = 480  # pixels of the longer side at which heat is drawn; larger pictures enlarge it
DRAWN_AHEAD = 3  # pictures that are drawn while others are encoded
SILENCE = "Silence."
SCENE_SECONDS = 1.0  # how long one encoded picture serves for outlines
SCENE_CHANGE = 12.0  # gray levels by which it may differ from those after it

Grid = Float32[np.ndarray, "h w"]
T = TypeVar("T")


@dataclass(frozen=True)
class VideoMoment:
    """A time of a video in seconds, and its answer; None if nothing can be heard."""

    at: float
    found: Localization | None

    def line(self) -> str:
        """One line of JSON."""
        known = {} if self.found is None else self.found.summary()
        facts = {
            key: known.get(key) for key in ("score", "verdict", "caption", "labels", "evidence")
        }
        return json.dumps({"at": self.at, "silent": self.found is None, **facts})


@dataclass(frozen=True, eq=False)
class SmoothedMap:
    """The smoothed map S at one time of a video; None until something is heard."""

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
    outline: bool = False,
    note: Callable[[VideoMoment], object] = lambda moment: None,
) -> Rendered:
    """Write a video with a moving heat map over it; memory does not grow with its length.

    Args:
        localizer: The model.
        path: A video, with sound unless `audio` is given.
        out: The video to write: .mp4, .mov, .mkv or .webm.
        audio: A sound file that replaces the video's sound.
        maps_per_second: How often to make a map; pictures in between show interpolated maps.
        outline: Outline what sounds, which takes several times as long.
        note: Called with every moment that a map was made of.

    Example:
        >>> soundspot.render_video(soundspot.load(), "clip.mp4", "where.mp4", maps_per_second=1.0)
        Rendered(maps=2, silent=0)
    """
    if not 0 < maps_per_second < math.inf:
        raise SoundspotError(f"expected a number of maps per second above 0, got {maps_per_second}")
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
        outliner = load_outliner(localizer.device) if outline else None
        maps = smooth_maps(localizer, video, sound, maps_per_second, count, outliner)

        def drawn(shown: tuple[Any, SmoothedMap]) -> tuple[float, AnyPicture]:
            frame, now = shown
            picture = decoding.to_rgb(video.info.path, frame, LARGEST)
            return now.at, draw(picture, now.similarity, now.strength, now.caption)

        # A core is left to the pictures: torch threads that wait for each other are far slower.
        cores = max(1, torch.get_num_threads() - 1)
        with torch_threads(cores), closing(ahead(maps, 1)) as made:
            bar = progress(made, "localizing", math.ceil(seconds * maps_per_second))
            shown = interpolate(bar, video.walk("video"))
            # Closed before the maps, and these before the files: their threads read from them.
            with closing(ahead(map(drawn, shown), DRAWN_AHEAD)) as pictures:
                blocks = writing.stereo_blocks(sound.info.path, sound.walk("audio"))
                track = writing.SoundTrack(writing.SOUND_RATE, "stereo", blocks)
                rate = _frame_rate(video)
                writing.write_timed_video(Path(out), pictures, track, rate, seconds)
    return Rendered(counts[True] + counts[False], counts[True])


def ahead(items: Iterator[T], count: int) -> Generator[T]:
    """The same items, made by a thread that is `count` of them ahead of the caller."""
    with ThreadPoolExecutor(1) as pool:
        coming: deque[Future[T | None]] = deque()
        while True:
            while len(coming) <= count:
                coming.append(pool.submit(next, items, None))
            if (item := coming.popleft().result()) is None:
                return
            yield item


def _frame_rate(video: OpenMedia) -> float:
    announced = float(decoding.find_stream(video.container, "video").guessed_rate or 25)
    return min(max(announced, 1.0), 120.0)  # a file of varying rate may announce its clock's


def smooth_maps(
    localizer: Localizer,
    video: Media,
    sound: Media,
    rate: float,
    note: Callable[[VideoMoment], object] = lambda moment: None,
    outliner: Outliner | None = None,
) -> Iterator[SmoothedMap]:
    """The maps of a video at a steady rate, each blended with those just before it.

    A map counts for nothing in silence: there the last one stays in place and fades, and the next
    sound does not inherit it.
    """
    keep = math.exp(-1 / (rate * MEMORY))
    mean: Grid | None = None
    scene: Scene | None = None
    strength = 0.0
    ticks = (k / rate for k in itertools.count())
    sounds = iter_windows(sound, ticks, (SOUND_SECONDS, NOW))
    films = itertools.repeat(None) if localizer.table is None else walk_films(video, rate)
    shown = zip(iter_frames(video, rate), films, sounds, strict=False)
    for (at, frame), film, windows in shown:
        if windows is None or float(np.ptp(windows[1])) / 2 < QUIET:
            note(VideoMoment(at, None))
            strength *= keep
            yield SmoothedMap(at, mean, strength, (SILENCE,))
            continue
        scenes = Pictures([frame], [film], [windows[0]])
        (found,) = localizer.answer(scenes, localizer.hear([windows[0]]))
        note(VideoMoment(at, found))
        s, aim = found.similarity, found.strength
        if outliner is not None:
            if scene is None or not scene.shows(at, frame):
                scene = Scene(at, frame, outliner.see(frame))
            s = _outlined(outliner, scene, found)
        mean, strength = (s, aim) if mean is None else blend(mean, strength, s, aim, keep)
        yield SmoothedMap(at, mean, strength, (found.caption,))


class Scene(NamedTuple):
    """A picture that stands for all of the next second that look like it."""

    at: float
    frame: AnyPicture
    seen: Seen

    def shows(self, at: float, frame: AnyPicture) -> bool:
        """Whether a later picture is nearly the same."""
        step = max(1, max(frame.shape) // 64)
        now, then = (picture[::step, ::step].astype(np.int16) for picture in (frame, self.frame))
        return at - self.at < SCENE_SECONDS and float(np.abs(now - then).mean()) < SCENE_CHANGE


def _outlined(outliner: Outliner, scene: Scene, found: Localization) -> Grid:
    """The map of a moment, or the glow of what sounds; both on one grid, so that they blend."""
    s, size = found.similarity, decoding.at_most(LAYER, *scene.seen.size)
    mask = outliner.outline(scene.seen, s) if found.verdict == "visible" else None
    return resize_map(map_heat(s) if mask is None else glow(mask, s), *size)


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


def draw(
    picture: Picture,
    similarity: Float32[np.ndarray, "_h _w"] | None,
    strength: float,
    caption: tuple[str, ...],
) -> AnyPicture:
    """Lay a map over a picture, and write the caption below it."""
    height, width, _ = picture.shape
    heat = np.zeros(decoding.at_most(LAYER, height, width), np.float32)
    if similarity is not None:
        heat = map_heat(resize_map(similarity, *heat.shape))
    shown = figures.overlay(picture, heat, None, strength)
    return np.vstack([shown, _caption(height, width, caption)])


_caption = lru_cache(maxsize=8)(figures.caption_strip)
