"""What moves around a moment: differences of small gray pictures, less the camera's.

Axes: n pictures, s their side, h w the grid of the map.
"""

import numpy as np
from jaxtyping import Float32

from soundspot.common.arrays import min_max
from soundspot.inference.maps import resize_map
from soundspot.media.films import Film

BLUR = 0.05  # of the side


def motion_map(film: Film | None, height: int, width: int) -> Float32[np.ndarray, "h w"]:
    """How much each place of the frame moves, from 0 to 1; 0 everywhere if nothing does.

    A moving camera changes the whole picture: of every difference its median is taken off.
    """
    if film is None or len(film) < 2:
        return np.zeros((height, width), np.float32)
    changes = np.abs(np.diff(film.astype(np.float32), axis=0))
    changes -= np.median(changes, axis=(1, 2), keepdims=True)
    moved = np.sqrt(changes.clip(min=0)).mean(axis=0)
    side = np.arange(len(moved))
    spread = np.exp(-((side[:, None] - side) ** 2) / (2 * (BLUR * len(moved)) ** 2))
    spread /= spread.sum(axis=1, keepdims=True)
    blurred = np.asarray(spread @ moved @ spread.T, np.float32)
    return np.asarray(min_max(resize_map(blurred, height, width)), np.float32)
