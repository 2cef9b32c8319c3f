"""Outlines on benchmarks, which annotate boxes: the boxes of a mask are what is scored.

Axes: n pairs, h w the map as a model made it, s side of the evaluation map.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float32

from soundspot.common.arrays import min_max
from soundspot.common.progress import progress
from soundspot.evaluation.metrics import RawMaps
from soundspot.inference.maps import box_around, label_regions, resize_map
from soundspot.inference.outlines import load_outliner
from soundspot.media.decoding import AnyPicture

SIDE = 224  # pixels, as the protocols have


def box_maps(
    maps: RawMaps,
    frames: Sequence[str],
    picture: Callable[[str], AnyPicture],
    device: torch.device,
) -> Float32[np.ndarray, "n s s"]:
    """Maps that are hottest in the boxes of what they outline, whatever the verdict.

    Args:
        maps: A model's.
        frames: The frame of each.
        picture: The pixels of a frame.
        device: Where to outline.
    """
    outliner = load_outliner(device)
    found = np.empty((len(maps), SIDE, SIDE), np.float32)
    seen = {}  # of the last frame only: its sounds follow each other
    for number, name in enumerate(progress(frames, "outlines")):
        if name not in seen:
            seen = {name: outliner.see(picture(name))}
        s = maps[number].astype(np.float32)
        mask = outliner.outline(seen[name], s)
        found[number] = resize_map(s, SIDE, SIDE) if mask is None else box_map(s, mask)
    return found


def box_map(
    similarity: Float32[np.ndarray, "h w"], mask: Bool[np.ndarray, "height width"]
) -> Float32[np.ndarray, "s s"]:
    """At least one half in the boxes around the regions of a mask, less outside; both as the map.

    So every protocol finds what it looks for: a mask, or an order of all pixels.
    """
    height, width = mask.shape
    regions = label_regions(mask)
    inside = np.zeros((SIDE, SIDE), bool)
    for number in range(1, int(regions.max()) + 1):
        box = box_around(regions == number)
        assert box is not None
        x1, x2 = (round(x * SIDE / width) for x in box[::2])
        y1, y2 = (round(y * SIDE / height) for y in box[1::2])
        inside[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)] = True
    s = resize_map(similarity, SIDE, SIDE)
    heat = np.where(inside, 0.51, 0) + 0.49 * min_max(s)
    # Protocols stretch a map to 0..1: both ends must be there, each on its side.
    cold = s if inside.all() else np.where(inside, np.inf, s)
    heat.flat[[cold.argmin(), np.where(inside, s, -np.inf).argmax()]] = 0, 1
    return heat.astype(np.float32)
