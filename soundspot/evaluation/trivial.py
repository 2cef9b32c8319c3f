"""Baselines that need no model, shown beside every model, and what they add to a model's maps.

A centered disc, the whole frame, a random map, what stands out in the picture regardless of the
sound, and the best score that each protocol allows.

Axes: n pairs, c channels, h w cells of a feature map, s side of the evaluation map.
"""

import math

import numpy as np
from jaxtyping import Bool, Float, Float32

from soundspot.common.arrays import min_max
from soundspot.evaluation.metrics import SIZE, PerPair, RawMaps, Truths, areas, ciou
from soundspot.evaluation.protocols import PROTOCOLS, score
from soundspot.evaluation.rows import Contender

ORACLE = "oracle ceiling"

Scores = dict[str, PerPair]


def disc(size: int = SIZE, share: float = 0.5) -> Bool[np.ndarray, "s s"]:
    """A disc around the center of the frame (pixel 111.5 of 224) that covers a share of it."""
    offset = np.arange(size) - (size - 1) / 2
    return offset[:, None] ** 2 + offset**2 <= share * size**2 / math.pi


def nearness(pairs: int, cells: int = 15) -> Float32[np.ndarray, "n h w"]:
    """How near every place is to the middle of the frame, where the peak of these maps lies."""
    offset = np.arange(cells) - (cells - 1) / 2
    map = -np.hypot(offset[:, None], offset).astype(np.float32)
    return np.broadcast_to(map, (pairs, cells, cells))


def random_maps(pairs: int, cells: int = 14, seed: int = 0) -> Float32[np.ndarray, "n h w"]:
    """Maps of independent uniform noise."""
    return np.random.default_rng(seed).random((pairs, cells, cells), dtype=np.float32)


def saliency(features: Float[np.ndarray, "n c h w"]) -> RawMaps:
    """Maps from the picture alone: the mean absolute feature over the channels."""
    return np.asarray(np.abs(features).mean(axis=1))


def ceiling(truths: Truths) -> Scores:
    """The best possible cIoU under each protocol, by an oracle whose map has no ties.

    The best mask of k pixels has the k pixels where g is highest. A protocol that always keeps half
    of the frame cannot fit a small object: its ceiling is far below 1. (With ties `> median` may
    keep fewer pixels and `>= median` more; the maps of a network have hardly any.)
    """
    present = truths.astype(np.bool_, copy=False)
    truth_areas = areas(present)
    pixels = truths.shape[1] * truths.shape[2]
    total = truths.sum(axis=(1, 2), dtype=np.float64)
    best = {}
    for name, protocol in PROTOCOLS.items():
        kept = protocol.best_area(truth_areas, pixels)
        agreed = total.copy()
        for i in np.flatnonzero(kept < truth_areas):  # the mask cannot cover the whole truth
            agreed[i] = np.sort(truths[i], axis=None)[pixels - kept[i] :].sum(dtype=np.float64)
        whole = total + np.maximum(kept - truth_areas, 0)
        best[name] = np.divide(agreed, whole, out=np.zeros(len(truths)), where=whole > 0)
    return best


def baselines(truths: Truths, saliency_maps: RawMaps | None = None) -> list[Contender]:
    """What scores on a benchmark without a model; image saliency needs its maps."""
    size, pairs = truths.shape[-1], len(truths)

    def of_mask(mask: Bool[np.ndarray, "s s"]) -> Scores:
        """A mask already, so it scores the same under every protocol."""
        return dict.fromkeys(PROTOCOLS, ciou(np.broadcast_to(mask, truths.shape), truths))

    noise = random_maps(pairs)
    found = [
        Contender("centered disc", "trivial", of_mask(disc(size)), nearness(pairs)),
        Contender("full frame", "trivial", of_mask(np.ones((size, size), dtype=np.bool_))),
        Contender("random map", "trivial", score(noise, truths), noise),
    ]
    if saliency_maps is not None:
        scores = score(saliency_maps, truths)
        found.append(Contender("image saliency", "trivial", scores, saliency_maps))
    return [*found, Contender(ORACLE, "trivial", ceiling(truths))]


def guide(maps: RawMaps, saliency_maps: RawMaps, weight: float) -> RawMaps:
    """Object guidance: both stretched to 0..1 and blended."""
    return (1 - weight) * min_max(maps) + weight * min_max(saliency_maps)
