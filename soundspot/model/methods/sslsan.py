"""SSL-SaN (Juanola et al., BMVC 2025): silence and noise as negatives of every picture.

No picture shows what silence or noise comes from, so a frame has to fit its own sound better than
those too (n), besides the sounds of the other pairs:

    L = -1/B sum_i [log exp(s_ii/t) / (sum_j exp(s_ij/t) + sum_n exp(s_in/t))
                    + log exp(s_ii/t) / sum_j exp(s_ji/t)]

where s is EZ-VSL's, the cosine of the best location. The map is the cosine.

Axes: n silence and noises, p audio patches, a audio channels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from soundspot.media.clips import SOUND_SAMPLES
from soundspot.model.attention import every_similarity
from soundspot.model.losses import matched, pick_own
from soundspot.model.methods.ezvsl import EZVSL, EZVSLConfig
from soundspot.model.methods.method import Batch, MethodOutput, Sound, mean_of, other_pairs
from soundspot.model.whole_batch import whole

PATCHES = 3  # of a sound
NOISES = 16
LOUDNESS, SEED = 0.1, 1  # of the noises; those that evaluation draws are others


@dataclass(frozen=True)
class SSLSaNConfig(EZVSLConfig):
    """The switches of SSL-SaN: EZ-VSL's."""


class SSLSaN(EZVSL):
    """EZ-VSL with sounds that come from nowhere as further negatives."""

    config_class = SSLSaNConfig
    takes_shares = True
    training_only = ("unseen",)
    unseen: Tensor  # "n p a": what the frozen encoder hears in them

    def __init__(self, config: SSLSaNConfig) -> None:
        super().__init__(config)
        self.register_buffer("unseen", torch.zeros(1 + NOISES, PATCHES, config.c_a))

    def prepare(self, hear: Callable[[Tensor], Sound]) -> None:
        """Hear silence once, and a few draws of white noise."""
        drawn = torch.Generator().manual_seed(SEED)
        noises = LOUDNESS * torch.randn(NOISES, SOUND_SAMPLES, generator=drawn)
        self.unseen.copy_(hear(torch.cat([torch.zeros(1, SOUND_SAMPLES), noises])))

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of both views' losses, each the sum of both directions."""
        size = len(other_pairs(batch))
        heard = torch.cat([whole(self.g(batch.f_a)), self.g(self.unseen)])
        outputs = []
        for f_v in batch.views:
            best = whole(every_similarity(heard, self.conv(f_v)).amax(dim=2))
            s = best / self.config.temperature
            loss = pick_own(s) + pick_own(s[:, :size].T)
            outputs.append(MethodOutput(loss, {"matched": matched(s[:, :size])}))
        return mean_of(outputs)
