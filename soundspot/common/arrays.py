"""Min-max stretching of maps. Axes: h w a map, after any number of others."""

import numpy as np
from jaxtyping import Float


def min_max(
    maps: Float[np.ndarray, "*n h w"],
    low: float | None = None,
    high: float | None = None,
    flat: float = 0.0,
) -> Float[np.ndarray, "*n h w"]:
    """Each map stretched to 0..1 from `low` or its lowest value to `high` or its highest.

    A map whose values differ by no more than `flat` becomes 0.
    """
    lowest = maps.min(axis=(-2, -1), keepdims=True) if low is None else low
    highest = maps.max(axis=(-2, -1), keepdims=True) if high is None else high
    span = np.asarray(highest - lowest, maps.dtype)
    stretched = maps - lowest
    stretched /= np.where(span > flat, span, np.inf)  # x / infinity is 0
    return stretched if low is None and high is None else np.clip(stretched, 0, 1)
