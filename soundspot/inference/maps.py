"""Maps on a grid: other sizes, heat of 0..1, the box around the hot region, and zooming in.

On a grid of 14 x 14, a thing that covers a tenth of the frame is a handful of cells. Where the hot
part of a map is small, the window around its peak, half as wide and half as high as the frame, is
encoded as a picture of its own. Its map lies on a grid twice as fine, and where the two overlap
they are averaged. Even so a map is broader than a small thing, so its hot part is narrowed.

What moves around a moment is told by differences of small gray pictures, less the camera's.

Axes: b samples, k windows, n pictures, s their side, h w a map on its grid, h2 w2 a grid twice as
fine, height width pixels.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from numpy.typing import NDArray
from torch.nn import functional as F

from soundspot.common.arrays import min_max
from soundspot.media.decoding import SAMPLE_RATE, AnyPicture, AnyWaveform
from soundspot.media.films import Film

PixelBox = tuple[int, int, int, int]  # x1, y1, x2, y2; x2 and y2 are exclusive
CONTOUR_LEVEL = 0.5  # where the protocol `sspl` and the box cut the map
FLAT = 1e-6  # a map whose values differ by less points nowhere
HOT = 0.5  # of the stretched map, as in the protocol `sspl`
TIGHTER = 0.1  # how far above HOT the smallest hot parts are cut, set on val
FINER = 2  # the window is this many times smaller than the frame, and its map as much finer

# Eq. 5 on the full map; the rounding errors that resizing leaves on a flat one are ignored.
map_heat = partial(min_max, flat=FLAT)


def resize_map(
    s: Float32[np.ndarray, "*b _h _w"], height: int, width: int
) -> Float32[np.ndarray, "*b height width"]:
    """Resize one or more maps bilinearly."""
    if s.shape[-2:] == (height, width):
        return s
    flat = torch.from_numpy(s).reshape(-1, 1, *s.shape[-2:])
    resized = F.interpolate(flat, size=(height, width), mode="bilinear")
    return resized.reshape(*s.shape[:-2], height, width).numpy()


def hot_box(heat: Float32[np.ndarray, "height width"]) -> PixelBox | None:
    """The box around the largest hot region; of equal ones, the first in reading order."""
    labels = label_regions(heat >= CONTOUR_LEVEL)
    sizes = np.bincount(labels.ravel())
    return box_around(labels == sizes[1:].argmax() + 1) if len(sizes) > 1 else None


def box_around(mask: Bool[np.ndarray, "height width"]) -> PixelBox | None:
    """The box around all of a mask; None if it is empty."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if len(rows) == 0:
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def label_regions(mask: Bool[np.ndarray, "height width"]) -> Int[np.ndarray, "height width"]:
    """The number of each pixel's 4-connected region, 1 and up in reading order; 0 outside.

    Every row is cut into runs, and runs that touch from one row to the next are joined.
    """
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    first = _join_runs(rows.tolist(), starts.tolist(), ends.tolist())
    numbers = np.unique(first, return_inverse=True)[1] + 1
    # Along a row, the number is added where a run begins and taken back where it ends.
    steps = np.zeros((mask.shape[0], mask.shape[1] + 1), np.int64)
    np.add.at(steps, (rows, starts), numbers)
    np.add.at(steps, (rows, ends), -numbers)
    return steps.cumsum(axis=1)[:, :-1]


def _join_runs(rows: list[int], starts: list[int], ends: list[int]) -> NDArray[np.intp]:
    """The first run of the region that each run belongs to."""
    parent = list(range(len(rows)))

    def find(run: int) -> int:
        while parent[run] != run:
            parent[run] = run = parent[parent[run]]
        return run

    above = 0  # the first run of the row above that may still touch the current run
    for run, row in enumerate(rows):
        while rows[above] < row - 1 or (rows[above] == row - 1 and ends[above] <= starts[run]):
            above += 1
        other = above
        while rows[other] == row - 1 and starts[other] < ends[run]:
            first, second = sorted((find(run), find(other)))
            parent[second] = first
            other += 1
    return np.array([find(run) for run in range(len(rows))], np.intp)


# --- zooming in on small things ---


def zoom(
    first: Float32[np.ndarray, "b h w"],
    small: float,
    picture: Callable[[int], AnyPicture],
    maps_of: Callable[[Sequence[AnyPicture], Sequence[int]], Float32[np.ndarray, "k h w"]],
) -> Float32[np.ndarray, "b h2 w2"]:
    """Maps of whole frames, refined where less than `small` of them is hot.

    `picture` gives the frame of a map by its number, and `maps_of` the maps of parts of frames
    under the sounds of the maps with these numbers.
    """
    windows = find_windows(first, small)
    closer = first[:0]
    if windows:
        grid = (first.shape[1], first.shape[2])
        parts = [cut(picture(number), window, grid) for number, window in windows.items()]
        closer = maps_of(parts, list(windows))
    return tighten(join(first, windows, closer), small)


class Window(NamedTuple):
    """The upper left corner of a window, in cells of the finer grid; its sides are h and w."""

    top: int
    left: int


def find_windows(maps: Float32[np.ndarray, "b h w"], small: float) -> dict[int, Window]:
    """The windows to enlarge, by the number of the map: where less than `small` is hot."""
    _, height, width = maps.shape
    found = {}
    for number, s in enumerate(maps):
        if np.ptp(s) > 0 and float((min_max(s[None]) >= HOT).mean()) < small:
            row, column = np.unravel_index(s.argmax(), s.shape)
            found[number] = Window(_corner(int(row), height), _corner(int(column), width))
    return found


def _corner(peak: int, cells: int) -> int:
    """Where a window of `cells` fine cells begins whose middle is that of a coarse cell."""
    middle = FINER * peak + FINER // 2
    return min(max(middle - cells // 2, 0), (FINER - 1) * cells)


def cut(picture: AnyPicture, window: Window, grid: tuple[int, int]) -> AnyPicture:
    """The part of a picture that a window covers, on maps that have this grid."""
    sides = zip(window, grid, picture.shape[:2], strict=True)
    rows, columns = (
        slice(
            round(start * pixels / (FINER * cells)),
            max(round((start + cells) * pixels / (FINER * cells)), 1),
        )
        for start, cells, pixels in sides
    )
    return picture[rows, columns]


def join(
    maps: Float32[np.ndarray, "b h w"],
    windows: Mapping[int, Window],
    closer: Float32[np.ndarray, "k h w"],
) -> Float32[np.ndarray, "b h2 w2"]:
    """All maps on the finer grid, averaged with the closer ones of the windows."""
    _, height, width = maps.shape
    fine = resize_map(maps, FINER * height, FINER * width)
    for (number, (top, left)), s in zip(windows.items(), closer, strict=True):
        part = fine[number, top : top + height, left : left + width]
        part += s
        part /= 2
    return fine


def tighten(maps: Float32[np.ndarray, "b h w"], small: float) -> Float32[np.ndarray, "b h w"]:
    """Raise maps whose hot part is below `small` to a power, keeping minimum and maximum.

    The smaller the hot part, the higher the level that becomes `HOT`.
    """
    stretched = min_max(maps)
    share = (stretched >= HOT).mean(axis=(1, 2), keepdims=True)
    level = HOT + TIGHTER * np.clip(1 - share / small, 0, 1)
    power = np.log(HOT) / np.log(level)
    lowest = maps.min(axis=(1, 2), keepdims=True)
    return np.asarray(
        lowest + np.ptp(maps, axis=(1, 2), keepdims=True) * stretched**power, np.float32
    )


# --- motion ---


BLUR = 0.05  # of the side
BEGINS = 0.5  # share of the motion that is counted where the sound begins
BANDS = 6
HEARD = 100, 7_500  # Hz


def motion_map(
    film: Film | None, height: int, width: int, sound: AnyWaveform | None = None
) -> Float32[np.ndarray, "h w"]:
    """How much each place of the frame moves, from 0 to 1; 0 everywhere if nothing does.

    A moving camera changes the whole picture: of every difference its median is taken off. What
    moves as the sound begins counts more, since a hand also moves before it taps and after.
    """
    if film is None or len(film) < 2:
        return np.zeros((height, width), np.float32)
    changes = np.abs(np.diff(film.astype(np.float32), axis=0))
    changes -= np.median(changes, axis=(1, 2), keepdims=True)
    count = np.full(len(changes), 1 / len(changes))
    if sound is not None:
        count = (1 - BEGINS) * count + BEGINS * onsets(sound, len(film))
    moved = np.einsum("t,thw->hw", count, np.sqrt(changes.clip(min=0)))
    side = np.arange(len(moved))
    spread = np.exp(-((side[:, None] - side) ** 2) / (2 * (BLUR * len(moved)) ** 2))
    spread /= spread.sum(axis=1, keepdims=True)
    blurred = np.asarray(spread @ moved @ spread.T, np.float32)
    return np.asarray(min_max(resize_map(blurred, height, width)), np.float32)


def onsets(sound: AnyWaveform, steps: int) -> Float[np.ndarray, "n"]:
    """How much a sound begins from each of `steps` equal parts to the next; they add up to 1.

    The rise in decibels, averaged over bands of frequency.
    """
    parts = sound[: len(sound) // steps * steps].reshape(steps, -1)
    power = np.abs(np.fft.rfft(parts * np.hanning(parts.shape[1]))) ** 2
    limits = np.geomspace(*HEARD, BANDS + 1) / (SAMPLE_RATE / 2) * power.shape[1]
    energy = [power[:, int(a) : int(b) + 1].mean(axis=1) for a, b in itertools.pairwise(limits)]
    rises = np.diff(np.log(np.array(energy) + 1e-6), axis=1).clip(min=0).mean(axis=0)
    return rises / rises.sum() if rises.any() else np.full(steps - 1, 1 / (steps - 1))
