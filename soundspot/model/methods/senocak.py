"""The attention baseline (Senocak et al., CVPR 2018) on the frozen features SSPL sees.

The paper's study of false negatives trains a contrastive network in two ways: strategy A takes the
sound of any other pair as a negative, strategy B only sounds of another class, which needs labels.

Axes: b batch, d dimensions in which a frame and a sound are compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from soundspot.model.attention import attend
from soundspot.model.methods.cosine import CosineConfig, CosineMethod, Negatives, negative_pairs
from soundspot.model.methods.method import Batch, MethodOutput, mean_of
from soundspot.model.whole_batch import whole


@dataclass(frozen=True)
class AttentionConfig(CosineConfig):
    """The switches of the attention baseline.

    Attributes:
        negatives: Which other pairs of a batch are negatives: all of them (strategy A) or those of
            another class (strategy B).
        relu: Whether the attended sum goes through a ReLU before the two layers, as released.
    """

    negatives: Negatives = "all"
    relu: bool = True

    retired: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"sound": "embedding", "rectified": False}
    )
    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({"relu": False})


class Attention(CosineMethod):
    """Attend to where the sound is, then tell the pair's own sound from the others.

    The weights are the softmax over the grid of the ReLU'd cosine. The visual feature summed under
    them goes through ReLU-FC-ReLU-FC, and is compared with the mean embedding of the sound. The map
    is the cosine itself.
    """

    config_class = AttentionConfig
    config: AttentionConfig
    takes_shares = True
    training_only = ("visual_fc.",)

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        c_v = config.c_v
        self.visual_fc = nn.Sequential(nn.Linear(c_v, c_v), nn.ReLU(), nn.Linear(c_v, config.c_a))

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of both views' losses; neither view knows of the other."""
        negatives = negative_pairs(batch, self.config.negatives)
        # Only the attention takes the transformed sound: the frame is compared with the frozen one.
        heard, target = self.g(batch.f_a), whole(batch.f_a.mean(dim=1))
        outputs = []
        for f_v in batch.views:
            attended = attend(heard, self.conv(f_v), "relu+softmax").f_av
            z = whole(self.visual_fc(F.relu(attended) if self.config.relu else attended))
            outputs.append(MethodOutput(triplet_loss(z, target, negatives), {}))
        return mean_of(outputs)


def triplet_loss(
    z: Float[Tensor, "b d"], h: Float[Tensor, "b d"], negatives: Bool[Tensor, "b b"]
) -> Float[Tensor, ""]:
    """Senocak's loss: of two distances, that of its own sound should be the smaller by far.

    With [d+, d-] = softmax([|z - h+|, |z - h-|]) it is the mean of d+^2 and (1 - d-)^2, averaged
    over the negatives of a frame and then over the frames that have any. Senocak draws one negative
    a frame; taking all of a batch is the expectation of that, without chance.
    """
    # The shortcut through a matrix product would lose the small distances to rounding.
    distances = torch.cdist(z, h, compute_mode="donot_use_mm_for_euclid_dist")
    own = distances.diagonal()[:, None].expand_as(distances)
    d_plus, d_minus = torch.stack([own, distances]).softmax(dim=0).unbind()
    each = (d_plus.square() + (1 - d_minus).square()) / 2
    counts = negatives.sum(dim=1)
    rows = (each * negatives).sum(dim=1) / counts.clamp(min=1)
    return rows.sum() / (counts > 0).sum()
