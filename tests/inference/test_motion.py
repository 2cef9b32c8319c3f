"""motion.py: what moves is found under a camera that changes everything."""

import numpy as np

from soundspot.inference.maps import motion_map


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
