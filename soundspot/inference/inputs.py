"""The forms in which a frame and a sound may be given to a localizer.

Axes: height width pixels of the frame.
"""

from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from soundspot.common.errors import SoundspotError
from soundspot.media.images import decode_image
from soundspot.media.sound import SOUND_SAMPLES, cut, is_silent

FrameLike = NDArray[Any] | Image.Image | Tensor
WaveformLike = NDArray[Any] | Tensor


def as_frame(frame: FrameLike) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a frame in any of the accepted forms."""
    if isinstance(frame, Image.Image):
        frame = decode_image("the image", frame)
    elif isinstance(frame, Tensor):
        if frame.ndim != 3 or frame.shape[0] != 3:
            raise SoundspotError(f"a frame tensor is 3 x H x W, got {tuple(frame.shape)}")
        frame = frame.detach().cpu().permute(1, 2, 0).numpy()
    elif not isinstance(frame, np.ndarray):
        raise SoundspotError(f"a frame is an array, image or tensor, got {type(frame).__name__}")
    if frame.dtype != np.uint8:
        raise SoundspotError(f"expected a frame of uint8 values 0..255, got {frame.dtype}")
    if frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        raise SoundspotError(f"expected a frame of shape H x W x 3, got {frame.shape}")
    return frame


def as_waveform(waveform: WaveformLike) -> Float32[np.ndarray, "48000"]:
    """The 3 s that are heard of a waveform given in any of the accepted forms."""
    if isinstance(waveform, Tensor):
        waveform = waveform.detach().cpu().numpy()
    elif not isinstance(waveform, np.ndarray):
        raise SoundspotError(f"a waveform is an array or tensor, got {type(waveform).__name__}")
    if not np.issubdtype(waveform.dtype, np.floating):
        raise SoundspotError(f"expected a waveform of floats in -1..1, got {waveform.dtype}")
    if waveform.ndim != 1 or waveform.size == 0:
        raise SoundspotError(f"expected a mono waveform with one axis, got {waveform.shape}")
    if not np.isfinite(waveform).all():
        raise SoundspotError("expected a waveform of finite numbers, got NaN or infinity")
    sound = cut(waveform.astype(np.float32), None, SOUND_SAMPLES)
    if is_silent(sound):
        raise SoundspotError("the waveform is silent: there is nothing to locate", "silent")
    return sound
