import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.metrics import (
    THRESHOLDS,
    auc,
    box_pixels,
    ciou,
    ciou_at,
    is_degenerate,
    pair_auc,
    success_curve,
    truth_maps,
    union_map,
)

# A corner that VGG-SS really holds.
BROKEN = -2.8823037615171176e16


def pixels(size, *marked):
    mask = np.zeros((size, size), dtype=bool)
    for row, column in marked:
        mask[row, column] = True
    return mask


def test_flickr_corners_are_the_published_ones():
    for v in range(257):
        fraction = v / 256
        assert box_pixels((fraction,) * 4)[0] == int(224 * v / 256)


def test_corners_are_cut_down_and_kept_inside():
    assert box_pixels((0.403125, 0.253125, 0.6, 0.75)) == (90, 56, 134, 168)
    assert box_pixels((-0.5, BROKEN, 1.0, 1.7)) == (0, 0, 224, 224)


@pytest.mark.parametrize(
    "box",
    [
        (0.5, 0.1, 0.5, 0.9),  # no width
        (0.1, 1.0, 0.7, 1.0),  # no height
        (0.5, 0.3, BROKEN, 0.9),
        (0.8, 0.1, 0.2, 0.9),  # reversed
        (0.5, 0.1, 0.5009, 0.9),  # thinner than a pixel
    ],
)
def test_degenerate_boxes_mark_nothing(box):
    assert is_degenerate(box)
    assert not union_map([box]).any()


def test_union_counts_overlaps_once_and_knows_rows_from_columns():
    # 5 pixels: columns 1-2, rows 2-4; columns 2-3, rows 0-2
    union = union_map([(0.2, 0.4, 0.6, 1.0), (0.4, 0.0, 0.8, 0.6)], size=5)
    expected = [
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [0, 1, 1, 1, 0],
        [0, 1, 1, 0, 0],
        [0, 1, 1, 0, 0],
    ]
    assert union.astype(int).tolist() == expected


def test_votes_need_two_annotators_and_stop_at_one():
    left, everything = (0.0, 0.0, 0.4, 1.0), (0.0, 0.0, 1.0, 1.0)
    votes = truth_maps([[[left]] * 3, [[left], [everything]], [[left, left]]], needed=2, size=5)
    assert votes[:, 0, 1:3].tolist() == [[1, 0], [1, 0.5], [0.5, 0]]


def test_truth_maps_are_unions_or_votes():
    first, second = (0.0, 0.0, 0.2, 0.2), (0.2, 0.0, 0.4, 0.2)
    union = truth_maps([[[first], [second]], []], size=5)
    assert union.dtype == bool
    assert union[:, 0, :3].tolist() == [[True, True, False], [False] * 3]
    assert union.any(axis=(1, 2)).tolist() == [True, False]
    votes = truth_maps([[[first], [first, second]]], needed=2, size=5)
    assert votes[:, 0, :3].tolist() == [[1, 0.5, 0]]


def test_ciou_of_a_union_by_hand():
    truth = pixels(3, (0, 0), (0, 1), (1, 0), (1, 1))
    mask = pixels(3, (0, 0), (0, 1), (2, 2))
    assert ciou(mask[None], truth[None]).tolist() == [2 / (4 + 1)]


def test_ciou_of_votes_by_hand():
    truth = np.array([[1, 1, 0.5], [0.5, 0, 0], [0, 0, 0]], dtype=np.float32)
    mask = pixels(3, (0, 0), (0, 2), (2, 1), (2, 2))
    # agreed 1 + 0.5, truth 3, false 2; the half-voted pixels are not false
    assert ciou(mask[None], truth[None]).tolist() == [1.5 / (3 + 2)]


def test_an_empty_truth_is_a_failure_whatever_is_predicted():
    masks = np.stack([np.zeros((3, 3), bool), np.ones((3, 3), bool)])
    assert ciou(masks, np.zeros((2, 3, 3), bool)).tolist() == [0, 0]
    assert ciou(masks, np.zeros((2, 3, 3), np.float32)).tolist() == [0, 0]


def test_success_is_at_least_the_threshold():
    scores = np.array([0.0, 0.15, 0.5, 1.0])
    curve = success_curve(scores)
    # 0.05 * 3 is more than 0.15 in binary: thresholds must be the numbers they are called.
    assert curve[:5].tolist() == [1, 0.75, 0.75, 0.75, 0.5]
    assert curve[[10, 11, 20]].tolist() == [0.5, 0.25, 0.25]
    assert ciou_at(scores) == 0.5
    assert ciou_at(scores, 0.51) == 0.25


def test_auc_by_hand():
    scores = np.array([0.0, 0.15, 0.5, 1.0])
    # k thresholds above 0 reached: k whole trapezoids and half of the next, of 20
    assert pair_auc(scores) == pytest.approx([0.5 / 20, 3.5 / 20, 10.5 / 20, 1])
    assert auc(scores) == pytest.approx(np.mean([0.025, 0.175, 0.525, 1]))
    assert auc(scores) == pytest.approx(np.trapezoid(success_curve(scores), THRESHOLDS))


def test_one_pair_is_enough_and_none_is_refused():
    assert ciou_at(np.array([0.7])) == 1
    for number in (ciou_at, auc, success_curve):
        with pytest.raises(SoundspotError):
            number(np.array([]))
