"""From scores to the rows of a report: every contender, protocol and interval.

Axes: n pairs with a visible source, m independent units (pairs, or groups such as
duets), h w the map as a model made it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float

from soundspot.evaluation import listening
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import MIXED
from soundspot.evaluation.intervals import PairedTest, bootstrap, paired_test
from soundspot.evaluation.listening import mean_of_group, worst_of_group
from soundspot.evaluation.metrics import PerPair, RawMaps, Truths, auc, ciou_at, pair_auc
from soundspot.evaluation.protocols import is_flat

MAIN = "sspl"
"""The paper's protocol, used for figures, tables by class and size, and paired tests."""

LARGE = 0.03  # of the frame: what a truth covers that a map on a coarse grid can hit
Kind = Literal["model", "maps", "trivial"]


@dataclass(frozen=True)
class Row:
    """One row of the results; numbers are fractions, low and high the ends of 95 % intervals.

    `listening` holds peak_in_box with its interval; where pictures have several sounds also iiou
    and map_correlation, of duets peak_side and both_sides, of other groups flips and,
    of truths of at least LARGE of the frame, peak_in_box_large and flips_large.
    """

    model: str
    kind: Kind
    benchmark: str
    protocol: str
    n: int
    missing: int
    ciou: float
    ciou_low: float
    ciou_high: float
    auc: float
    auc_low: float
    auc_high: float
    listening: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Contender:
    """A model, a folder of maps or a baseline, on the evaluated pairs.

    Attributes:
        scores: Protocol -> cIoU of each pair.
        maps: None for baselines that are masks.
        found: Where sounds were mixed: the maps of a picture before they are matched to its sounds
            by their names; those of `maps` where nothing else is known.
    """

    name: str
    kind: Kind
    scores: Mapping[str, PerPair]
    maps: RawMaps | None = None
    found: RawMaps | None = None


@dataclass(frozen=True)
class Comparison:
    """The first model against another, by protocol `sspl`."""

    first: str
    other: str
    measure: str
    test: PairedTest


def rows_of(
    contender: Contender, benchmark: str, items: Sequence[BenchmarkItem], truths: Truths, lost: int
) -> list[Row]:
    """The rows of a contender, one per protocol; `lost` pairs were not evaluated."""
    groups = [item.group for item in items if item.group is not None]
    heard = {}
    if contender.maps is not None:
        heard = _listening(contender.maps, items, groups, truths)
        if benchmark in MIXED:
            found = contender.maps if contender.found is None else contender.found
            heard |= _mixed(contender.maps, found, contender.scores[MAIN], truths, groups)
    rows = []
    for protocol, scores in contender.scores.items():
        ciou, curve = (bootstrap(values) for values in _units(scores, groups))
        instances = {} if not groups else _summary("iiou", worst_of_group(scores >= 0.5, groups))
        rows.append(
            Row(
                model=contender.name,
                kind=contender.kind,
                benchmark=benchmark,
                protocol=protocol,
                n=len(scores),
                missing=lost,
                ciou=ciou_at(scores),
                ciou_low=ciou.low,
                ciou_high=ciou.high,
                auc=auc(scores),
                auc_low=curve.low,
                auc_high=curve.high,
                listening=heard | instances,
            )
        )
    return rows


def _units(
    scores: PerPair, groups: Sequence[str]
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
    """Success and contribution to the AUC of each independent unit: a pair, or a duet."""
    success, area = (scores >= 0.5).astype(np.float64), pair_auc(scores)
    if not groups:
        return success, area
    return mean_of_group(success, groups), mean_of_group(area, groups)


def _listening(
    maps: RawMaps, items: Sequence[BenchmarkItem], groups: Sequence[str], truths: Truths
) -> dict[str, float]:
    """Where is the peak, and does it listen? Each measure with its interval over groups."""
    on_truth = listening.peak_in_truth(maps, truths)
    if not groups:
        return _summary("peak_in_box", on_truth.astype(np.float64))
    correlation = listening.correlation_across_sounds(maps, groups)
    heard = _summary("peak_in_box", mean_of_group(on_truth, groups))
    heard |= _summary("map_correlation", correlation[np.isfinite(correlation)])
    sides = [item.side for item in items if item.side is not None]
    if not sides:
        for name, least in (("", 0.0), ("_large", LARGE)):
            right, flips = listening.only_own_truth(maps, truths, groups, least)
            heard |= _summary(f"peak_in_box{name}", right) | _summary(f"flips{name}", flips)
        return heard
    on_side = listening.peak_on_side(maps, sides)
    heard |= _summary("peak_side", mean_of_group(on_side, groups))
    return heard | _summary("both_sides", worst_of_group(on_side, groups))


def _mixed(
    maps: RawMaps, found: RawMaps, scores: PerPair, truths: Truths, groups: Sequence[str]
) -> dict[str, float]:
    """Are all sounds of a mixture found, each in its place?"""
    on_truth = listening.peak_in_truth(maps, truths)
    given = ~is_flat(found)
    both = _summary("both_found", worst_of_group(on_truth, groups))
    both |= _summary("precision", on_truth[~is_flat(maps)].sum(keepdims=True) / max(given.sum(), 1))
    precise = listening.pixel_precision(maps, truths)
    both |= _summary("cap", mean_of_group(precise, groups))
    both |= _summary("piap", listening.best_order(found, truths, groups))
    return both | _summary("ciou_03", mean_of_group(scores, groups) >= 0.3)


def _summary(name: str, values: listening.Values) -> dict[str, float]:
    if not len(values):
        return {}
    ends = bootstrap(values.astype(np.float64))
    return {name: float(values.mean()), f"{name}_low": ends.low, f"{name}_high": ends.high}


def compare_contenders(
    contenders: Sequence[Contender], groups: Sequence[str]
) -> tuple[Comparison, ...]:
    """The first model against each of the others, on the same pairs (or groups)."""
    units = [_units(contender.scores[MAIN], groups) for contender in contenders]
    return tuple(
        Comparison(contenders[0].name, other.name, measure, paired_test(a, b))
        for other, theirs in zip(contenders[1:], units[1:], strict=True)
        for measure, a, b in zip(("ciou", "auc"), units[0], theirs, strict=True)
    )
