"""Sharp outlines: the mask of the thing that a map points at, by MobileSAM.

The map says where; the masks that its hottest places prompt say what ends where. Each mask offered
is scored by how well it agrees with the map, and where none does, the map's own region stays.

Axes: height width pixels of the frame, rows columns cells of the masks' grid, m masks.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from soundspot.encoders.mobile_sam import MASK_STRIDE, WEIGHTS, MobileSAM, prepare
from soundspot.encoders.weights import load_tensors
from soundspot.inference.maps import CONTOUR_LEVEL, hot_box, label_regions, map_heat, resize_map
from soundspot.media.decoding import AnyPicture, at_most
from soundspot.media.resizing import resize_frame
from soundspot.parallel.devices import multiplies_bfloat16

# Pixels of the longer side that the network sees; a mask has a quarter of them. Its windows of 7
# and 14 cells fit exactly. Tried on val, as is what follows, by `benchmarks/outlines.py`.
SIDE = 672
LEAST_AGREEMENT = 0.3
GLOW = 0.006  # half the width of the soft edge, as a share of the picture
LEAST_GLOW = 0.4  # how hot the coldest part of a thing is drawn
DRAWN = 960  # pixels of the longer side of a glow
CRUMB = 0.1  # regions and holes smaller than this share of a mask are removed

Polygon = list[tuple[int, int]]  # x, y in pixels


class Seen(NamedTuple):
    """A picture's embedding, for any number of maps, and the picture's height and width."""

    embedding: Tensor
    size: tuple[int, int]


class Offer(NamedTuple):
    """The masks that the network offers for a map, which is given on their grid.

    The first three are prompted by points, the others by a box; see `Masks` for their values.
    """

    logits: Float32[np.ndarray, "m rows columns"]
    quality: Float32[np.ndarray, " m"]
    heat: Float32[np.ndarray, "rows columns"]


@dataclass(frozen=True, eq=False)
class Outliner:
    """MobileSAM on a device, made by `load_outliner`; it never changes."""

    net: MobileSAM
    device: torch.device
    side: int = SIDE

    @torch.inference_mode()
    def see(self, frame: AnyPicture) -> Seen:
        """Encode a picture, which takes almost all of the time."""
        # A huge picture is made smaller in bytes: as floats it would take four times the memory.
        small = resize_frame(frame, *at_most(2 * self.side, *frame.shape[:2]))
        pixels = torch.from_numpy(small.copy()).permute(2, 0, 1).to(self.device, torch.float32)
        return Seen(self.net.embed(prepare(pixels, self.side)), frame.shape[:2])

    @torch.inference_mode()
    def outline(
        self, seen: Seen, similarity: Float32[np.ndarray, "_h _w"]
    ) -> Bool[np.ndarray, "height width"] | None:
        """The mask of the thing that is hot on a map; None if no mask agrees with the map."""
        offer = self.offer(seen, similarity)
        best = None if offer is None else choose(offer.logits > 0, offer.quality, offer.heat)
        if offer is None or best is None:
            return None
        logits = offer.logits[best]
        # What is tidied away changes its sign, so that the border between cells stays soft.
        logits = np.where(tidy(logits > 0) == (logits > 0), logits, -logits)
        mask = resize_map(logits, *seen.size) > 0
        return mask if mask.any() else None

    @torch.inference_mode()
    def offer(self, seen: Seen, similarity: Float32[np.ndarray, "_h _w"]) -> Offer | None:
        """The masks to choose from, on their own grid, whatever the frame's size.

        Two prompts ask for three each: two points of the thing, and the box around its hot region.
        None if the map is flat.
        """
        scale = self.side / max(seen.size) / MASK_STRIDE
        rows, columns = (max(1, round(n * scale)) for n in seen.size)
        heat = map_heat(resize_map(similarity, rows, columns))
        box = hot_box(heat)
        if box is None:
            return None
        points = MASK_STRIDE * (torch.tensor([two_points(heat)]) + 0.5) - 0.5
        corners = MASK_STRIDE * torch.tensor([box], dtype=torch.float32)
        by_points = self.net.decode(seen.embedding, points.to(self.device))
        by_box = self.net.decode_box(seen.embedding, corners.to(self.device))
        logits, quality = (torch.cat(both, 1)[0] for both in zip(by_points, by_box, strict=True))
        return Offer(logits[:, :rows, :columns].cpu().numpy(), quality.cpu().numpy(), heat)


@lru_cache(maxsize=2)
def load_outliner(device: torch.device) -> Outliner:
    """The network with its published weights, which are fetched once."""
    state = load_tensors(WEIGHTS)
    with torch.device("meta"):
        net = MobileSAM()
    net.load_state_dict(state, assign=True)
    net = net.requires_grad_(False).eval().to(device)
    if multiplies_bfloat16(device):  # almost twice as fast, and as good
        net.image_encoder.to(torch.bfloat16)
    return Outliner(net, device)


def choose(
    masks: Bool[np.ndarray, "m rows columns"],
    quality: Float[np.ndarray, " m"],
    heat: Float32[np.ndarray, "rows columns"],
) -> int | None:
    """Which mask agrees best with the map; None if none does.

    Of masks that agree alike, the one of higher predicted quality is taken.
    """
    agree = agreement(masks, heat)
    best = int((agree * quality).argmax())
    return best if agree[best] >= LEAST_AGREEMENT else None


def agreement(
    masks: Bool[np.ndarray, "m rows columns"], heat: Float32[np.ndarray, "rows columns"]
) -> Float[np.ndarray, " m"]:
    """How hot each mask is inside, times the share of the hot region's heat that it holds."""
    hot = np.where(heat >= CONTOUR_LEVEL, heat, 0)
    inside = (masks * heat).sum((1, 2)) / np.maximum(masks.sum((1, 2)), 1)
    return np.asarray(inside * (masks * hot).sum((1, 2)) / hot.sum())


def glow(
    mask: Bool[np.ndarray, "height width"], similarity: Float32[np.ndarray, "_h _w"]
) -> Float32[np.ndarray, "h w"]:
    """A map to draw: hot inside the mask, one half along its outline, and soon cold outside.

    Its longer side is `DRAWN` at most: no picture shows more.
    """
    height, width = at_most(DRAWN, *mask.shape)
    soft = torch.from_numpy(mask.astype(np.float32))[None, None]
    soft = F.interpolate(soft, (height, width), mode="area")
    blur = 2 * round(GLOW * max(height, width)) + 1
    for _ in range(2):
        soft = F.avg_pool2d(soft, blur, 1, blur // 2, count_include_pad=False)
    near = soft[0, 0].numpy()
    heat = map_heat(resize_map(similarity, height, width))
    inside = 0.5 + np.maximum(near - 0.5, 0) * (LEAST_GLOW + (1 - LEAST_GLOW) * heat)
    return np.where(near >= 0.5, inside, near).astype(np.float32)


def two_points(heat: Float32[np.ndarray, "rows columns"]) -> list[tuple[float, float]]:
    """Two points of a thing, as x and y: the peak, and the center of the hot region's heat."""
    y, x = np.unravel_index(heat.argmax(), heat.shape)
    hot = np.where(heat >= CONTOUR_LEVEL, heat, 0)
    rows, columns = np.indices(heat.shape)
    center = (columns * hot).sum() / hot.sum(), (rows * hot).sum() / hot.sum()
    return [(float(x), float(y)), (float(center[0]), float(center[1]))]


def tidy(mask: Bool[np.ndarray, "rows columns"]) -> Bool[np.ndarray, "rows columns"]:
    """A mask without crumbs and pinholes."""
    crumb = CRUMB * mask.sum()
    for inside in (True, False):
        labels = label_regions(mask == inside)
        small = np.bincount(labels.ravel()) < crumb
        mask = np.where(small[labels], not inside, mask)
    return mask


def polygons(mask: Bool[np.ndarray, "height width"]) -> list[Polygon]:
    """The borders of a mask along the edges of its pixels; holes run the other way round."""
    grid = np.pad(mask, 1).astype(np.int8)
    # Steps along every edge between inside and outside, with the inside on the right.
    follows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for y, x in np.argwhere(np.diff(grid, axis=0)[:, 1:-1]):
        down = grid[y + 1, x + 1]  # the inside is below: go right
        start, end = ((x, y), (x + 1, y)) if down else ((x + 1, y), (x, y))
        follows.setdefault(start, []).append(end)
    for y, x in np.argwhere(np.diff(grid, axis=1)[1:-1]):
        right = grid[y + 1, x + 1]  # the inside is to the right: go up
        start, end = ((x, y + 1), (x, y)) if right else ((x, y), (x, y + 1))
        follows.setdefault(start, []).append(end)
    borders = []
    while follows:
        first = here = next(iter(follows))
        border: Polygon = []
        while True:
            ends = follows[here]
            there = ends.pop()
            if not ends:
                del follows[here]
            border.append((int(here[0]), int(here[1])))
            here = there
            if here == first:
                break
        borders.append(_corners(border))
    return borders


def _corners(border: Polygon) -> Polygon:
    """A closed border without the points on straight lines."""
    around = zip(border[-1:] + border[:-1], border, border[1:] + border[:1], strict=True)
    return [b for a, b, c in around if not (a[0] == b[0] == c[0] or a[1] == b[1] == c[1])]


def run_lengths(mask: Bool[np.ndarray, "height width"]) -> dict[str, list[int]]:
    """A mask as COCO's run lengths: column by column, outside first."""
    flat = mask.ravel(order="F")
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flat]).astype(np.int8)))
    counts = np.diff(np.concatenate([[0], edges, [flat.size]]))
    return {"size": [int(n) for n in mask.shape], "counts": [int(n) for n in counts]}
