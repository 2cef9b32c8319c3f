from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import soundspot
from brightness import brightness_localizer
from soundspot.common.errors import SoundspotError
from soundspot.inference.localizer import Localizer
from soundspot.inference.moments import localize_best, loudest_of_parts, merit, worth_seeing
from soundspot.inference.result import Localization
from soundspot.media import clips as media
from soundspot.media.clips import write_jpeg
from soundspot.model.evidence import Shares

TONE = 0.5 * np.sin(np.arange(8_000) / 7).astype(np.float32)  # half a second
QUIET = np.zeros(8_000, np.float32)


def write(path: Path, brightness: list[int], loudness: list[float]) -> Path:
    """A video of half seconds that are more or less bright and loud."""
    frames = [np.full((32, 48, 3), value, np.uint8) for value in brightness for _ in range(5)]
    for frame in frames:
        frame[:8] = 0
    media.write_video(path, frames, np.concatenate([TONE * level for level in loudness]), 10.0)
    return path


def test_each_part_gives_its_loudest_slice_and_silence_none(tmp_path):
    levels = [0.1, 0.9, 0.5, 0, *[0] * 4, 0, 0.3, 0.2, 0.8]
    video = write(tmp_path / "v.mkv", [99] * 12, levels)
    with media.opened(video) as file:
        found = loudest_of_parts(file, 6.0, parts=3)
    assert {part: candidate.at for part, candidate in found.items()} == {0: 0.75, 2: 5.75}
    assert all(len(candidate.waveform) == 48_000 for candidate in found.values())


class Knows(Localizer):
    """Is the surer of a dog the quieter the middle half second of a sound is."""

    def hear(self, sounds):
        middles = torch.from_numpy(np.stack(sounds))[:, 20_000:28_000]
        return 1 - middles.abs().amax(dim=1)[:, None, None]

    def name_scores(self, f_a):
        return f_a[:, :, 0].numpy()


def test_of_each_stretch_the_sound_that_is_known_most_surely_is_seen(tmp_path):
    """Six stretches of 6 s, each with three parts of 2 s, of which the loudest is known least."""
    levels = np.full((6, 3, 4), 0.1)
    levels[:, 0] = 0.8
    levels[:, 1, 2] = 0.4  # the loudest half second of the second part
    levels[:, 2] = 0.7
    video = write(tmp_path / "v.mkv", [99] * 72, levels.ravel().tolist())
    plain = brightness_localizer()
    knowing = Knows(**{**vars(plain), "class_names": ("Dog",)})
    with media.opened(video) as file:
        seen = worth_seeing(knowing, file, 36.0)
        assert [candidate.at for candidate in seen] == [3.25 + 6 * k for k in range(6)]
        loudest = worth_seeing(plain, file, 36.0)  # which cannot name sounds
        assert [candidate.at // 6 for candidate in loudest] == list(range(6))
        assert all(candidate.at % 6 < 2 for candidate in loudest)


def test_the_highest_peak_wins_and_is_what_that_moment_gives(tmp_path):
    video = write(tmp_path / "v.mkv", [50, 60, 240, 70, 80, 90, 50, 60], [0.5] * 8)
    model = brightness_localizer()
    with media.opened(video) as file:
        best = localize_best(model, file, file)
    assert best.at == 1.25 and best.moments == 6
    alone = soundspot.localize(video, at=best.at, model=model)
    np.testing.assert_array_equal(best.similarity, alone.similarity)
    np.testing.assert_array_equal(best.waveform, alone.waveform)
    assert best.heard == alone.heard == (0.0, 3.0)


@pytest.mark.parametrize(("shade", "threshold"), [(50, 0.1), (160, 0.06)])
def test_unless_a_source_is_surely_visible_the_frames_around_are_seen(tmp_path, shade, threshold):
    frames = [np.full((32, 48, 3), shade, np.uint8) for _ in range(30)]
    for frame in frames:
        frame[:8] = 0
    frames[10][8:] = 250  # only at 1.0 s, between the looks at 0.75 and 1.25 s
    media.write_video(tmp_path / "v.mkv", frames, np.tile(TONE, 6), 10.0)
    model = brightness_localizer(threshold=threshold)
    with media.opened(tmp_path / "v.mkv") as file:
        best = localize_best(model, file, file)
    assert best.at == 1.0 and best.verdict == "visible" and best.moments > 6
    alone = soundspot.localize(tmp_path / "v.mkv", at=1.0, outline=False, model=model)
    np.testing.assert_array_equal(best.similarity, alone.similarity)
    np.testing.assert_array_equal(best.waveform, alone.waveform)


def test_what_is_far_below_the_loudest_is_no_candidate(tmp_path):
    levels = [0.9, 0, 0, 0, 0.2, 0, 0, 0, 0.4, 0, 0, 0]
    with media.opened(write(tmp_path / "v.mkv", [99] * 12, levels)) as file:
        assert list(loudest_of_parts(file, 6.0, parts=3)) == [0, 2]


def test_the_best_moment_is_the_one_whose_source_is_most_probably_visible():
    grid = np.full((4, 4), 0.3, np.float32)
    alone = Localization(grid, [("Bark", 0.4)], "m", threshold=0.5)
    assert merit(alone) == pytest.approx(0.4 * 0.3 / 0.5)
    assert merit(replace(alone, labels=[])) == pytest.approx(0.6)
    assert merit(replace(alone, labels=[]), 0.25) == pytest.approx(0.3)  # half the root of loud
    assert merit(replace(alone, shares=Shares(0.7, 0.2, 0.1))) == pytest.approx(0.3)


def test_a_silent_video_is_refused(tmp_path):
    video = write(tmp_path / "v.mkv", [99] * 4, [0, 0, 0, 0])
    with media.opened(video) as file, pytest.raises(media.MediaError):
        localize_best(brightness_localizer(), file, file)


def test_a_photo_hears_the_loudest_three_seconds(tmp_path):
    """Ten seconds of which one is loud; the middle is silent."""
    write_jpeg(tmp_path / "p.jpg", np.full((31, 37, 3), 200, np.uint8))
    sound = np.zeros(160_000, np.float32)
    sound[16_000:32_000] = np.tile(TONE, 2)
    media.write_flac(tmp_path / "s.flac", sound)
    found = soundspot.localize(
        tmp_path / "p.jpg", tmp_path / "s.flac", model=brightness_localizer()
    )
    start, end = found.heard
    assert start <= 1.0 and end >= 2.0 and end - start == 3.0 and found.at is None
    np.testing.assert_allclose(np.ptp(found.waveform), np.ptp(TONE), atol=1e-3)
    with pytest.raises(SoundspotError) as error:
        soundspot.localize(
            tmp_path / "p.jpg", tmp_path / "s.flac", at="middle", model=brightness_localizer()
        )
    assert error.value.code == "silent"
