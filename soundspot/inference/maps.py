"""Maps on a grid: other sizes, heat of 0..1, and the box around the hot region.

Axes: h w a map on its grid, height width pixels.
"""

from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float32
from numpy.typing import NDArray
from torch.nn import functional as F

from soundspot.common.arrays import min_max

PixelBox = tuple[int, int, int, int]  # x1, y1, x2, y2; x2 and y2 are exclusive
CONTOUR_LEVEL = 0.5  # where the protocol `sspl` and the box cut the map
FLAT = 1e-6  # a map whose values differ by less points nowhere


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
    """The box around the largest region inside the contour."""
    return largest_region(heat >= CONTOUR_LEVEL)


def largest_region(mask: Bool[np.ndarray, "height width"]) -> PixelBox | None:
    """The box around the largest 4-connected region; of equal ones, the first in reading order.

    Every row is cut into runs, and runs that touch from one row to the next are joined.
    """
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    if len(rows) == 0:
        return None
    regions = _join_runs(rows.tolist(), starts.tolist(), ends.tolist())
    member = regions == np.bincount(regions, weights=ends - starts).argmax()
    x1, x2, ys = starts[member].min(), ends[member].max(), rows[member]
    return int(x1), int(ys.min()), int(x2), int(ys.max()) + 1


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
    return np.array([find(run) for run in range(len(rows))])
