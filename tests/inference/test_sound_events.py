from pathlib import Path

import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.inference import moments
from soundspot.inference.moments import Event, Slices, cut_passages, find_events, listen
from soundspot.media.clips import write_flac

DOG, CAR, BIRD = np.eye(3)


def slices(*heard: tuple[float, np.ndarray], seconds: float | None = None) -> Slices:
    loud = np.array([level for level, _ in heard])
    length = len(heard) / 2 if seconds is None else seconds
    return Slices(length, 1.4 * loud, loud, np.array([kind for _, kind in heard]))


def test_a_change_of_what_is_heard_ends_an_event():
    heard = slices((0.1, DOG), (0.3, DOG), (0.5, CAR), (0.2, CAR), (0.2, CAR))
    # Loudness added up: 0.9 of the car, 0.4 of the dog.
    assert find_events(heard, 2) == [Event(1.0, 2.5, 1.25), Event(0.0, 1.0, 0.75)]
    assert find_events(heard, 1) == [Event(1.0, 2.5, 1.25)]


def test_a_pause_ends_an_event_and_the_same_sound_is_not_two_sources():
    quiet = 0.5 * 10 ** (-31 / 20)
    heard = slices((0.5, DOG), (quiet, DOG), (0.3, DOG), (0.2, BIRD))
    assert find_events(heard, 3) == [Event(0.0, 0.5, 0.25), Event(1.5, 2.0, 1.75)]
    louder = 0.5 * 10 ** (-29 / 20)  # not 30 dB below the loudest: no pause
    heard = slices((0.5, DOG), (louder, DOG), (0.3, DOG), (0.2, BIRD))
    assert find_events(heard, 1) == [Event(0.0, 1.5, 0.25)]


def test_scores_that_drift_apart_end_an_event():
    between = DOG + 0.9 * CAR
    heard = slices((0.4, DOG), (0.3, between), (0.2, CAR))
    # The middle is like the dog (cosine 0.74); the car is not like the two added up (0.41).
    assert find_events(heard, 3)[0] == Event(0.0, 1.0, 0.25)


@pytest.mark.parametrize(("cosine", "events"), [(0.49, 2), (0.51, 1)])
def test_sounds_are_one_from_a_cosine_of_one_half(cosine, events):
    other = cosine * DOG + (1 - cosine**2) ** 0.5 * CAR
    together = slices((0.4, DOG), (0.3, other))
    assert len(find_events(together, 3)) == events
    apart = slices((0.4, DOG), (0.0, BIRD), (0.3, other))
    assert len(find_events(apart, 3)) == events


def test_without_names_only_pauses_tell_sounds_apart():
    nothing = np.zeros(0)
    heard = slices((0.2, nothing), (0.3, nothing), (0.0, nothing), (0.1, nothing))
    assert find_events(heard, 5) == [Event(0.0, 1.0, 0.75), Event(1.5, 2.0, 1.75)]


def test_events_end_with_the_sound():
    heard = slices((0.1, DOG), (0.3, DOG), seconds=0.83)
    assert find_events(heard, 1) == [Event(0.0, 0.83, 0.75)]
    assert find_events(slices((0.3, DOG), seconds=0.2), 1) == [Event(0.0, 0.2, 0.2)]


@pytest.mark.parametrize(
    ("event", "seconds", "middle"),
    [
        (Event(2.0, 3.5, 2.25), 1.5, 2.75),  # all of it
        (Event(2.0, 9.0, 5.25), 3.0, 5.25),  # the 3 s around the loudest
        (Event(2.0, 9.0, 2.25), 3.0, 3.5),  # but nothing of what came before
        (Event(2.0, 9.0, 8.75), 3.0, 7.5),
    ],
)
def test_what_is_heard_of_an_event(event, seconds, middle):
    assert (event.heard, event.middle) == (seconds, middle)


def test_a_timeline_has_every_passage_and_cuts_long_ones():
    heard = slices(*[(0.3, DOG)] * 11, (0.9, CAR), (0.0, CAR), (0.2, DOG))
    spans = [(event.start, event.end) for event in cut_passages(heard)]
    assert spans == [(0.0, 2.5), (2.5, 5.5), (5.5, 6.0), (6.5, 7.0)]


def test_silence_and_bad_counts_are_refused():
    with pytest.raises(SoundspotError):
        find_events(slices((0.0, DOG), (0.0, CAR)), 2)
    with pytest.raises(SoundspotError):
        find_events(slices((moments.QUIET / 2, DOG)), 2)
    with pytest.raises(SoundspotError):
        find_events(slices((0.5, DOG)), 0)


def test_listening_gives_a_level_and_a_name_to_every_half_second(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(moments, "CHUNK", 3)  # 2.3 s are 5 slices: a full chunk and a rest
    time = np.arange(36_800) / 16_000
    wave = np.where(time < 1, 0.5, 0.1) * np.sin(2 * np.pi * 400 * time)
    write_flac(tmp_path / "s.flac", wave.astype(np.float32))

    def classify(sounds):
        assert sounds.shape[1] == 16_000
        return np.ptp(sounds, axis=1, keepdims=True)

    heard = listen(tmp_path / "s.flac", 2.3, classify)
    np.testing.assert_allclose(heard.peak, [0.5, 0.5, 0.1, 0.1, 0.1], atol=2e-3)
    np.testing.assert_allclose(heard.rms, heard.peak / np.sqrt(2), atol=2e-3)
    assert heard.classes.shape == (5, 1)


def test_a_sound_that_ends_before_the_pictures_has_fewer_slices(tmp_path: Path):
    write_flac(tmp_path / "s.flac", 0.5 * np.sin(np.arange(16_000) / 7).astype(np.float32))
    heard = listen(tmp_path / "s.flac", 30.0, lambda sounds: np.ones((len(sounds), 1), np.float32))
    assert len(heard.peak) == 3  # the last one begins where the sound ends: a slack of media's
