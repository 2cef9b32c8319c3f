"""A picture of a video with its heat map and its caption, drawn on the planes that videos store.

Axes: h w pixels of a plane.
"""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch.nn import functional as F

from soundspot.inference import figures
from soundspot.inference.heat_layer import COLOR_KEPT, LUMA_KEPT, heat_layer
from soundspot.inference.maps import map_heat, resize_map
from soundspot.media.decoding import AnyPicture
from soundspot.media.planes import BLACK, GRAY, Planes, at_most, from_rgb, from_rgb_matrix

LAYER = 480  # pixels of the longer side at which heat is drawn; larger pictures enlarge it


def draw(
    picture: Planes,
    similarity: Float32[np.ndarray, "_h _w"] | None,
    strength: float,
    caption: tuple[str, ...],
    trained: bool,
) -> Planes:
    """Lay a map over a picture, as `figures.overlay` does, and write the caption below it.

    Args:
        picture: The picture.
        similarity: The map S; None draws no heat.
        strength: Opacity of heat and contour, 0..1.
        caption: Lines of text.
        trained: Whether the map means something; if not, that is stamped on it.
    """
    height, width = picture.luma.shape
    heat = np.zeros(at_most(LAYER, height, width), np.float32)
    if similarity is not None:
        heat = map_heat(resize_map(similarity, *heat.shape))
    *paints, opacity = strength * heat_layer(heat, from_rgb_matrix(picture.matrix))
    looks = ((LUMA_KEPT, BLACK), (COLOR_KEPT, GRAY), (COLOR_KEPT, GRAY))
    parts = [
        _lay(plane, paint, 1 - opacity, *look)
        for plane, paint, look in zip(picture[:3], paints, looks, strict=True)
    ]
    if not trained:
        for plane, stamp in zip(parts, _stamp(height, width, picture.matrix)[:3], strict=True):
            plane[len(plane) - len(stamp) :] = stamp
    below = _caption(height, width, caption, picture.matrix)
    luma, blue, red = (np.vstack(both) for both in zip(parts, below[:3], strict=True))
    return Planes(luma, blue, red, picture.matrix)


def _lay(
    plane: UInt8[np.ndarray, "h w"],
    paint: Float32[np.ndarray, "_h _w"],
    clear: Float32[np.ndarray, "_h _w"],
    kept: float,
    zero: int,
) -> UInt8[np.ndarray, "h w"]:
    """The plane, muted around its `zero`, shows through a layer where that is clear."""
    # Eight bits of both and sixteen of their product: a quarter of the time of floats.
    share = 256 * kept * clear
    offset = zero + paint - share * (zero / 256)
    layer = np.rint(np.stack([share, offset])).astype(np.uint8)
    if paint.shape != plane.shape:
        tensor = torch.from_numpy(layer)[None]
        larger = F.interpolate(tensor, plane.shape, mode="bilinear", antialias=True)
        layer = larger[0].numpy()
    mixed = plane.astype(np.uint16)
    mixed *= layer[0]
    mixed += 128
    mixed >>= 8
    mixed += layer[1]
    return mixed.astype(np.uint8)


@lru_cache(maxsize=8)
def _caption(height: int, width: int, lines: tuple[str, ...], matrix: int) -> Planes:
    return from_rgb(_even(figures.caption_strip(height, width, lines)), matrix)


@lru_cache(maxsize=1)
def _stamp(height: int, width: int, matrix: int) -> Planes:
    return from_rgb(_even(figures.stamp_strip(height, width))[-height:], matrix)


def _even(picture: AnyPicture) -> AnyPicture:
    """Repeat the last line of an odd side."""
    return np.pad(picture, [(0, picture.shape[0] % 2), (0, picture.shape[1] % 2), (0, 0)], "edge")
