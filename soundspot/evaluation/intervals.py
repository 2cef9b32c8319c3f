"""How certain a number is: intervals over pairs, spread over seeds, a test of two models.

cIoU@0.5 and AUC are both means of one value per pair (a success, or `metrics.pair_auc`), so one
bootstrap and one paired test serve both. Pairs must be independent: for duets pass one value per
group, since the two sounds of a duet share their picture.

Axes: n independent pairs (or groups); n_b those of a second model, which must be the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from soundspot.common.errors import SoundspotError

RESAMPLES = 10_000
ENDS = (1 - 0.95) / 2, (1 + 0.95) / 2  # of 95 % intervals
BLOCK = 1 << 22  # random counts in memory at once


@dataclass(frozen=True)
class Interval:
    """Ends of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; a single seed has no deviation."""

    mean: float
    std: float | None
    seeds: int


@dataclass(frozen=True)
class PairedTest:
    """Two models on the same pairs: the mean of a - b, with its 95 % bootstrap interval.

    `p` is two-sided, of the sign-flip permutation test: how often chance alone, swapping the two
    models pair by pair, gives a difference at least as large.
    """

    difference: float
    interval: Interval
    p: float


def bootstrap(values: Float[np.ndarray, "n"], resamples: int = RESAMPLES) -> Interval:
    """Percentile bootstrap interval of the mean of one value per pair, the same every time."""
    _check(values)
    rng = np.random.default_rng(0)
    # Drawing n pairs with replacement amounts to drawing how often each distinct value occurs.
    # Scores have few distinct values, so this is the same bootstrap, hundreds of times cheaper.
    distinct, counts = np.unique(values, return_counts=True)
    step = max(1, BLOCK // len(distinct))
    means = []
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = rng.multinomial(len(values), counts / len(values), size=size)
        means.append(drawn @ distinct / len(values))
    low, high = np.quantile(np.concatenate(means), ENDS)
    return Interval(float(low), float(high))


def over_seeds(values: Sequence[float]) -> Spread:
    """Mean and standard deviation (n - 1) of a number over the seeds of an experiment."""
    _check(np.asarray(values, dtype=np.float64))
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(float(np.mean(values)), std, len(values))


def paired_test(
    a: Float[np.ndarray, "n"], b: Float[np.ndarray, "n_b"], resamples: int = RESAMPLES
) -> PairedTest:
    """Compare two models by one value per pair, both in the same order of pairs."""
    if len(a) != len(b):
        raise SoundspotError(f"a paired test needs the same pairs, got {len(a):,} and {len(b):,}")
    difference = a - b
    interval = bootstrap(difference, resamples)
    rng = np.random.default_rng(0)
    # Flip signs at random: of m pairs that differ by d, Binomial(m, 1/2) keep their sign.
    total = np.zeros(resamples)
    sizes, counts = np.unique(np.abs(difference), return_counts=True)
    for size, count in zip(sizes, counts, strict=True):
        total += size * (2 * rng.binomial(count, 0.5, size=resamples) - count)
    observed = abs(difference.sum())
    extreme = np.count_nonzero(np.abs(total) >= observed * (1 - 1e-9))  # a tie counts as extreme
    # The observed data count as one of the permutations, so p is never 0.
    return PairedTest(float(difference.mean()), interval, (extreme + 1) / (resamples + 1))


def _check(values: Float[np.ndarray, "n"]) -> None:
    if not len(values):
        raise SoundspotError("an interval needs at least one value, got none")
    if not np.isfinite(values).all():
        raise SoundspotError("an interval needs finite values, got NaN or infinity")
