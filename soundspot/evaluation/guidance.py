"""Object guidance: blend a map with what stands out of the picture, whatever is heard.

Axes: n pairs, h w the map as a model made it.
"""

import numpy as np
from jaxtyping import Float

from soundspot.common.arrays import min_max
from soundspot.common.errors import SoundspotError


def check_weight(weight: float) -> None:
    """Refuse a weight that is no share."""
    if not 0 <= weight < 1:
        raise SoundspotError(
            f"the weight of object guidance must be at least 0 and below 1, not {weight:g}"
        )


def guide(
    maps: Float[np.ndarray, "n h w"], saliency: Float[np.ndarray, "n h w"], weight: float
) -> Float[np.ndarray, "n h w"]:
    """The blend of both, each stretched to 0..1; 0 leaves the maps as they are."""
    if weight == 0:
        return maps
    return (1 - weight) * min_max(maps) + weight * min_max(saliency)
