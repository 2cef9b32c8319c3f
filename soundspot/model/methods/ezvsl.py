"""EZ-VSL (Mo and Morgado, ECCV 2022) on the frozen features SSPL sees.

A frame matches a sound as well as its best location does, s_ij = max_xy cos(v_i^xy, a_j), and
every frame has to find its sound in the batch, every sound its frame:

    L = -1/B sum_i [log exp(s_ii/t)/sum_j exp(s_ij/t) + log exp(s_ii/t)/sum_j exp(s_ji/t)]

with t = 0.03. The map is the cosine. The second half of the paper, object-guided localization,
needs no training: it is the guidance of `evaluate`, which joins any method's map with an image-only
one.

What differs: the frozen encoders replace both ResNet-18s, so that a 1 x 1 convolution and g
(two layers, for every method alike; theirs is one) are all that is trained, and the loss is the
mean over the two views of a frame. It is the `contrastive` method without what that adds: softer
maximum, softer targets, self-attention of the maps.

Axes: b batch (of frames and of sounds), n locations of the grid.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from soundspot.common.config import Positive
from soundspot.model.attention import every_similarity, soft_maximum
from soundspot.model.methods.contrastive import info_nce, matched
from soundspot.model.methods.cosine import CosineConfig, CosineMethod, check_batch
from soundspot.model.methods.method import Batch, MethodOutput


@dataclass(frozen=True)
class EZVSLConfig(CosineConfig):
    """The switches of EZ-VSL; the defaults are those of its released code.

    Attributes:
        temperature: Of the cross-entropy (t).
    """

    visual_conv: bool = True
    temperature: Positive = 0.03


class EZVSL(CosineMethod):
    """Nothing is trained but the two projections."""

    config_class = EZVSLConfig

    def __init__(self, config: EZVSLConfig) -> None:
        super().__init__(config)
        self.config = config

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of both views' losses; neither view knows of the other."""
        check_batch(len(batch.f_a))
        heard = self.g(batch.f_a)
        both = [
            soft_maximum(every_similarity(heard, self.conv(f_v)), 0.0) / self.config.temperature
            for f_v in (batch.f_v1, batch.f_v2)
        ]
        loss = torch.stack([matching_loss(logits) for logits in both]).mean()
        right = torch.stack([matched(logits) for logits in both]).mean()
        return MethodOutput(loss, {"matched": right.detach()})


def matching_loss(logits: Float[Tensor, "b b"]) -> Float[Tensor, ""]:
    """The sum of both directions; `info_nce` is their mean."""
    return 2 * info_nce(logits, torch.eye(len(logits), device=logits.device))
