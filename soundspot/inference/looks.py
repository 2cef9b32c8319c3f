"""The looks that a model with a second look takes at a picture, joined in one map.

The first look is at the whole frame or, if there are wide plain borders, at what is within them;
at a blurred picture it is from further away. The second look is at small things.

Axes: b pairs, k parts of pictures, h w the grid of a look, h2 w2 a grid twice as fine.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float32

from soundspot.inference.first_look import Sight, sight_of
from soundspot.inference.grids import resize_map
from soundspot.inference.second_look import FINER, look_again
from soundspot.media.decoding import AnyPicture

FURTHER = 2  # times smaller views of blurred pictures

Maps = Float32[np.ndarray, "k h w"]


def look(
    pictures: Sequence[AnyPicture],
    small: float,
    side: int,
    whole: Callable[[Sequence[int]], Maps],
    maps_of: Callable[[Sequence[AnyPicture], Sequence[int], int], Maps],
) -> Float32[np.ndarray, "b h2 w2"]:
    """The maps of frames, on a grid twice as fine as that of a single look.

    Args:
        pictures: The frames.
        small: A share of the frame: where less of a map is hot, a second look is taken.
        side: Cells along a side of the map of a single look.
        whole: The maps of the frames with these numbers, at a single look.
        maps_of: The maps of parts of the frames with these numbers, in views that are a number of
            times smaller than usual.
    """
    sights = [sight_of(picture) for picture in pictures]
    parts = [sight.part(picture) for sight, picture in zip(sights, pictures, strict=True)]
    blurred = [k for k, sight in enumerate(sights) if sight.blurred]
    sharp = [k for k, sight in enumerate(sights) if not sight.blurred]
    framed = [k for k in sharp if parts[k].shape != pictures[k].shape]
    usual = [k for k in sharp if parts[k].shape == pictures[k].shape]
    maps = dict(zip(usual, whole(usual), strict=True)) if usual else {}
    if framed:
        maps |= zip(framed, maps_of([parts[k] for k in framed], framed, 1), strict=True)
    if sharp:
        first = np.stack([maps[k] for k in sharp])
        closer = look_again(
            first,
            small,
            lambda n: parts[sharp[n]],
            lambda windows, numbers: maps_of(windows, [sharp[n] for n in numbers], 1),
        )
        maps |= zip(sharp, closer, strict=True)
    if blurred:
        coarse = maps_of([parts[k] for k in blurred], blurred, FURTHER)
        maps |= zip(blurred, resize_map(coarse, FINER * side, FINER * side), strict=True)
    shapes = [(picture.shape[0], picture.shape[1]) for picture in pictures]
    return np.stack([place(maps[k], sight, shapes[k]) for k, sight in enumerate(sights)])


def place(
    s: Float32[np.ndarray, "h2 w2"], sight: Sight, shape: tuple[int, int]
) -> Float32[np.ndarray, "h2 w2"]:
    """The map of a part of a picture of this shape where it lies on the whole picture's map.

    Around it lies the lowest value of the map.
    """
    lines = zip((sight.rows, sight.columns), shape, s.shape, strict=True)
    rows, columns = (_cells(part, pixels, cells) for part, pixels, cells in lines)
    placed = np.full_like(s, s.min())
    placed[rows, columns] = resize_map(s, rows.stop - rows.start, columns.stop - columns.start)
    return placed


def _cells(part: slice, pixels: int, cells: int) -> slice:
    """The cells, of a line of them, that a part of a line of pixels covers: at least one."""
    start = min(round(part.start * cells / pixels), cells - 1)
    return slice(start, max(round(part.stop * cells / pixels), start + 1))
