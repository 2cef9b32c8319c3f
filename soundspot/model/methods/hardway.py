"""The HardWay baseline (Chen et al., CVPR 2021) on the frozen features SSPL sees.

A frame is told from its own background and from the sounds of other pairs by masked means of
similarity maps. Of the original only the loss is kept: the frozen encoders replace its
ResNet-18s, so that g, and the 1 x 1 convolution if wanted, are all that is trained.

Axes: b batch (of frames and of sounds), n locations of the grid.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from soundspot.common.config import Positive
from soundspot.model.attention import every_similarity
from soundspot.model.losses import among, pick_own
from soundspot.model.methods.cosine import CosineConfig, CosineMethod, Negatives, negative_pairs
from soundspot.model.methods.method import Batch, MethodOutput, mean_of
from soundspot.model.whole_batch import own, whole


@dataclass(frozen=True)
class HardWayConfig(CosineConfig):
    """The switches of HardWay; the defaults are those of its paper.

    Attributes:
        trimap: Whether locations between the two thresholds are ignored; without it the positive
            threshold parts positives from background.
        background: Whether its own background is a negative.
        positive_threshold: A similarity above it is positive.
        background_threshold: A similarity below it is background.
        sharpness: Width of the sigmoids that stand for the thresholds; small is sharp.
        temperature: Of the cross-entropy.
        negatives: Which other pairs of a batch are negatives: all of them, or those of another
            class, as in the paper's study of false negatives.
    """

    trimap: bool = True
    background: bool = True
    positive_threshold: float = 0.65
    background_threshold: float = 0.4
    sharpness: Positive = 0.03
    temperature: Positive = 0.07
    negatives: Negatives = "all"

    def __post_init__(self) -> None:
        """Refuse thresholds that cross."""
        if self.background_threshold > self.positive_threshold:
            raise ValueError("background_threshold must not be above positive_threshold")


class HardWay(CosineMethod):
    """Bring a sound to the locations it fits, away from the rest and from other frames."""

    config_class = HardWayConfig
    config: HardWayConfig
    takes_shares = True

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of both views' losses; neither view knows of the other."""
        negatives = negative_pairs(batch, self.config.negatives)
        heard = whole(self.g(batch.f_a))
        both = [every_similarity(heard, self.conv(f_v)) for f_v in batch.views]
        return mean_of(
            MethodOutput(hardway_loss(every, negatives, self.config), {}) for every in both
        )


def hardway_loss(
    a0: Float[Tensor, "b k n"], negatives: Bool[Tensor, "k k"], config: HardWayConfig
) -> Float[Tensor, ""]:
    """Cross-entropy of its own positives against other sounds and its own background.

    Every sound is judged by the mean of its map under its own positive mask, as in Chen's released
    code: what the frame has that fits that sound best, not the mean over the frame. The diagonal is
    then the pair's own positives; each pair counts once. The masks pass gradients on, as theirs do.
    A frame without negatives has its background alone.

    a0 is the similarity of frames (rows) with every sound (columns); A is its diagonal.
    """
    sharpness, low = config.sharpness, config.background_threshold
    if not config.trimap:
        low = config.positive_threshold
    fits = masked_mean(a0, (a0 - config.positive_threshold) / sharpness)
    logits = among(whole(fits), negatives)
    if config.background:
        a = own(a0)
        background = whole(masked_mean(a, (low - a) / sharpness))
        logits = torch.cat([logits, background[:, None]], dim=1)
    return pick_own(logits / config.temperature)


def masked_mean(
    s: Float[Tensor, "*maps n"], inside: Float[Tensor, "*maps n"]
) -> Float[Tensor, "*maps"]:
    """The mean of maps under the soft mask sigmoid(inside).

    The mask is divided by its sum in the logarithm: far from a threshold it may round to 0
    everywhere, as 1 - sigmoid does in single precision already at a cosine of 1.
    """
    weights = F.logsigmoid(inside).softmax(dim=-1)
    return (weights * s).sum(dim=-1)
