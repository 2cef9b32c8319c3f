"""Does it listen? Tests that salience alone cannot pass: several sources, and no source at all.

A group is one picture with several sounds, such as the two sides of a duet: a map that ignores the
sound is right for at most one of them.

Axes: n pairs, l those with a large truth, m groups or pairs within them, h w the map as a model
made it, s side of the evaluation map.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.metrics import PerPair, RawMaps, Truths
from soundspot.evaluation.protocols import evaluation_maps, is_flat

Side = Literal["left", "right"]
Values = PerPair | Bool[np.ndarray, "n"]


def by_group(groups: Sequence[str]) -> dict[str, Int[np.ndarray, "_"]]:
    """Group -> indices of its pairs, in order of appearance."""
    members: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    alone = [group for group, indices in members.items() if len(indices) < 2]
    if alone:
        raise SoundspotError(f"only one sound in {len(alone)} groups, the first is {alone[0]!r}")
    return {group: np.array(indices) for group, indices in members.items()}


def worst_of_group(values: Values, groups: Sequence[str]) -> Float[np.ndarray, "m"]:
    """The lowest value of each group: what all sounds of a picture reach.

    Of cIoU this is IIoU (pass it to `ciou_at` and `auc`), of successes `both_sides`.
    """
    return np.array([float(values[indices].min()) for indices in by_group(groups).values()])


def mean_of_group(values: Values, groups: Sequence[str]) -> Float[np.ndarray, "m"]:
    """The mean of each group: the independent unit for a bootstrap."""
    return np.array([float(values[indices].mean()) for indices in by_group(groups).values()])


def peaks(maps: RawMaps) -> Float[np.ndarray, "n 2"]:
    """The center of the highest (first, if tied) cell, x and y in 0..1; NaN if the map is flat."""
    height, width = maps.shape[1:]
    y, x = np.divmod(maps.reshape(len(maps), -1).argmax(axis=1), width)
    centers = np.stack([(x + 0.5) / width, (y + 0.5) / height], axis=1)
    centers[is_flat(maps)] = np.nan
    return centers


def peak_in_truth(maps: RawMaps, truths: Truths) -> Bool[np.ndarray, "n"]:
    """Whether the peak is where g > 0 (the pointing game); a flat map misses."""
    x, y = peaks(maps).T
    there = np.isfinite(x)
    column, row = ((np.where(there, v, 0) * truths.shape[-1]).astype(np.intp) for v in (x, y))
    return np.asarray(there & (truths[np.arange(len(truths)), row, column] > 0))


def only_own_truth(
    maps: RawMaps, truths: Truths, groups: Sequence[str], least: float = 0.0
) -> tuple[Bool[np.ndarray, "l"], Bool[np.ndarray, "m"]]:
    """Whether each peak is right, and whether the two peaks of each pair of sounds follow them.

    They do if both are in their own truth and neither is in the other's: a flip. Only truths of at
    least a share of the frame count, and pairs of those in one group.
    """
    large = truths.mean(axis=(1, 2)) >= least
    right = peak_in_truth(maps, truths)
    flips = []
    for indices in by_group(groups).values():
        for a, b in combinations(indices[large[indices]], 2):
            stray = peak_in_truth(maps[[a, b]], truths[[b, a]])
            flips.append(bool(right[a] and right[b] and not stray.any()))
    return right[large], np.array(flips, dtype=np.bool_)


def pixel_precision(maps: RawMaps, truths: Truths) -> PerPair:
    """The average precision of each map as a detector of its truth's pixels; 0 if it is flat.

    The mean over the classes that sound is CAP. (AP sums precision over steps of recall.)
    """
    found = np.zeros(len(maps))
    for i in np.flatnonzero(~is_flat(maps)):
        heat = evaluation_maps(maps[[i]], truths.shape[-1])[0].ravel()
        order = np.argsort(-heat, kind="stable")
        true = truths[i].ravel()[order] > 0
        last = np.flatnonzero(np.diff(heat[order], append=-np.inf))  # equal heat counts together
        hits = np.cumsum(true)[last]
        found[i] = (hits / (last + 1)) @ np.diff(hits, prepend=0) / max(hits[-1], 1)
    return found


def best_order(maps: RawMaps, truths: Truths, groups: Sequence[str]) -> Float[np.ndarray, "m"]:
    """PIAP: the pixel precision of each picture's maps, matched to its sounds as suits them best.

    One map for each sound: no map may serve for two.
    """
    best = []
    for indices in by_group(groups).values():
        orders = (pixel_precision(maps[list(o)], truths[indices]) for o in permutations(indices))
        best.append(max(float(order.mean()) for order in orders))
    return np.array(best)


def peak_on_side(maps: RawMaps, sides: Sequence[Side]) -> Bool[np.ndarray, "n"]:
    """Whether the peak is in the sounding half; on the border, or without a peak, it misses."""
    x = peaks(maps)[:, 0]
    return np.where([side == "left" for side in sides], x < 0.5, x > 0.5)


def correlation_across_sounds(maps: RawMaps, groups: Sequence[str]) -> Float[np.ndarray, "m"]:
    """Mean correlation of the maps under different sounds; 1 = deaf, NaN if a map is flat."""
    centered = maps.reshape(len(maps), -1).astype(np.float64)
    centered -= centered.mean(axis=1, keepdims=True)
    norm = np.where(is_flat(maps), np.nan, np.linalg.norm(centered, axis=1))
    unit = centered / norm[:, None]
    members = by_group(groups).values()
    return np.array(
        [np.mean([a @ b for a, b in combinations(unit[indices], 2)]) for indices in members]
    )


@dataclass(frozen=True)
class Extended:
    """Positives and negatives together (the extended protocol).

    `ap` is the area under the precision-recall curve, precision made monotone; `max_f1` is reached
    at the confidence `threshold`, to be chosen on validation data only; `loc_acc` is the share of
    the positives with cIoU >= 0.5, regardless of confidence.
    """

    ap: float
    max_f1: float
    threshold: float
    loc_acc: float
    positives: int
    negatives: int


def extended(confidence: PerPair, scores: PerPair, positive: Bool[np.ndarray, "n"]) -> Extended:
    """Score "is a source visible, and where" on pairs with and without one.

    A pair at or above the confidence threshold is a detection: true if a source is visible and
    cIoU >= 0.5, false otherwise (no source, or the wrong place). A positive below the threshold
    is a miss. Every distinct confidence is a threshold (released code samples some). The scores
    (cIoU) of pairs without a visible source are ignored.
    """
    positives = int(np.count_nonzero(positive))
    if not positives or positives == len(positive):
        raise SoundspotError("the extended protocol needs pairs with and without a visible source")
    if not np.isfinite(confidence).all():
        raise SoundspotError("expected finite confidences, got NaN or infinity")
    right = positive & (scores >= 0.5)
    order = np.argsort(-confidence, kind="stable")
    # Pairs of equal confidence pass the threshold together: read the counts after the last.
    last = np.flatnonzero(np.diff(confidence[order], append=-np.inf))
    true = np.cumsum(right[order])[last]
    missed = positives - np.cumsum(positive[order])[last]
    precision = true / (last + 1)
    recall = true / np.maximum(true + missed, 1)  # nothing true and nothing missed: recall 0
    f1 = 2 * precision * recall / np.maximum(precision + recall, np.finfo(float).tiny)
    monotone = np.maximum.accumulate(precision[::-1])[::-1]
    best = int(f1.argmax())
    return Extended(
        ap=float(monotone @ np.diff(recall, prepend=0.0)),
        max_f1=float(f1[best]),
        threshold=float(confidence[order][last[best]]),
        loc_acc=float(right[positive].mean()),
        positives=positives,
        negatives=len(positive) - positives,
    )
