"""The looks that a model with a second look takes at a picture, combined into one map.

The first look is at the whole frame or, if there are wide plain borders, at what is within them;
blurred pictures are seen at half the size. The second look is at small things.

Axes: b pairs, k parts of pictures, h w the grid of a look, h2 w2 a grid twice as fine.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot.common.arrays import min_max
from soundspot.encoders.views import evaluation_views
from soundspot.inference.first_look import Sight, sight_of
from soundspot.inference.grids import resize_map
from soundspot.inference.second_look import FINER, look_again
from soundspot.media.decoding import AnyPicture
from soundspot.model.pcm import SMALLEST_GRID

SHRINK = 2  # views of blurred pictures are this many times smaller

Maps = Float32[np.ndarray, "k h w"]


def see(
    visual: nn.Module, pictures: Sequence[AnyPicture], sizes: Sequence[int], device: torch.device
) -> Float[Tensor, "b c h w"]:
    """The features of pictures, in views of these sizes: one for each encoder that is joined."""
    # A copy: PIL lends its pixels read-only, which torch does not take.
    pixels = [torch.from_numpy(picture.copy()).permute(2, 0, 1) for picture in pictures]
    f_v: Tensor = visual(*(view.to(device) for view in evaluation_views(pixels, sizes)))
    return f_v


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
        small: A share: where less of a map is hot, a second look is taken.
        side: Cells along a side of the map of a single look.
        whole: The maps of the frames with these numbers, at a single look.
        maps_of: The maps of parts of the frames with these numbers, in views that are a number of
            times smaller than usual.
    """
    sights = [sight_of(picture) for picture in pictures]
    parts = [sight.part(picture) for sight, picture in zip(sights, pictures, strict=True)]
    shrinks = side % SHRINK == 0 and side // SHRINK >= SMALLEST_GRID
    blurred = [k for k, sight in enumerate(sights) if sight.blurred and shrinks]
    sharp = [k for k in range(len(pictures)) if k not in blurred]
    framed = [k for k in sharp if parts[k].shape != pictures[k].shape]
    usual = [k for k in sharp if parts[k].shape == pictures[k].shape]
    first: dict[int, Float32[np.ndarray, "h w"]] = {}
    if usual:
        first |= zip(usual, whole(usual), strict=True)
    if framed:
        first |= zip(framed, maps_of([parts[k] for k in framed], framed, 1), strict=True)
    fine: dict[int, Float32[np.ndarray, "h2 w2"]] = {}
    if sharp:
        closer = look_again(
            np.stack([first[k] for k in sharp]),
            small,
            lambda n: parts[sharp[n]],
            lambda windows, numbers: maps_of(windows, [sharp[n] for n in numbers], 1),
        )
        fine |= zip(sharp, closer, strict=True)
    if blurred:
        coarse = maps_of([parts[k] for k in blurred], blurred, SHRINK)
        fine |= zip(blurred, resize_map(coarse, FINER * side, FINER * side), strict=True)
    shapes = [(picture.shape[0], picture.shape[1]) for picture in pictures]
    return np.stack([place(fine[k], sight, shapes[k]) for k, sight in enumerate(sights)])


def place(
    s: Float32[np.ndarray, "h2 w2"], sight: Sight, shape: tuple[int, int]
) -> Float32[np.ndarray, "h2 w2"]:
    """Put the map of a part where it belongs on the map of the whole picture, which has this shape.

    The rest gets the lowest value of the map; its highest value stays.
    """
    lines = zip((sight.rows, sight.columns), shape, s.shape, strict=True)
    rows, columns = (_cells(part, pixels, cells) for part, pixels, cells in lines)
    size = (rows.stop - rows.start, columns.stop - columns.start)
    if size == s.shape:
        return s
    # Not antialiased interpolation, which torch 2.13 gets wrong for maps that are one cell wide.
    inside = F.adaptive_avg_pool2d(torch.from_numpy(s)[None], size)[0].numpy()
    placed = np.full_like(s, s.min())
    placed[rows, columns] = s.min() + np.ptp(s) * (min_max(inside) if np.ptp(inside) else 1)
    return placed


def _cells(part: slice, pixels: int, cells: int) -> slice:
    """The cells that a range of pixels covers: at least one."""
    start = min(round(part.start * cells / pixels), cells - 1)
    return slice(start, max(round(part.stop * cells / pixels), start + 1))
