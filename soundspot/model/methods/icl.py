"""ICL, iterative contrastive learning (Lin et al., 2021), on the frozen features SSPL sees.

Each iteration learns from what the last one found. Its map of a frame says which locations sound
(R_i) and which do not (Q_i): within a frame the sound is drawn to the former and away from
the latter. Across frames, sounds that are alike share what sounds in each other's frames:

    L = -1/B sum_i sum_j w_ij log exp(s_ij/t) / (sum_k exp(s_ik/t) + exp(q_i/t)),
    s_ij = mean over R_j of cos(v_j^xy, a_i),    q_i = mean over Q_i of cos(v_i^xy, a_i)

with w_ii = 1 and w_ij = A_ij max(0, S_ij) where the sounds' similarity A_ij is above a threshold, 0
elsewhere, divided by their sum: similarity within a modality times the last iteration's similarity
across. The map is the cosine.

The pseudo-labels are the paper's; the loss, thresholds and weights are ours. "The last iteration"
is a momentum network here.

Axes: b batch (of frames), k batch (of sounds), n locations of the grid, h w the grid.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from soundspot.common.config import Positive, Share
from soundspot.model.attention import every_similarity, min_max, similarity
from soundspot.model.memory import follow, slow_copy
from soundspot.model.methods.cosine import CosineConfig, CosineMethod, Projections
from soundspot.model.methods.method import Batch, MethodOutput, Sound, mean_of
from soundspot.model.whole_batch import own, whole


@dataclass(frozen=True)
class ICLConfig(CosineConfig):
    """The switches of ICL.

    Attributes:
        positive_threshold: From here on a location of the min-max scaled map sounds.
        background_threshold: Up to here it does not; what lies between is ignored.
        alike: Above this similarity two sounds share what sounds; 1 is only its own frame.
        temperature: Of the cross-entropy (t).
        momentum: Of the network that makes the pseudo-labels.
    """

    visual_conv: bool = True
    positive_threshold: Share = 0.6
    background_threshold: Share = 0.4
    alike: float = 0.5
    temperature: Positive = 0.07
    momentum: Share = 0.99

    def __post_init__(self) -> None:
        """Refuse thresholds that cross."""
        if self.background_threshold > self.positive_threshold:
            raise ValueError("background_threshold must not be above positive_threshold")


class ICL(CosineMethod):
    """Two projections that learn from the maps of their slow copies."""

    config_class = ICLConfig
    config: ICLConfig
    takes_shares = True
    training_only = ("last.",)

    def __init__(self, config: ICLConfig) -> None:
        super().__init__(config)
        self.last = slow_copy(Projections(config))
        follow(self.last.g, self.g, 0.0)
        follow(self.last.conv, self.conv, 0.0)

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of both views' losses; the last iteration moves first."""
        config = self.config
        if self.training:
            follow(self.last.g, self.g, config.momentum)
            follow(self.last.conv, self.conv, config.momentum)
        heard = whole(self.g(batch.f_a))
        alike = similarity_of_sounds(whole(batch.f_a))
        outputs = []
        for f_v in batch.views:
            with torch.no_grad():
                before, now = self.last.g(batch.f_a), self.last.conv(f_v)
                found = min_max(similarity(before, now)).flatten(1)
                sounding = found >= config.positive_threshold
                across = whole(under(every_similarity(whole(before), now), sounding))
                weights = shares(alike, across, config)
            every = every_similarity(heard, self.conv(f_v))
            silent = found <= config.background_threshold
            loss = icl_loss(every, sounding, silent, weights, config.temperature)
            outputs.append(MethodOutput(loss, {}))
        return mean_of(outputs)


def similarity_of_sounds(f_a: Sound) -> Float[Tensor, "b b"]:
    """How alike the frozen encoder finds sounds: the cosine of what differs from their mean."""
    mean = f_a.mean(dim=1)
    unit = F.normalize(mean - mean.mean(dim=0), dim=1)
    return unit @ unit.T


def under(every: Float[Tensor, "b k n"], chosen: Bool[Tensor, "b n"]) -> Float[Tensor, "b k"]:
    """The mean of every map over the chosen locations of its frame; 0 if there are none."""
    counted = chosen.to(every.dtype)
    return torch.einsum("bkn,bn->bk", every, counted) / counted.sum(dim=1, keepdim=True).clamp(
        min=1
    )


def shares(
    alike: Float[Tensor, "k k"], across: Float[Tensor, "k k"], config: ICLConfig
) -> Float[Tensor, "k k"]:
    """w: how much of what sounds in each frame (columns) belongs to each sound (rows).

    `across` has frames as rows.
    """
    weights = torch.where(alike > config.alike, alike * across.T.clamp(min=0), 0.0)
    weights = weights.fill_diagonal_(1.0)
    return weights / weights.sum(dim=1, keepdim=True)


def icl_loss(
    every: Float[Tensor, "b k n"],
    sounding: Bool[Tensor, "b n"],
    silent: Bool[Tensor, "b n"],
    weights: Float[Tensor, "k k"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of sounds over what sounds in all frames and what does not in their own.

    `every` has frames as rows; the lowest location of a min-max scaled map is always silent, and
    the highest always sounds.
    """
    sounds_in = whole(under(every, sounding)).T
    own_silence = whole(own(under(every, silent)))[:, None]
    logits = torch.cat([sounds_in, own_silence], dim=1) / temperature
    targets = F.pad(weights, (0, 1))
    return F.cross_entropy(logits, targets)
