"""The field's rules for turning a map into a mask, all scored in one pass.

Every protocol first resizes the map to 224x224 (bilinear, pixel centers aligned: what other
codebases call align_corners=False) and stretches it to [0, 1] by its own minimum and maximum.
They differ in the level at which the map is cut, and in what happens to pixels at that level.

Axes: n pairs, h w the map as a model made it, s side of the evaluation map, p = s * s pixels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Bool, Float32, Int

from soundspot.common.arrays import min_max
from soundspot.common.errors import SoundspotError
from soundspot.evaluation.metrics import PerPair, RawMaps, Truths, areas, ciou

CHUNK = 4  # maps at a time: their pixels fit the processor's cache

Maps = Float32[np.ndarray, "n s s"]
Levels = Float32[np.ndarray, "n"]
Masks = Bool[np.ndarray, "n s s"]
Areas = Int[np.ndarray, "n"]


@dataclass(frozen=True)
class Protocol:
    """A named rule from stretched maps to masks.

    Attributes:
        level: Where each map is cut; it may look at the truth (`adaptive` does).
        keep: Which pixels remain, given the maps, their levels and the truths.
        best_area: Number of pixels in the best possible mask of a map without ties, given the areas
            of the truths and the number of pixels in a map: the protocol's ceiling.
    """

    name: str
    rule: str
    level: Callable[[Maps, Truths], Levels]
    keep: Callable[[Maps, Levels, Truths], Masks]
    best_area: Callable[[Areas, int], Areas]


def score(maps: RawMaps, truths: Truths) -> dict[str, PerPair]:
    """The cIoU of every pair under every protocol, from one pass over the maps.

    Args:
        maps: Of any one size.
        truths: Consensus maps; their size is the size of the evaluation.

    Returns:
        Protocol name -> cIoU of each pair. Pairs with an empty truth score 0.
    """
    broken = np.flatnonzero(~np.isfinite(maps).all(axis=(1, 2)))
    if len(broken):
        raise SoundspotError(
            f"expected finite maps, but {len(broken)} of {len(maps)} contain NaN or infinity, "
            f"the first is map {broken[0]}"
        )
    scores = {name: np.zeros(len(maps)) for name in PROTOCOLS}
    for start in range(0, len(maps), CHUNK):
        part = slice(start, start + CHUNK)
        truth = truths[part]
        unit = evaluation_maps(maps[part], truth.shape[-1])
        # Protocols that cut at the same level (lvs, ezvsl) compute it once.
        rules = {protocol.level for protocol in PROTOCOLS.values()}
        levels = {rule: rule(unit, truth) for rule in rules}
        for name, protocol in PROTOCOLS.items():
            masks = protocol.keep(unit, levels[protocol.level], truth)
            scores[name][part] = ciou(masks, truth)
    return scores


def evaluation_maps(maps: RawMaps, size: int) -> Maps:
    """Maps as the protocols see them: resized to (size, size), then stretched to [0, 1].

    Stretching before the resize only changes rounding (bilinear weights sum to 1): it makes a flat
    map exactly 0, and the result independent of the map's offset and scale.
    """
    return min_max(resize_maps(min_max(maps).astype(np.float32), size))


def resize_maps(maps: Float32[np.ndarray, "n h w"], size: int) -> Maps:
    """Bilinear resize to (size, size), as a product with weight matrices."""
    rows, columns = (_weights(cells, size) for cells in maps.shape[1:])
    return np.asarray(rows @ (maps @ columns.T))


@cache
def _weights(cells: int, size: int) -> Float32[np.ndarray, "s cells"]:
    """Row i holds the weights of the two cells nearest to the center of pixel i."""
    center = np.clip((np.arange(size) + 0.5) * cells / size - 0.5, 0, cells - 1)
    low = center.astype(np.intp)
    weights = np.zeros((size, cells), dtype=np.float32)
    pixel = np.arange(size)
    weights[pixel, np.minimum(low + 1, cells - 1)] = center - low
    weights[pixel, low] = 1 - (center - low)  # last: at the far edge both are the same cell
    weights.flags.writeable = False  # shared by all callers
    return weights


def is_flat(maps: RawMaps) -> Bool[np.ndarray, "n"]:
    """Which maps are constant, and so point nowhere.

    A flat map keeps no pixel under `sspl` and `lvs`, every pixel under `ezvsl`, and the first
    pixels in reading order under `adaptive`.
    """
    return np.asarray(maps.min(axis=(1, 2)) == maps.max(axis=(1, 2)))


def half(maps: Maps, truths: Truths) -> Levels:
    """Halfway between the map's minimum and maximum."""
    return np.full(len(maps), 0.5, dtype=np.float32)


def median(maps: Maps, truths: Truths) -> Levels:
    """Upper median, element p // 2 of the sorted pixels, as the released evaluations take it."""
    flat = maps.reshape(len(maps), -1)
    return _ranked(flat, np.full(len(flat), flat.shape[1] // 2))


def truth_area(maps: Maps, truths: Truths) -> Levels:
    """The |g != 0|-th largest value: the smallest one that belongs to the mask."""
    flat = maps.reshape(len(maps), -1)
    pixels = flat.shape[1]
    # An empty truth has no such value; any will do, since no pixel is kept.
    ranks = pixels - areas(truths.astype(np.bool_, copy=False))
    return _ranked(flat, np.minimum(ranks, pixels - 1))


def _ranked(flat: Float32[np.ndarray, "n p"], ranks: Int[np.ndarray, "n"]) -> Levels:
    """In each row, the element of the given rank in ascending order."""
    # Floats >= 0 sort like the integers with the same bits, and NumPy partitions integers more than
    # twice as fast. Stretched maps are never negative.
    bits = flat.view(np.int32)
    chosen = [np.partition(row, rank)[rank] for row, rank in zip(bits, ranks, strict=True)]
    return np.array(chosen, dtype=np.int32).view(np.float32)


def above(maps: Maps, levels: Levels, truths: Truths) -> Masks:
    """Pixels strictly above the level."""
    return maps > levels[:, None, None]


def at_or_above(maps: Maps, levels: Levels, truths: Truths) -> Masks:
    """Pixels at or above the level."""
    return maps >= levels[:, None, None]


def as_many_as_truth(maps: Maps, levels: Levels, truths: Truths) -> Masks:
    """The top |g != 0| pixels; among those at the level, the first in reading order."""
    masks = at_or_above(maps, levels, truths)
    surplus = areas(masks) - areas(truths.astype(np.bool_, copy=False))
    for i in np.flatnonzero(surplus):
        on_level = np.flatnonzero(maps[i] == levels[i])
        masks[i].flat[on_level[len(on_level) - surplus[i] :]] = False
    return masks


PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        # A stretched map that is not flat has a 1 and a 0: its mask is never empty and never full.
        Protocol("sspl", "map >= 0.5", half, at_or_above, lambda g, p: g.clip(1, p - 1)),
        Protocol(
            "lvs", "map > median", median, above, lambda g, p: np.full_like(g, p - p // 2 - 1)
        ),
        Protocol(
            "ezvsl", "map >= median", median, at_or_above, lambda g, p: np.full_like(g, p - p // 2)
        ),
        Protocol("adaptive", "top |truth| pixels", truth_area, as_many_as_truth, lambda g, p: g),
    )
}
