import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.listening import (
    best_order,
    by_group,
    correlation_across_sounds,
    extended,
    only_own_truth,
    peak_in_truth,
    peak_on_side,
    peaks,
    pixel_precision,
    worst_of_group,
)
from soundspot.evaluation.metrics import ciou_at

LEFT = [[0, 9, 0, 0], [1, 1, 1, 0]]
RIGHT = [[0, 0, 0, 5], [0, 0, 3, 3]]
FLAT = [[2, 2, 2, 2], [2, 2, 2, 2]]


def maps_of(*maps):
    return np.array(maps, dtype=np.float32)


def test_groups_keep_their_order_and_need_two_sounds():
    assert {g: i.tolist() for g, i in by_group(["b", "a", "a", "b"]).items()} == {
        "b": [0, 3],
        "a": [1, 2],
    }
    with pytest.raises(SoundspotError):
        by_group(["a", "c", "a"])


def test_iiou_asks_for_every_source():
    scores = np.array([0.9, 0.6, 0.8, 0.4, 0.5, 0.5])
    groups = ["a", "b", "a", "b", "c", "c"]
    worst = worst_of_group(scores, groups)
    assert worst.tolist() == [0.8, 0.4, 0.5]
    assert ciou_at(worst) == 2 / 3


def test_of_tied_peaks_the_first_counts_and_a_flat_map_has_none():
    centers = peaks(maps_of([[0, 0, 0, 0], [0, 7, 0, 7]], FLAT))
    assert centers[0].tolist() == [1.5 / 4, 0.75]
    assert np.isnan(centers[1]).all()


def test_peak_on_the_sounding_side():
    maps = maps_of(LEFT, LEFT, RIGHT, RIGHT, FLAT, FLAT)
    sides = ["left", "right"] * 3
    assert peak_on_side(maps, sides).tolist() == [True, False, False, True, False, False]


def test_peak_in_truth():
    truths = np.zeros((3, 8, 8), dtype=bool)
    truths[:, 2, 3] = True  # the pixel under the center of the peak's cell: x 3/8, y 2/8
    maps = maps_of(LEFT, RIGHT, FLAT)
    assert peak_in_truth(maps, truths).tolist() == [True, False, False]
    assert peak_in_truth(maps, np.full((3, 8, 8), 0.5)).tolist() == [True, True, False]


def test_a_deaf_map_is_right_for_half_of_the_sounds_and_never_for_both():
    rng = np.random.default_rng(0)
    maps = np.repeat(rng.random((13, 6, 6)), 2, axis=0)
    sides = ["left", "right"] * 13
    groups = [f"duet-{i // 2}" for i in range(26)]
    hits = peak_on_side(maps, sides)
    assert hits.mean() == 0.5 and worst_of_group(hits, groups).max() == 0
    assert correlation_across_sounds(maps, groups) == pytest.approx(np.ones(13))


def test_correlation_is_the_mean_over_pairs_of_sounds():
    maps = maps_of([[0, 1]], [[5, 9]], [[0, 1]], [[0, 2]], [[1, 0]])
    correlation = correlation_across_sounds(maps, ["a", "a", "b", "b", "b"])
    assert correlation == pytest.approx([1, (1 - 1 - 1) / 3])
    assert np.isnan(correlation_across_sounds(maps_of(LEFT, FLAT), ["a", "a"])).all()


def test_extended_by_hand():
    confidence = np.array([0.6, 0.9, 0.5, 0.8, 0.7])
    positive = np.array([True, True, False, False, True])
    scores = np.array([0.7, 0.6, 1.0, 0.0, 0.4])  # the third is a negative: its cIoU is ignored
    summary = extended(confidence, scores, positive)
    # from the most confident: right, false, wrong place, right, false
    # precision 1, 1/2, 1/3, 2/4, 2/5; recall 1/3, 1/3, 1/2, 2/2, 2/2
    assert summary.ap == pytest.approx(1 * 1 / 3 + 0.5 * (1 / 2 - 1 / 3) + 0.5 * (1 - 1 / 2))
    assert summary.max_f1 == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert summary.threshold == 0.6
    assert summary.loc_acc == pytest.approx(2 / 3)
    assert (summary.positives, summary.negatives) == (3, 2)


def test_extended_treats_equal_confidences_as_one_threshold():
    positive = np.array([True, False])
    for order in ([0, 1], [1, 0]):
        summary = extended(np.full(2, 0.5), np.array([1.0, 0.0])[order], positive[order])
        assert summary.ap == pytest.approx(0.5)
        assert summary.max_f1 == pytest.approx(2 / 3)


def test_extended_needs_both_kinds():
    with pytest.raises(SoundspotError):
        extended(np.zeros(2), np.zeros(2), np.array([True, True]))
    with pytest.raises(SoundspotError):
        extended(np.array([np.nan, 0]), np.zeros(2), np.array([True, False]))


def test_a_flip_follows_each_sound_to_its_own_truth_only():
    truths = np.zeros((4, 8, 8), bool)
    truths[0, :, :4] = truths[1, :, 3:] = True  # they share a column
    truths[2, :2, :2] = truths[3, 6:, 6:] = True
    maps = np.zeros((4, 8, 8), np.float32)
    maps[0, 1, 1] = maps[1, 1, 3] = 1  # the second peak is in both
    maps[2, 0, 0] = maps[3, 7, 7] = 1
    right, flips = only_own_truth(maps, truths, list("aabb"))
    assert right.all() and flips.tolist() == [False, True]
    right, flips = only_own_truth(maps, truths, list("aabb"), least=0.1)
    assert len(right) == 2 and flips.tolist() == [False]


def test_pixel_precision_by_hand():
    truths = np.zeros((4, 2, 2), dtype=bool)
    truths[:, :, 0] = True
    maps = maps_of([[4, 3], [2, 1]], [[1, 2], [3, 4]], [[4, 4], [1, 1]], [[2, 2], [2, 2]])
    # Hits at ranks 1 and 3; at 2 and 4; one of two tied, then two of four; a flat map finds none.
    assert pixel_precision(maps, truths) == pytest.approx([5 / 6, 1 / 2, 1 / 2, 0])


def test_no_map_serves_for_two_sounds():
    truths = np.zeros((2, 2, 2), dtype=bool)
    truths[0, :, 0] = truths[1, :, 1] = True
    left, right = [[1, 0]] * 2, [[0, 1]] * 2
    assert best_order(maps_of(right, left), truths, ["a", "a"]).tolist() == [1]
    assert best_order(maps_of(right, right), truths, ["a", "a"]).tolist() == [0.75]
