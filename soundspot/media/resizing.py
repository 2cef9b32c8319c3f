"""Resizing, which needs torch; what only opens and checks files must not import that.

Axes: h w a frame as it is, height width as it becomes.
"""

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional as F


def resize_tensor(
    frame: UInt8[Tensor, "3 h w"], height: int, width: int
) -> UInt8[Tensor, "3 height width"]:
    """Resize with antialiased bicubic interpolation; the aspect ratio is not kept."""
    if frame.shape[1:] == (height, width):
        return frame
    batch = frame[None].contiguous(memory_format=torch.channels_last)  # torch's fast kernel
    return F.interpolate(batch, (height, width), mode="bicubic", antialias=True)[0]


def resize_frame(
    frame: UInt8[np.ndarray, "h w 3"], height: int, width: int
) -> UInt8[np.ndarray, "height width 3"]:
    """`resize_tensor` for an array."""
    if frame.shape[:2] == (height, width):
        return frame
    # (h, w, 3) in memory is already what torch calls channels_last: nothing is copied.
    pixels = torch.from_numpy(np.require(frame, requirements=["C", "W"])).permute(2, 0, 1)
    return resize_tensor(pixels, height, width).permute(1, 2, 0).contiguous().numpy()
