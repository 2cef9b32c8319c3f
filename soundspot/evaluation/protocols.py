"""The field's rules for turning a map into a mask, all scored in one pass.

Every protocol first resizes the map to 224x224 and stretches it to [0, 1] by its own minimum and
maximum. They differ in how they resize, in the level at which the map is cut, and in what happens
to pixels at that level. `ezvsl`, `slavc` and `fnac` are the papers' released evaluations, which
differ in the resize alone: on maps of 7x7 that moves the cIoU of a pair by up to 0.09.

Axes: n pairs, h w the map as a model made it, s side of the evaluation map, p = s * s pixels.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from soundspot.common.arrays import min_max
from soundspot.common.errors import SoundspotError
from soundspot.evaluation.metrics import PerPair, RawMaps, Truths, areas, ciou

CHUNK = 4  # maps at a time: their pixels fit the processor's cache

Maps = Float32[np.ndarray, "n s s"]
Levels = Float32[np.ndarray, "n"]
Masks = Bool[np.ndarray, "n s s"]
Areas = Int[np.ndarray, "n"]
PerPixel = Float[np.ndarray, "s"]


class Resize(NamedTuple):
    """How a map is enlarged: bilinear or cubic, with pixel centers or with corners aligned."""

    cubic: bool = False
    corners: bool = False


CENTERS = Resize()


@dataclass(frozen=True)
class Protocol:
    """A named rule from maps to masks.

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
    resize: Resize = CENTERS


def score(maps: RawMaps, truths: Truths, names: Iterable[str] | None = None) -> dict[str, PerPair]:
    """The cIoU of every pair under every protocol, from one pass over the maps.

    Args:
        maps: Of any one size.
        truths: Consensus maps; their size is the size of the evaluation.
        names: Protocols; default: all.

    Returns:
        Protocol name -> cIoU of each pair. Pairs with an empty truth score 0.
    """
    broken = np.flatnonzero(~np.isfinite(maps).all(axis=(1, 2)))
    if len(broken):
        raise SoundspotError(f"{len(broken)} maps are not finite, the first is map {broken[0]}")
    chosen = [PROTOCOLS[name] for name in names or PROTOCOLS]
    scores = {protocol.name: np.zeros(len(maps)) for protocol in chosen}
    for start in range(0, len(maps), CHUNK):
        part = slice(start, start + CHUNK)
        truth = truths[part]
        # Protocols that resize alike or cut at the same level (sspl and lvs) compute it once.
        sizes = {protocol.resize for protocol in chosen}
        units = {resize: evaluation_maps(maps[part], truth.shape[-1], resize) for resize in sizes}
        rules = {(protocol.level, protocol.resize) for protocol in chosen}
        levels = {(level, resize): level(units[resize], truth) for level, resize in rules}
        for protocol in chosen:
            level = levels[protocol.level, protocol.resize]
            masks = protocol.keep(units[protocol.resize], level, truth)
            scores[protocol.name][part] = ciou(masks, truth)
    return scores


def evaluation_maps(maps: RawMaps, size: int, resize: Resize = CENTERS) -> Maps:
    """Maps as the protocols see them: resized to (size, size), then stretched to [0, 1].

    Stretching before the resize only changes rounding (the weights sum to 1): it makes a flat
    map exactly 0, and the result independent of the map's offset and scale.
    """
    return min_max(resize_maps(min_max(maps).astype(np.float32), size, resize))


def resize_maps(maps: Float32[np.ndarray, "n h w"], size: int, resize: Resize = CENTERS) -> Maps:
    """Resize to (size, size), as a product with weight matrices."""
    rows, columns = (_weights(cells, size, resize) for cells in maps.shape[1:])
    return np.asarray(rows @ (maps @ columns.T))


@cache
def _weights(cells: int, size: int, resize: Resize) -> Float32[np.ndarray, "s cells"]:
    """Row i holds the weights of the two or four cells around pixel i."""
    pixel = np.arange(size)
    if resize.corners:
        center = pixel * ((cells - 1) / max(size - 1, 1))
    else:
        center = (pixel + 0.5) * cells / size - 0.5
    if not resize.cubic:
        center = np.clip(center, 0, cells - 1)
    low = np.floor(center).astype(np.intp)
    past = center - low
    shares = _cubic(past) if resize.cubic else [1 - past, past]
    weights = np.zeros((size, cells), dtype=np.float32)
    for cell, share in enumerate(shares, start=-1 if resize.cubic else 0):
        np.add.at(weights, (pixel, np.clip(low + cell, 0, cells - 1)), share)  # edges are repeated
    weights.flags.writeable = False  # shared by all callers
    return weights


def _cubic(past: PerPixel) -> list[PerPixel]:
    """The shares of the two cells before and the two after a place, by the usual a = -0.75."""

    def near(x: PerPixel) -> PerPixel:
        return np.asarray((1.25 * x - 2.25) * x**2 + 1)

    def far(x: PerPixel) -> PerPixel:
        return np.asarray(-0.75 * (((x - 5) * x + 8) * x - 4))

    return [far(past + 1), near(past), near(1 - past), far(2 - past)]


def is_flat(maps: RawMaps) -> Bool[np.ndarray, "n"]:
    """Which maps are constant, and so point nowhere.

    A flat map keeps no pixel under `sspl` and `lvs`, every pixel under those that keep the median,
    and the first pixels in reading order under `adaptive`.
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


def _from_median(name: str, how: str, resize: Resize) -> Protocol:
    def half_of(areas: Areas, pixels: int) -> Areas:
        return np.full_like(areas, pixels - pixels // 2)

    return Protocol(name, f"map >= median, {how}", median, at_or_above, half_of, resize)


# A stretched map that is not flat has a 1 and a 0: the mask of `sspl` is never empty nor full.
PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol("sspl", "map >= 0.5", half, at_or_above, lambda g, p: g.clip(1, p - 1)),
        Protocol(
            "lvs", "map > median", median, above, lambda g, p: np.full_like(g, p - p // 2 - 1)
        ),
        _from_median("ezvsl", "corners aligned", Resize(corners=True)),
        _from_median("slavc", "bicubic, corners aligned", Resize(cubic=True, corners=True)),
        _from_median("fnac", "bicubic", Resize(cubic=True)),
        Protocol("adaptive", "top |truth| pixels", truth_area, as_many_as_truth, lambda g, p: g),
    )
}
