import numpy as np

from soundspot.common.arrays import min_max


def test_every_map_reaches_zero_and_one_and_a_flat_one_is_zero():
    maps = np.array([[[-3.0, 1.0], [-1.0, 1.0]], [[0.3, 0.3], [0.3, 0.3]]])
    assert min_max(maps).tolist() == [[[0, 1], [0.5, 1]], [[0, 0], [0, 0]]]
    assert min_max(maps[0]).tolist() == [[0, 1], [0.5, 1]]
    assert maps[0, 0, 0] == -3  # the input stays


def test_given_ends_clip_and_near_flat_maps_are_zero():
    values = np.array([[-1.0, 0.0, 1.0, 3.0]], np.float32)
    assert min_max(values, 0.0, 2.0).tolist() == [[0, 0, 0.5, 1]]
    assert min_max(values, 0.0, 2.0).dtype == np.float32
    assert not min_max(values * np.float32(1e-7), flat=1e-6).any()
    assert not min_max(values, 0.5, 0.5).any()
