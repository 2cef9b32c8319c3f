"""SSLalign (Senocak et al., ICCV 2023): several positives, pooled and located.

A frame has several positives: its own sound and that of the pair whose sound is most like it, and
the same the other way around; the two views stand for the paper's augmentations. Every combination
is contrasted twice, where the source is and as a whole:

    L = mean over frames v in {own, nearest} and sounds a in {own, nearest} of C(s_L) + C(s_A),
    s_L(v, a) = max_xy cos(v^xy, a),   s_A(v, a) = cos(mean_xy v^xy, a)

C is InfoNCE in both directions with t = 0.07, without the negatives that are the positive itself,
which a pair has if it shares its nearest one with others. Nearest is by the frozen features, among
the pairs of the batch. The map is the cosine.

Axes: b batch, d channels of a frozen feature.
"""

from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from soundspot.common.config import Positive
from soundspot.model.attention import every_similarity, in_float32, precise
from soundspot.model.losses import Pairs, among, matched, pick_own
from soundspot.model.methods.cosine import CosineConfig, CosineMethod
from soundspot.model.methods.method import Batch, MethodOutput, mean_of, other_pairs


@dataclass(frozen=True)
class SSLAlignConfig(CosineConfig):
    """The switches of SSLalign.

    Attributes:
        temperature: Of the cross-entropy (t).
    """

    visual_conv: bool = True
    temperature: Positive = 0.07


class SSLAlign(CosineMethod):
    """Nothing is trained but the two projections, which locate and align alike."""

    config_class = SSLAlignConfig
    config: SSLAlignConfig

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of both views' losses."""
        own = torch.arange(len(other_pairs(batch)), device=batch.f_a.device)
        heard, sounds = self.g(batch.f_a), (own, nearest(batch.f_a.mean(dim=1)))
        outputs = []
        for f_v in batch.views:
            seen, frames = self.conv(f_v), (own, nearest(f_v.mean(dim=(2, 3))))
            located = every_similarity(heard, seen).amax(dim=2)
            pooled = every_similarity(heard, seen.mean(dim=(2, 3), keepdim=True))[:, :, 0]
            losses = [
                contrast(s / self.config.temperature, *chosen)
                for s in (located, pooled)
                for chosen in product(frames, sounds)
            ]
            loss = 2 * torch.stack(losses).mean()
            outputs.append(MethodOutput(loss, {"matched": matched(located)}))
        return mean_of(outputs)


def nearest(x: Float[Tensor, "b d"]) -> Int[Tensor, "b"]:
    """Which other one each vector is most like."""
    with in_float32(x.device):
        unit = F.normalize(precise(x), dim=1)
        return (unit @ unit.T).fill_diagonal_(-torch.inf).argmax(dim=1)


def contrast(
    logits: Pairs, frames: Int[Tensor, "b"], sounds: Int[Tensor, "b"]
) -> Float[Tensor, ""]:
    """InfoNCE of the chosen frames over the chosen sounds, plus that of sounds over frames."""
    others = (frames[:, None] != frames) & (sounds[:, None] != sounds)
    chosen = logits[frames][:, sounds]
    return pick_own(among(chosen, others)) + pick_own(among(chosen.T, others))
