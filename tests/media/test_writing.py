"""writing.py: pictures and sound at their times, whatever the time stamps of the source."""

import itertools
from pathlib import Path

import av
import numpy as np
import pytest

from soundspot.media import decoding, writing
from soundspot.media.clips import read_waveform

RATE = writing.SOUND_RATE


def piece(samples: np.ndarray) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(np.stack([samples, samples]).astype("f4"), "fltp", "stereo")
    frame.sample_rate = RATE
    return frame


def copied(*pieces: tuple[float, np.ndarray]) -> np.ndarray:
    frames = [(time, piece(samples)) for time, samples in pieces]
    return np.concatenate(list(writing.stereo_blocks(Path("s"), frames)), axis=1)[0]


RAMP = np.arange(1, 2401, dtype=np.float32) / 2400  # 50 ms


def test_sound_before_the_first_picture_is_left_out():
    heard = copied((-0.02, RAMP), (0.03, -RAMP))
    assert len(heard) == 2 * 2400 - 960
    np.testing.assert_allclose(heard[:1440], RAMP[960:], atol=1e-6)
    np.testing.assert_allclose(heard[1440:], -RAMP, atol=1e-6)
    np.testing.assert_allclose(copied((-0.06, RAMP), (-0.01, -RAMP)), -RAMP[480:], atol=1e-6)


def test_a_hole_or_a_late_start_is_as_long_as_the_time_stamps_say():
    heard = copied((0.5, RAMP))
    assert (heard[: RATE // 2] == 0).all() and len(heard) == RATE // 2 + 2400
    heard = copied((0.0, RAMP), (1.25, -RAMP))
    assert len(heard) == 1.25 * RATE + 2400
    np.testing.assert_allclose(heard[:2400], RAMP, atol=1e-6)
    assert (heard[2400 : round(1.25 * RATE)] == 0).all()
    np.testing.assert_allclose(heard[round(1.25 * RATE) :], -RAMP, atol=1e-6)


@pytest.mark.parametrize("jitter", [0.01, -0.01, 0.09])
def test_jitter_of_the_time_stamps_is_no_hole(jitter: float):
    assert len(copied((0.0, RAMP), (0.05 + jitter, RAMP))) == 4800


@pytest.mark.parametrize("times", [[0.0, 0.0, 0.1, 0.2], [0.0, 0.1, 0.05, 0.2]])
def test_pictures_that_do_not_advance_are_kept_in_their_order(tmp_path: Path, times: list[float]):
    grays = [30, 90, 150, 210]
    pictures = [
        (at, np.full((32, 32, 3), gray, np.uint8)) for at, gray in zip(times, grays, strict=True)
    ]
    writing.write_timed_video(tmp_path / "v.mp4", pictures, None, 10.0)
    shown = list(decoding.decode(tmp_path / "v.mp4", "video", 0.0))
    found = [float(decoding.to_rgb(tmp_path, frame).mean()) for _, frame in shown]
    assert found == pytest.approx(grays, abs=12)
    seconds = [time for time, _ in shown]
    assert all(later > sooner for sooner, later in itertools.pairwise(seconds))
    assert seconds[-1] == pytest.approx(0.2, abs=0.002)


def test_sound_ends_with_the_last_picture(tmp_path: Path):
    pictures = [(k / 10, np.full((32, 32, 3), 99, np.uint8)) for k in range(5)]
    tone = np.sin(np.arange(3 * RATE) / 20).astype(np.float32)
    blocks = (np.stack([tone, tone])[:, k : k + 1024] for k in range(0, len(tone), 1024))
    track = writing.SoundTrack(RATE, "stereo", blocks)
    writing.write_timed_video(tmp_path / "v.mp4", pictures, track, 10.0, seconds=0.5)
    assert len(read_waveform(tmp_path / "v.mp4")) / 16_000 == pytest.approx(0.5, abs=0.05)
