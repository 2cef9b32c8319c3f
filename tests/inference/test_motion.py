"""motion.py: what moves is found under a camera that changes everything."""

import numpy as np

from soundspot.inference.maps import motion_map, onsets


def test_the_moving_part_is_hottest_also_when_the_whole_picture_flickers():
    film = np.full((7, 64, 64), 50, np.uint8)
    film[1::2, 40:48, 8:16] += 60
    film[::3] += 20  # the whole picture
    map = motion_map(film, 11, 13)
    y, x = divmod(int(map.argmax()), 13)
    assert (y, x) == (7, 2) and map.max() == 1 and map[0, -1] == 0


def test_nothing_moves_without_a_film_or_a_change():
    for film in (None, np.zeros((1, 64, 64), np.uint8), np.full((5, 64, 64), 9, np.uint8)):
        map = motion_map(film, 3, 5)
        assert map.shape == (3, 5) and not map.any()


def test_what_moves_as_the_sound_begins_counts_more():
    film = np.zeros((25, 64, 64), np.uint8)
    film[5:, 8:16, 8:16] = 90  # as a tap is heard
    film[15:, 40:48, 40:48] = 99  # a little more, but in silence
    sound = np.zeros(48_000, np.float32)
    sound[5 * 1_920 : 5 * 1_920 + 800] = np.sin(np.arange(800) / 2)
    assert onsets(sound, 25).argmax() == 4 and onsets(sound, 25).sum() == 1
    assert onsets(0 * sound, 25).tolist() == [1 / 24] * 24
    heard, seen = motion_map(film, 8, 8, sound), motion_map(film, 8, 8)
    assert heard.argmax() == 1 * 8 + 1 and seen.argmax() == 5 * 8 + 5
