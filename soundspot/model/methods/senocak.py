"""The attention baseline (Senocak et al., CVPR 2018) on the frozen features SSPL sees.

The paper's study of false negatives trains a contrastive network in two ways: strategy A takes the
sound of any other pair as a negative, strategy B only sounds of another class, which needs labels.

Axes: b batch, d dimensions in which a frame and a sound are compared, p audio patches, a audio
channels (c_a), c visual channels (c_v), h w feature grid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from soundspot.common.errors import SoundspotError
from soundspot.model.attention import attend, similarity
from soundspot.model.methods.cosine import CosineConfig, CosineMethod
from soundspot.model.methods.method import Batch, Frame, Map, MethodOutput, Sound

Negatives = Literal["all", "other_class"]


@dataclass(frozen=True)
class AttentionConfig(CosineConfig):
    """The switches of the attention baseline.

    Attributes:
        negatives: Which other pairs of a batch are negatives: all of them (strategy A) or those of
            another class (strategy B).
        sound: What the attended frame is compared with: the frozen embedding, as in Senocak's
            released code, which leaves g to direct the attention and nothing else; or the
            transformed sound g(f_a), which then serves both ends.
        relu: Whether the attended sum goes through a ReLU before the two layers, as in Senocak's
            released code.
        rectified: Whether the visual feature goes through VGG16's last ReLU first. The released
            code reads VGG16 before that ReLU, as soundspot does, and so sees mostly negative
            values: of the attended sums of ESC-VOC's training views, `relu` lets 0.8 % pass before
            training, and 82 % of rectified ones.
    """

    negatives: Negatives = "all"
    sound: Literal["embedding", "transformed"] = "embedding"
    relu: bool = True
    rectified: bool = False

    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({"relu": False})


class Attention(CosineMethod):
    """Attend to where the sound is, then tell the pair's own sound from the others.

    The weights are the softmax over the grid of the ReLU'd cosine. The visual feature summed under
    them goes through ReLU-FC-ReLU-FC, as in Senocak: the first layer is as wide as the visual
    feature, the last as the mean embedding of the sound it is compared with. The map is the cosine
    itself, as it is for SSPL: ReLU and softmax keep its order at best, not its proportions, so a
    threshold on their min-max would be another one, and one table should compare methods and
    nothing else.
    """

    config_class = AttentionConfig
    training_only = ("visual_fc.",)

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.config = config
        c_v = config.c_v
        out = c_v if config.sound == "transformed" else config.c_a
        self.visual_fc = nn.Sequential(nn.Linear(c_v, c_v), nn.ReLU(), nn.Linear(c_v, out))

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of both views' losses; neither view knows of the other."""
        negatives = negative_pairs(batch.cls, self.config.negatives)
        heard = self.g(batch.f_a)
        target = heard if self.config.sound == "transformed" else batch.f_a.mean(dim=1)
        losses = []
        for f_v in (batch.f_v1, batch.f_v2):
            attended = attend(heard, self.visual(f_v), "relu+softmax").f_av
            z = self.visual_fc(F.relu(attended) if self.config.relu else attended)
            losses.append(triplet_loss(z, target, negatives))
        return MethodOutput(torch.stack(losses).mean(), {})

    def visual(self, f_v: Frame) -> Float[Tensor, "b c h w"]:
        """The visual feature that the sound is compared with."""
        seen: Tensor = self.conv(F.relu(f_v) if self.config.rectified else f_v)
        return seen

    def maps(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> Map:
        """The cosine of the transformed sound with every location."""
        return similarity(self.g(f_a), self.visual(f_v))


def negative_pairs(cls: Int[Tensor, "b"], negatives: Negatives) -> Bool[Tensor, "b b"]:
    """Which sound (column) is a negative of which frame (row).

    A pair is never its own negative. Two pairs that were given the same sound file are negatives of
    each other all the same, as a batch does not say which file a sound came from. Of a training in
    several processes each sees the pairs of its own share only.
    """
    chosen = ~torch.eye(len(cls), dtype=torch.bool, device=cls.device)
    if negatives == "other_class":
        unlabeled = int((cls < 0).sum())
        if unlabeled:
            raise SoundspotError(
                f"model.negatives=other_class needs the class of every pair, but {unlabeled} of "
                f"the {len(cls)} pairs in a batch have none; use model.negatives=all"
            )
        chosen = cls[:, None] != cls[None, :]
    if not chosen.any():
        raise SoundspotError(
            f"no pair of a batch of {len(cls)} has a negative under model.negatives={negatives}; "
            "raise train.batch, or learn from more than one class"
        )
    return chosen


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
