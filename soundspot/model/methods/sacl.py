"""SACL (Song et al., TPAMI 2024), the successor of SSPL, on the frozen features SSPL sees.

Contrast with false negatives eliminated and visual features compacted. Of the sounds of a batch a
frame is contrasted with its own and with the three quarters that the frozen audio encoder finds
least like it (N_i). The locations that count are those in the upper half of its own map and,
of these, those in the one segment that they overlap most (m_i):

    L = sum over both views of -1/B sum_i log exp(s_ii/t) / sum_{j in N_i + i} exp(s_ij/t),
    s_ij = max over m_i of cos(v_i^xy, g(a_j))

with t = 0.005. The first view decides which segment that is; the second takes its own part of it,
or all of it if its upper half misses it. The map is the cosine.

Axes, besides those of method.py: k segments, n locations of the grid, m locations of both views.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from soundspot.common.config import BelowOne, Positive, Range, Size
from soundspot.model.attention import every_similarity
from soundspot.model.losses import among, pick_own
from soundspot.model.methods.cosine import CosineConfig, CosineMethod
from soundspot.model.methods.method import Batch, MethodOutput, Sound, other_pairs
from soundspot.model.whole_batch import own, whole

ROUNDS = 5  # of k-means


@dataclass(frozen=True)
class SACLConfig(CosineConfig):
    """The switches of SACL; the defaults are those of its released code.

    Attributes:
        temperature: Of the cross-entropy (t).
        negatives: Share of a batch that are negatives: the sounds least like its own.
        kept: Share of a map below which locations do not count.
        segments: Number of segments a frame is divided into; 1 does without.
    """

    visual_conv: bool = True
    temperature: Positive = 0.005
    negatives: Annotated[float, Range(1e-9, 1)] = 0.75
    kept: BelowOne = 0.5
    segments: Size = 4


class SACL(CosineMethod):
    """Nothing is trained but the two projections."""

    config_class = SACLConfig
    config: SACLConfig
    takes_shares = True
    full_precision = True

    def forward(self, batch: Batch) -> MethodOutput:
        """The sum of both views' losses, which share the sounds and the segment."""
        config = self.config
        other_pairs(batch)
        heard = whole(self.g(batch.f_a))
        every = [every_similarity(heard, self.conv(f_v)) for f_v in batch.views]
        upper = [upper_part(own(maps.detach()), config.kept) for maps in every]
        names = segments(batch.f_v1, batch.f_v2, config.segments).chunk(2, dim=1)
        masks = compacted(upper[0], upper[1], names[0], names[1], config.segments)
        chosen = true_negatives(whole(batch.f_a), config.negatives)
        losses = [
            sacl_loss(maps, mask, chosen, config.temperature)
            for maps, mask in zip(every, masks, strict=True)
        ]
        return MethodOutput(losses[0] + losses[1], {})


def true_negatives(f_a: Sound, share: float) -> Bool[Tensor, "b b"]:
    """The sounds each sound is contrasted with: the given share of the batch, the least alike."""
    unit = F.normalize(f_a.mean(dim=1), dim=1)
    alike = unit @ unit.T
    # Its own sound stays apart, even if rounding finds another one more like it.
    alike.fill_diagonal_(torch.inf)
    order = alike.argsort(dim=1, stable=True)[:, : int(share * len(f_a))]
    chosen = torch.zeros_like(alike, dtype=torch.bool).scatter_(1, order, True)
    return chosen.fill_diagonal_(False)


def upper_part(maps: Float[Tensor, "b n"], kept: float) -> Bool[Tensor, "b n"]:
    """The locations above the given quantile of their map."""
    threshold = maps.sort(dim=1).values[:, int(kept * maps.shape[1])]
    return maps > threshold[:, None]


@torch.no_grad()
def segments(
    first: Float[Tensor, "b c h w"], second: Float[Tensor, "b c h w"], count: int
) -> Int[Tensor, "b m"]:
    """Clusters of the locations of two views: spherical k-means, without chance.

    It begins with the location nearest the mean, then takes the location least like any center.
    """
    points = F.normalize(torch.cat([first.flatten(2), second.flatten(2)], dim=2), dim=1)
    frames = torch.arange(len(points), device=points.device)
    start = torch.einsum("bc,bcm->bm", points.mean(dim=2), points).argmax(dim=1)
    centers = points[frames, :, start][:, None]
    while centers.shape[1] < count:
        nearest = torch.einsum("bkc,bcm->bkm", centers, points).amax(dim=1)
        centers = torch.cat([centers, points[frames, :, nearest.argmin(dim=1)][:, None]], dim=1)
    for _ in range(ROUNDS):
        names = torch.einsum("bkc,bcm->bkm", centers, points).argmax(dim=1)
        members = F.one_hot(names, count).to(points.dtype)
        centers = F.normalize(torch.einsum("bmk,bcm->bkc", members, points), dim=2)
    return torch.einsum("bkc,bcm->bkm", centers, points).argmax(dim=1)


def compacted(
    upper1: Bool[Tensor, "b n"],
    upper2: Bool[Tensor, "b n"],
    names1: Int[Tensor, "b n"],
    names2: Int[Tensor, "b n"],
    count: int,
) -> tuple[Bool[Tensor, "b n"], Bool[Tensor, "b n"]]:
    """The part of each view that counts: of one segment, what is in the upper half."""
    inside1, inside2 = (F.one_hot(names, count).bool() for names in (names1, names2))
    shared = inside1.any(dim=1) & inside2.any(dim=1)
    overlap = (inside1 & upper1[:, :, None]).sum(dim=1).masked_fill(~shared, -1)
    best = overlap.argmax(dim=1)[:, None]
    segment1, segment2 = names1 == best, names2 == best
    part1, part2 = upper1 & segment1, upper2 & segment2
    part2 = torch.where(part2.any(dim=1, keepdim=True), part2, segment2)
    alone = ~shared.any(dim=1, keepdim=True)  # the views have no segment in common
    return torch.where(alone, upper1, part1), torch.where(alone, upper2, part2)


def sacl_loss(
    every: Float[Tensor, "b k n"],
    counts: Bool[Tensor, "b n"],
    negatives: Bool[Tensor, "k k"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of every frame (rows) over its own sound and its negatives."""
    counts = counts | ~counts.any(dim=1, keepdim=True)  # a flat map has no upper half
    logits = every.masked_fill(~counts[:, None], -torch.inf).amax(dim=2) / temperature
    return pick_own(among(whole(logits), negatives))
