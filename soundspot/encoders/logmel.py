"""Waveform -> log-mel patches, the front end that VGGish and YAMNet share.

The two differ only in the offset inside the logarithm.
Axes: batch, samples at 16 kHz, frames every 10 ms, bins of the FFT, bands of the mel scale,
patches of 96 frames.
"""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from soundspot.common.errors import SoundspotError

SAMPLE_RATE = 16_000
WINDOW = 400  # 25 ms
HOP = 160  # 10 ms
FFT = 512
BINS = FFT // 2 + 1
BANDS = 64
LOW_HZ, HIGH_HZ = 125.0, 7500.0
PATCH_FRAMES = 96
PATCH_SAMPLES = (PATCH_FRAMES - 1) * HOP + WINDOW  # 15,600: the shortest input
# Added to the mel magnitude, so that silence has a finite logarithm.
VGGISH_OFFSET, YAMNET_OFFSET = 0.01, 0.001


def stretch_waveform(waveform: Float[Tensor, "batch samples"]) -> Float[Tensor, "batch samples"]:
    """Stretches each waveform to [-1, 1] by its own minimum and maximum.

    The released code does this before either encoder, so the network never sees loudness.
    """
    low = waveform.amin(dim=1, keepdim=True)
    high = waveform.amax(dim=1, keepdim=True)
    return 2 * ((waveform - low) / (high - low + 1e-3) - 0.5)


def log_mel_patches(
    waveform: Float[Tensor, "batch samples"], offset: float
) -> Float[Tensor, "batch patches 96 64"]:
    """Computes log(mel + offset) and cuts it into float32 patches of 96 frames without overlap.

    Frames after the last whole patch are dropped: the 298 frames of 3 s give 3 patches. A sound
    shorter than one patch is refused.
    """
    batch, samples = waveform.shape
    if samples < PATCH_SAMPLES:
        raise SoundspotError(f"expected at least {PATCH_SAMPLES} samples at 16 kHz, got {samples}")
    # A half-precision spectrum would lose the quiet bands.
    with torch.autocast(waveform.device.type, enabled=False):
        mel = _magnitude(waveform.float()) @ torch.tensor(mel_matrix(), device=waveform.device)
        log_mel = torch.log(mel + offset)
    patches = log_mel.shape[1] // PATCH_FRAMES
    return log_mel[:, : patches * PATCH_FRAMES].reshape(batch, patches, PATCH_FRAMES, BANDS)


def _magnitude(waveform: Float[Tensor, "batch samples"]) -> Float[Tensor, "batch frames 257"]:
    """|DFT| of 400-sample frames, each windowed and then zero-padded on its right to 512.

    torch.stft would center a short window in the FFT frame, 56 samples late, and drop the frames
    that need samples beyond the end. Padding window and waveform on the right avoids both.
    """
    if torch.compiler.is_exporting():  # ONNX has no complex numbers
        return magnitude_by_products(waveform)
    pad = FFT - WINDOW
    window = F.pad(torch.hann_window(WINDOW, periodic=True, device=waveform.device), (0, pad))
    spectrum = torch.stft(
        F.pad(waveform, (0, pad)), FFT, HOP, window=window, center=False, return_complex=True
    )
    return spectrum.abs().transpose(1, 2)


def magnitude_by_products(
    waveform: Float[Tensor, "batch samples"],
) -> Float[Tensor, "batch frames 257"]:
    """`_magnitude` as two convolutions with fixed sinusoids, without complex numbers."""
    time, bins = np.arange(WINDOW), np.arange(BINS)[:, None]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * time / WINDOW)
    angle = 2 * np.pi * bins * time / FFT
    waves = np.concatenate([window * np.cos(angle), window * np.sin(angle)]).astype(np.float32)
    parts = F.conv1d(waveform.unsqueeze(1), torch.tensor(waves).unsqueeze(1), stride=HOP)
    real, imaginary = parts[:, :BINS], parts[:, BINS:]
    return (real.square() + imaginary.square()).sqrt().transpose(1, 2)


@lru_cache(maxsize=1)  # NumPy: a tensor made in inference mode would stay unusable for training
def mel_matrix() -> NDArray[np.float32]:
    """Weights (257 bins, 64 bands): triangles on the HTK mel scale, which starts above DC."""
    edges = np.linspace(_hertz_to_mel(LOW_HZ), _hertz_to_mel(HIGH_HZ), BANDS + 2)
    lower, center, upper = edges[:-2], edges[1:-1], edges[2:]
    bins = _hertz_to_mel(np.linspace(0, SAMPLE_RATE / 2, BINS))[:, None]
    rising = (bins - lower) / (center - lower)
    falling = (upper - bins) / (upper - center)
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


def _hertz_to_mel(hertz: float | NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1127 * np.log1p(np.asarray(hertz) / 700))
