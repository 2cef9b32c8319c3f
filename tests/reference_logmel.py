"""Naive log-mel from METHOD.md: loops, a written-out DFT, float64. Slow on purpose."""

import numpy as np
from numpy.typing import NDArray

WINDOW, HOP, FFT, BANDS, PATCH, RATE = 400, 160, 512, 64, 96, 16_000


def log_mel_patches(waveform: NDArray[np.float64], log_offset: float) -> NDArray[np.float64]:
    """One waveform (samples,) -> (patches, 96, 64)."""
    hann = np.array([0.5 - 0.5 * np.cos(2 * np.pi * n / WINDOW) for n in range(WINDOW)])
    filters = mel_filters()
    frames = []
    start = 0
    while start + WINDOW <= len(waveform):
        spectrum = magnitude(waveform[start : start + WINDOW] * hann)
        frames.append([np.log(band @ spectrum + log_offset) for band in filters])
        start += HOP
    patches = len(frames) // PATCH
    return np.array(frames[: patches * PATCH]).reshape(patches, PATCH, BANDS)


def magnitude(frame: NDArray[np.float64]) -> NDArray[np.float64]:
    """|DFT| of length 512 of a shorter frame."""
    return np.array([abs(_TURNS[k] @ frame) for k in range(FFT // 2 + 1)])


_TURNS = [np.exp(-2j * np.pi * k * np.arange(WINDOW) / FFT) for k in range(FFT // 2 + 1)]


def mel_filters() -> NDArray[np.float64]:
    """(64 bands, 257 bins): each band rises and falls linearly in mel between its neighbors."""

    def mel(hertz: float) -> float:  # HTK; the factor cancels, the shape does not
        return 2595 * np.log10(1 + hertz / 700)

    low, high = mel(125), mel(7500)
    step = (high - low) / (BANDS + 1)
    filters = np.zeros((BANDS, FFT // 2 + 1))
    for band in range(BANDS):
        center = low + (band + 1) * step
        for k in range(1, FFT // 2 + 1):  # the DC bin stays zero
            filters[band, k] = max(0, 1 - abs(mel(k * RATE / FFT) - center) / step)
    return filters
