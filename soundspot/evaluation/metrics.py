"""How a localization is scored: the truth as a map, cIoU, and summaries over many pairs.

Axes: n pairs, s side of the square evaluation map (224 pixels), t thresholds.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from soundspot.common.errors import SoundspotError
from soundspot.data.manifest import Box

SIZE = 224
"""Side of the square on which every map is evaluated, in pixels."""

THRESHOLDS: Float[np.ndarray, "t=21"] = np.arange(21) / 20
"""cIoU thresholds of the success curve: 0, 0.05, ..., 1."""

PerPair = Float[np.ndarray, "n"]
RawMaps = Float[np.ndarray, "n h w"]
"""Maps as a model made them, all of one size."""

Truths = Bool[np.ndarray, "n s s"] | Float[np.ndarray, "n s s"]
"""Consensus maps g: bool if a pixel is either truth or not, float if annotators vote."""


def box_pixels(box: Box, size: int = SIZE) -> tuple[int, int, int, int]:
    """Pixel corners of a box by the field's rule: int(size * max(v, 0)), ends excluded.

    VGG-SS has corners at -2.9e16; the max turns them into 0, which makes the box degenerate.
    """
    x1, y1, x2, y2 = (min(size, int(size * max(v, 0.0))) for v in box)
    return x1, y1, x2, y2


def is_degenerate(box: Box, size: int = SIZE) -> bool:
    """Whether a box covers no pixel."""
    x1, y1, x2, y2 = box_pixels(box, size)
    return x2 <= x1 or y2 <= y1


def union_map(boxes: Sequence[Box], size: int = SIZE) -> Bool[np.ndarray, "s s"]:
    """Union of the boxes (VGG-SS, ESC-VOC, AVSBench); empty if no box is usable."""
    union = np.zeros((size, size), dtype=np.bool_)
    for box in boxes:
        x1, y1, x2, y2 = box_pixels(box, size)
        union[y1:y2, x1:x2] = True
    return union


def truth_maps(
    annotations: Sequence[Sequence[Sequence[Box]]], needed: int = 1, size: int = SIZE
) -> Truths:
    """The truth of many pairs: unions of all boxes (needed = 1), otherwise votes.

    The union of an annotator's boxes is one vote, and g = min(1, votes / needed).

    Args:
        annotations: The boxes of each annotator for each pair, as in `Pair.boxes`.
        needed: Votes that make a pixel certain: 2 for SoundNet-Flickr, 1 elsewhere.
        size: Side of the maps in pixels.
    """
    dtype = np.bool_ if needed == 1 else np.float32
    truths: Truths = np.zeros((len(annotations), size, size), dtype=dtype)
    for truth, annotators in zip(truths, annotations, strict=True):
        if needed == 1:
            truth[:] = union_map([box for boxes in annotators for box in boxes], size)
        else:
            votes = np.sum([union_map(boxes, size) for boxes in annotators], axis=0)
            truth[:] = (votes / needed).clip(max=1)
    return truths


def ciou(masks: Bool[np.ndarray, "n s s"], truths: Truths) -> PerPair:
    """Consensus IoU of each pair: sum(P*g) / (sum(g) + sum(P*[g=0])).

    A pair with an empty truth always scores 0: it counts as a failure.
    """
    present = truths.astype(np.bool_, copy=False)
    hits = areas(masks & present)
    false = areas(masks) - hits
    if truths.dtype == np.bool_:
        agreed, total = hits, areas(present)
    else:
        agreed = (masks * truths).sum(axis=(1, 2), dtype=np.float64)
        total = truths.sum(axis=(1, 2), dtype=np.float64)
    whole = total + false
    scores = np.zeros(len(masks))
    np.divide(agreed, whole, out=scores, where=whole > 0)
    return scores


def areas(masks: Bool[np.ndarray, "n s s"]) -> Int[np.ndarray, "n"]:
    """Pixels in each mask."""
    # With axes count_nonzero sums integers; map by map it counts bytes, several times faster.
    return np.array([np.count_nonzero(mask) for mask in masks], dtype=np.int64)


def success_curve(scores: PerPair) -> Float[np.ndarray, "t"]:
    """Share of pairs whose cIoU reaches each threshold (>=, as is usual in the field)."""
    return np.asarray((_some(scores)[:, None] >= THRESHOLDS).mean(axis=0))


def ciou_at(scores: PerPair, threshold: float = 0.5) -> float:
    """The headline cIoU: share of pairs whose cIoU is at least the threshold."""
    return float((_some(scores) >= threshold).mean())


def auc(scores: PerPair) -> float:
    """Area under the success curve at 0, 0.05, ..., 1, by trapezoids."""
    return float(pair_auc(_some(scores)).mean())


def pair_auc(scores: PerPair) -> PerPair:
    """What each pair contributes: the AUC is the mean of these.

    The success curve is a mean over pairs and the trapezoidal rule is linear, so they commute.
    Intervals and paired tests need the value of each pair.
    """
    reached = (scores[:, None] >= THRESHOLDS).astype(np.float64)
    return np.asarray((reached[:, 1:] + reached[:, :-1]).mean(axis=1) / 2)


def _some(scores: PerPair) -> PerPair:
    if not len(scores):
        raise SoundspotError("expected at least one cIoU, but no pair was evaluated")
    return scores
