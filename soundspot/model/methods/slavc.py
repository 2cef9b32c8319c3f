"""SLAVC (Mo and Morgado, NeurIPS 2022) on the frozen features SSPL sees.

Where a sound comes from and whether it belongs to a frame at all are asked in two branches. With
unit features v1, a1 of the correspondence branch, v2, a2 of the localization branch, and bars on
what a momentum network makes, frame i fits sound j by

    p_ij = sum_xy softmax_j(v1_i^xy . a1_j / t) softmax_xy(v2_i^xy . a2_j / t)

    L = CE(log p(v, bar a)) + CE(log p(bar v, a)),

the cross-entropy of every frame over the sounds. Extreme dropout of the visual feature (0.9) and
the momentum network (0.999) fight over-fitting; maps are the mean of both branches' cosines, made
by the momentum network, whose input is dropped out as well.

Axes, besides those of method.py: k batch (of sounds), n locations of the grid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.common.config import BelowOne, Positive, Share
from soundspot.model.attention import every_similarity, similarity
from soundspot.model.losses import matched, pick_own
from soundspot.model.memory import Draws, dropped, follow, slow_copy
from soundspot.model.methods import method
from soundspot.model.methods.cosine import CosineConfig, Projections
from soundspot.model.whole_batch import whole


@dataclass(frozen=True)
class SLAVCConfig(CosineConfig):
    """The switches of SLAVC; the defaults are those of its released code.

    Attributes:
        temperature: Of both softmaxes (t).
        dropout: Share of the visual feature that is dropped out in training.
        momentum: Of the momentum network.
    """

    visual_conv: bool = True
    temperature: Positive = 0.03
    dropout: BelowOne = 0.9
    momentum: Share = 0.999

    retired: ClassVar[Mapping[str, Any]] = MappingProxyType({"momentum_maps": True})


class Branches(NamedTuple):
    """A frame or a sound in the correspondence and in the localization branch."""

    correspondence: Tensor
    localization: Tensor


class _Network(nn.Module):
    def __init__(self, config: SLAVCConfig) -> None:
        super().__init__()
        self.correspondence = Projections(config)
        self.localization = Projections(config)

    def see(self, f_v: Tensor) -> Branches:
        return Branches(self.correspondence.conv(f_v), self.localization.conv(f_v))

    def hear(self, f_a: Tensor) -> Branches:
        return Branches(self.correspondence.g(f_a), self.localization.g(f_a))


class SLAVC(method.Method):
    """Two branches, each trained against the slow copy of itself."""

    config_class = SLAVCConfig
    config: SLAVCConfig
    takes_shares = True
    training_only = ("draws.", "trained.")

    def __init__(self, config: SLAVCConfig) -> None:
        super().__init__(config)
        self.trained = _Network(config)
        self.slow = slow_copy(self.trained)
        self.draws = Draws()

    def forward(self, batch: method.Batch) -> method.MethodOutput:
        """Both losses; the momentum network moves first, towards what the last step left."""
        method.other_pairs(batch)
        config = self.config
        generator = self.draws.step() if self.training else None
        first = dropped(batch.f_v1, config.dropout, generator)
        second = dropped(batch.f_v2, config.dropout, generator)
        with torch.no_grad():
            if self.training:
                follow(self.slow, self.trained, config.momentum)
            slow_seen = self.slow.see(second)
            slow_heard = Branches(*map(whole, self.slow.hear(batch.f_a)))
        seen = self.trained.see(first)
        heard = Branches(*map(whole, self.trained.hear(batch.f_a)))
        fits = whole(fit(seen, slow_heard, config.temperature))
        loss = pick_own(fits) + pick_own(whole(fit(slow_seen, heard, config.temperature)))
        return method.MethodOutput(loss, {"matched": matched(fits.detach())})

    def maps(self, f_v: method.Frame, f_a: method.Sound, cycles: int | None = None) -> method.Map:
        """The mean of both branches' cosines."""
        seen, heard = self.slow.see(f_v), self.slow.hear(f_a)
        return (similarity(heard[0], seen[0]) + similarity(heard[1], seen[1])) / 2


def fit(seen: Branches, heard: Branches, temperature: float) -> Float[Tensor, "b k"]:
    """How well every frame fits every sound (log p), summed over where it may come from."""
    belongs = every_similarity(heard.correspondence, seen.correspondence) / temperature
    place = every_similarity(heard.localization, seen.localization) / temperature
    return (belongs.log_softmax(dim=1) + place.log_softmax(dim=2)).logsumexp(dim=2)
