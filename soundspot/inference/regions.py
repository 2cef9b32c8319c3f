"""A mask -> the box around its largest connected region.

Axes: height width pixels.
"""

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

Box = tuple[int, int, int, int]


def largest_region(mask: Bool[np.ndarray, "height width"]) -> Box | None:
    """The box around the largest 4-connected region; of equal ones, the first in reading order.

    Every row is cut into runs, and runs that touch from one row to the next are joined.
    """
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    if len(rows) == 0:
        return None
    root = _join_runs(rows.tolist(), starts.tolist(), ends.tolist())
    member = root == np.bincount(root, weights=ends - starts).argmax()
    x1, y1, x2, y2 = (
        starts[member].min(),
        rows[member].min(),
        ends[member].max(),
        rows[member].max(),
    )
    return int(x1), int(y1), int(x2), int(y2) + 1


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
            one, two = find(run), find(other)
            parent[max(one, two)] = min(one, two)
            other += 1
    return np.array([find(run) for run in range(len(rows))])
