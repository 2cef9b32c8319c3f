"""Maps of other sizes. Axes: h w a map, after any number of others."""

import numpy as np
import torch
from jaxtyping import Float32
from torch.nn import functional as F


def resize_map(
    s: Float32[np.ndarray, "*b _h _w"], height: int, width: int
) -> Float32[np.ndarray, "*b height width"]:
    """Resize one or more maps bilinearly."""
    if s.shape[-2:] == (height, width):
        return s
    flat = torch.from_numpy(s).reshape(-1, 1, *s.shape[-2:])
    resized = F.interpolate(flat, size=(height, width), mode="bilinear")
    return resized.reshape(*s.shape[:-2], height, width).numpy()
