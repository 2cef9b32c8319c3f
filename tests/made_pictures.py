"""Pictures that are made for tests."""

import numpy as np


def tiles(height: int, width: int) -> np.ndarray:
    """Colored tiles of seven pixels: sharp edges, and nothing plain."""
    rng = np.random.default_rng(0)
    colors = rng.integers(0, 256, (height // 7 + 1, width // 7 + 1, 3), dtype=np.uint8)
    return colors.repeat(7, axis=0).repeat(7, axis=1)[:height, :width]
