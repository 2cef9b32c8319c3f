"""FNAC, false negative aware contrast (Sun et al., CVPR 2023), on the frozen features SSPL sees.

EZ-VSL's loss (see ezvsl.py) treats every other pair as a negative. Three regularizers tell it which
are not. With unit features v_i^xy and a_i, S(x) = softmax_j(x_i . x_j / t) the similarity within a
modality, P = softmax_j(max_xy v_i^xy . a_j / t) that across them, and m_i the cells whose min-max
scaled cosine with their own sound is above 0.6:

    L = L_EZ-VSL + l_1 |S(a) - P| + l_2 |S(a) - S(mean_xy m v)| + l_3 |S(mean_xy v) - P|

where |.| is the mean absolute difference. The first and the third suppress false negatives: pairs
that sound alike or look alike may match. The second enhances true negatives: things that sound
unlike should look unlike where they sound. They begin after a warm-up, and both sides of a
difference take gradients. The map is the cosine.

Axes: b batch (of frames and of sounds), c channels, n locations of the grid, h w the grid.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from soundspot.common.config import BelowOne, Count, Positive, Weight
from soundspot.model.attention import min_max
from soundspot.model.losses import info_nce, matched
from soundspot.model.memory import Draws, dropped
from soundspot.model.methods.cosine import CosineConfig, CosineMethod
from soundspot.model.methods.method import Batch, MethodOutput, mean_of, other_pairs
from soundspot.model.whole_batch import own, whole


@dataclass(frozen=True)
class FNACConfig(CosineConfig):
    """The switches of FNAC; the defaults are those of its released code.

    Attributes:
        temperature: Of the cross-entropy and of all similarities (t).
        audio_weight: Weight of the similarity of sounds (l_1).
        source_weight: Weight of the similarity of what sounds (l_2).
        visual_weight: Weight of the similarity of frames (l_3).
        threshold: Above it a cell of the min-max scaled map counts as sounding.
        warmup: Steps without the three regularizers.
        dropout: Share of the visual feature that is dropped out in training.
    """

    visual_conv: bool = True
    temperature: Positive = 0.03
    audio_weight: Weight = 100.0
    source_weight: Weight = 100.0
    visual_weight: Weight = 100.0
    threshold: float = 0.6
    warmup: Count = 200
    dropout: BelowOne = 0.9


class Regularizers(NamedTuple):
    """What l_1, l_2 and l_3 weigh."""

    audio: Float[Tensor, ""]
    source: Float[Tensor, ""]
    visual: Float[Tensor, ""]


class FNAC(CosineMethod):
    """EZ-VSL, told by similarity within each modality which pairs are no negatives."""

    config_class = FNACConfig
    config: FNACConfig
    takes_shares = True
    training_only = ("draws.",)

    def __init__(self, config: FNACConfig) -> None:
        super().__init__(config)
        self.draws = Draws()

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of both views' losses; neither view knows of the other."""
        other_pairs(batch)
        config = self.config
        warm = int(self.draws.steps) >= config.warmup
        generator = self.draws.step() if self.training else None
        heard = whole(F.normalize(self.g(batch.f_a), dim=1))
        outputs = []
        for f_v in batch.views:
            seen = F.normalize(self.conv(dropped(f_v, config.dropout, generator)), dim=1)
            every = torch.einsum("kc,bchw->bkhw", heard, seen)
            logits = whole(every.amax(dim=(2, 3)) / config.temperature)
            loss = 2 * info_nce(logits)
            if warm:
                terms = regularizers(heard, seen, every, config)
                loss = loss + config.audio_weight * terms.audio
                loss = loss + config.source_weight * terms.source
                loss = loss + config.visual_weight * terms.visual
            outputs.append(MethodOutput(loss, {"matched": matched(logits)}))
        return mean_of(outputs)


def regularizers(
    heard: Float[Tensor, "k c"],
    seen: Float[Tensor, "b c h w"],
    every: Float[Tensor, "b k h w"],
    config: FNACConfig,
) -> Regularizers:
    """The mean absolute differences of similarities, from unit features and their cosines."""

    def alike(x: Float[Tensor, "k c"]) -> Float[Tensor, "k k"]:
        return (x @ x.T / config.temperature).softmax(dim=1)

    across = whole(every.amax(dim=(2, 3)) / config.temperature).softmax(dim=1)
    sounding = (min_max(own(every)) > config.threshold).to(seen.dtype)
    source = whole((seen * sounding[:, None]).mean(dim=(2, 3)))
    sounds = alike(heard)
    return Regularizers(
        audio=F.l1_loss(sounds, across),
        source=F.l1_loss(sounds, alike(source)),
        visual=F.l1_loss(alike(whole(seen.mean(dim=(2, 3)))), across),
    )
