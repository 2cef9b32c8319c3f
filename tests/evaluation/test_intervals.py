import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.intervals import Interval, bootstrap, over_seeds, paired_test


def close(interval, low, high, by):
    return interval.low == pytest.approx(low, abs=by) and interval.high == pytest.approx(
        high, abs=by
    )


def test_constant_values_leave_no_doubt():
    assert bootstrap(np.full(7, 0.25)) == Interval(0.25, 0.25)
    assert bootstrap(np.array([0.3])) == Interval(0.3, 0.3)


def test_the_shortcut_is_the_plain_bootstrap():
    rng = np.random.default_rng(2)
    values = np.round(rng.random(211), 1)
    plain = rng.choice(values, size=(20_000, 211)).mean(axis=1)
    low, high = np.quantile(plain, [0.025, 0.975])
    assert close(bootstrap(values, resamples=20_000), low, high, by=0.002)


def test_spread_over_seeds_by_hand():
    spread = over_seeds([1.0, 2.0, 3.0])
    assert (spread.mean, spread.std, spread.seeds) == (2, 1, 3)
    assert over_seeds([0.7]).std is None


def test_identical_models_do_not_differ():
    scores = np.array([0.1, 0.7, 0.5])
    test = paired_test(scores, scores)
    assert (test.difference, test.interval, test.p) == (0, Interval(0.0, 0.0), 1)


def test_p_value_by_hand():
    # ten pairs, all better by 1: of 2^10 ways to flip signs two are as extreme
    test = paired_test(np.ones(10), np.zeros(10), resamples=200_000)
    assert test.difference == 1
    assert test.p == pytest.approx(2 / 1024, abs=3e-4)


def test_p_is_never_zero():
    # No flip in ten of forty signs is as extreme; the data themselves count as one.
    assert paired_test(np.ones(40), np.zeros(40), resamples=10).p == pytest.approx(1 / 11)


def test_ties_count_as_extreme():
    # differences 1, 1, -1: sum 1; sums of flips are 3, 1, -1, -3: all at least as far out
    assert paired_test(np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])).p == 1


def test_bad_input_is_refused():
    with pytest.raises(SoundspotError):
        paired_test(np.zeros(3), np.zeros(2))
    with pytest.raises(SoundspotError):
        bootstrap(np.array([]))
    with pytest.raises(SoundspotError):
        over_seeds([])
    with pytest.raises(SoundspotError):
        bootstrap(np.array([0.1, np.nan]))
