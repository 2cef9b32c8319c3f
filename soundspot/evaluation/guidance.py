"""Object guidance: blend a map with what stands out in the picture, regardless of the sound.

Axes: n pairs, h w the map as a model made it.
"""

from soundspot.common.arrays import min_max
from soundspot.common.errors import SoundspotError
from soundspot.evaluation.metrics import RawMaps


def check_weight(weight: float) -> None:
    """Refuse a weight outside 0..1."""
    if not 0 <= weight < 1:
        raise SoundspotError(
            f"the weight of object guidance must be at least 0 and below 1, got {weight:g}"
        )


def guide(maps: RawMaps, saliency: RawMaps, weight: float) -> RawMaps:
    """Blend both, each stretched to 0..1; weight 0 returns the maps unchanged."""
    if weight == 0:
        return maps
    return (1 - weight) * min_max(maps) + weight * min_max(saliency)
