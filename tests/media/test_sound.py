import numpy as np
import pytest

from soundspot.media.sound import add_noise, mix

SECONDS = np.arange(48_000) / 16_000
TONE = (0.1 * np.sin(2 * np.pi * 440 * SECONDS)).astype(np.float32)


def loudness(sound):
    return 20 * np.log10(np.std(sound))


@pytest.mark.parametrize("snr_db", [0.0, 6.0, 20.0])
def test_the_sound_is_louder_by_so_many_decibels(snr_db):
    other = np.random.default_rng(0).standard_normal(48_000).astype(np.float32)
    both = mix(TONE, other, snr_db)
    assert loudness(TONE) - loudness(both - TONE) == pytest.approx(snr_db, abs=0.1)


def test_nothing_is_louder_than_full_scale():
    assert np.abs(mix(9 * TONE, 9 * TONE)).max() == pytest.approx(1)


def test_noise_has_many_colors_and_levels_but_one_for_each_seed():
    levels, tilts = [], []
    for seed in range(40):
        noise = add_noise(TONE, np.random.default_rng(seed)) - TONE
        levels.append(loudness(TONE) - loudness(noise))
        power = np.abs(np.fft.rfft(noise)) ** 2
        tilts.append(np.log2(power[150:300].mean() / power[15_000:22_500].mean()) / np.log2(83))
    assert 0 <= min(levels) < 4 and 16 < max(levels) <= 20.1
    assert -0.1 < min(tilts) < 0.3 and 1.7 < max(tilts) < 2.1
    first, again = (add_noise(TONE, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first, again)
