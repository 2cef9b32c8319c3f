"""SSL-TIE (Liu et al., ACM MM 2022) on the frozen features SSPL sees.

The contrast is HardWay's (see hardway.py). It has to hold for a picture and for a transformed copy
of it (invariance), and the map of the transformed picture has to be the transformed map
(equivariance):

    L = (L_cl(v, a) + L_cl(T v, a)) / 2 + l MSE(A(T v, a), T A(v, a))

with A the cosine map, l = 1 as released, gradients on both maps. The map is the cosine.

T leads from the first view of a frame to the second: that flip and shift of the grid under which
the frozen features agree best. Transforming the feature's own grid would teach nothing: all that is
trained acts on one location at a time, so its maps follow any flip or shift exactly.

Axes: b batch, c channels, n locations of the grid, t transformations, h w the grid.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from soundspot.common.config import Count, Weight
from soundspot.model.attention import every_similarity
from soundspot.model.methods.cosine import CosineMethod, negative_pairs
from soundspot.model.methods.hardway import HardWayConfig, hardway_loss
from soundspot.model.methods.method import Batch, MethodOutput
from soundspot.model.whole_batch import own, whole


@dataclass(frozen=True)
class SSLTIEConfig(HardWayConfig):
    """The switches of SSL-TIE; the defaults are those of its released code.

    Attributes:
        equivariance: Weight of the difference of maps (l).
        shift: By how many cells, at most, the views of a frame are displaced.
    """

    visual_conv: bool = True
    equivariance: Weight = 1.0
    shift: Count = 1


class SSLTIE(CosineMethod):
    """HardWay on two views whose maps have to agree where they show the same."""

    config_class = SSLTIEConfig
    config: SSLTIEConfig
    takes_shares = True

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of both views' contrast, and the difference of their maps."""
        config = self.config
        cls = whole(batch.cls)
        others = torch.zeros_like(cls[None], dtype=torch.bool)
        if len(cls) > 1:  # a single pair has its own background alone
            others = negative_pairs(batch, config.negatives)
        heard = whole(self.g(batch.f_a))
        both = [every_similarity(heard, self.conv(f_v)) for f_v in batch.views]
        contrast = torch.stack([hardway_loss(every, others, config) for every in both]).mean()
        first, second = map(own, both)
        there = register(batch.f_v1, batch.f_v2, config.shift)
        difference = map_difference(first, second, there)
        report = {"contrast": contrast.detach(), "difference": difference.detach()}
        return MethodOutput(contrast + config.equivariance * difference, report)


class Correspondence(NamedTuple):
    """Which cell of a first view each cell of a second one shows, and whether there is one."""

    source: Int[Tensor, "*t n"]
    inside: Bool[Tensor, "*t n"]


def transformations(height: int, width: int, shift: int, device: torch.device) -> Correspondence:
    """All flips and shifts of a grid by up to `shift` cells."""
    steps = torch.arange(-shift, shift + 1, device=device)
    rows = torch.arange(height, device=device) + steps[:, None]
    columns = torch.arange(width, device=device) + steps[:, None]
    columns = torch.cat([columns, width - 1 - columns])
    row_inside = (rows >= 0) & (rows < height)
    column_inside = (columns >= 0) & (columns < width)
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    source = rows[:, None, :, None] * width + columns[None, :, None, :]
    inside = row_inside[:, None, :, None] & column_inside[None, :, None, :]
    return Correspondence(
        source.flatten(2).flatten(end_dim=1), inside.flatten(2).flatten(end_dim=1)
    )


@torch.no_grad()
def register(
    first: Float[Tensor, "b c h w"], second: Float[Tensor, "b c h w"], shift: int
) -> Correspondence:
    """The transformation of each first view under which it looks most like the second."""
    tried = transformations(first.shape[2], first.shape[3], shift, first.device)
    unit = [F.normalize(f_v, dim=1).flatten(2) for f_v in (first, second)]
    alike = torch.einsum("bcn,bcm->bnm", unit[1], unit[0])
    cells = torch.arange(alike.shape[1], device=alike.device)
    agreement = alike[:, cells, tried.source] * tried.inside
    best = (agreement.sum(dim=2) / tried.inside.sum(dim=1)).argmax(dim=1)
    return Correspondence(tried.source[best], tried.inside[best])


def map_difference(
    first: Float[Tensor, "b n"], second: Float[Tensor, "b n"], there: Correspondence
) -> Float[Tensor, ""]:
    """The mean squared difference of the second map and the moved first one, where both are."""
    squared = (first.gather(1, there.source) - second).square() * there.inside
    return (squared.sum(dim=1) / there.inside.sum(dim=1)).mean()
