"""Mix a sound with another one, or with noise."""

import numpy as np
from numpy.typing import NDArray

from soundspot.media.decoding import SAMPLE_RATE

Wave = NDArray[np.float32]

LOWEST_HZ = 20.0  # below it noise of any color is white
MOST_TILT = 2.0  # power falls as 1 / frequency^tilt: 0 is white noise, 2 brown
SNR_DB = (0.0, 20.0)


def mix(sound: Wave, other: Wave, snr_db: float = 0.0) -> Wave:
    """Both together, the first louder by `snr_db`, scaled down if they exceed full scale."""
    power = float(np.sqrt(np.mean(sound**2))) * 10 ** (-snr_db / 20)
    both = sound + other * (power / max(float(np.sqrt(np.mean(other**2))), 1e-9))
    return np.asarray(both / max(1.0, float(np.abs(both).max())), np.float32)


def add_noise(sound: Wave, rng: np.random.Generator) -> Wave:
    """The sound with noise of a random color and loudness."""
    spectrum = np.fft.rfft(rng.standard_normal(len(sound)))
    frequencies = np.fft.rfftfreq(len(sound), 1 / SAMPLE_RATE)
    spectrum *= np.maximum(frequencies, LOWEST_HZ) ** (-rng.uniform(0, MOST_TILT) / 2)
    noise = np.fft.irfft(spectrum, len(sound))
    return mix(sound, np.asarray(noise, np.float32), rng.uniform(*SNR_DB))
