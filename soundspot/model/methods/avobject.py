"""Audio-visual objects (Afouras, Owens, Chung and Zisserman, ECCV 2020), their core on one frame.

Each modality is embedded by FC-BN-ReLU-FC and normalized. A frame and a sound score

    S(v, a) = scale * mean over t of max over x of cos(v(x), a(t)),

with a learned scale, and the loss is -log exp S(v, a+) / (exp S(v, a+) + sum over a- of exp S(v,
a-)): a frame picks its sound. The map is the cosine, averaged over t.

Axes, besides those of method.py: k batch (of sounds), n locations, t patches of the sound.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.common.config import Positive, Size
from soundspot.model.losses import matched, pick_own
from soundspot.model.methods import method
from soundspot.model.whole_batch import whole


@dataclass(frozen=True)
class AVObjectConfig(method.MethodConfig):
    """The switches of audio-visual objects; the defaults are those of the released code.

    Attributes:
        hidden: Hidden dimensions of both embeddings.
        embedding: Dimensions in which a location and a sound are compared.
        scale: What the learned scale starts from.
    """

    hidden: Size = 512
    embedding: Size = 1024
    scale: Positive = 1.0


class AVObject(method.Method):
    """Two embeddings, and the scale of their cosine."""

    config_class = AVObjectConfig
    config: AVObjectConfig
    takes_shares = True
    training_only = ("scale",)

    def __init__(self, config: AVObjectConfig) -> None:
        super().__init__(config)
        self.visual = _embedding(config.c_v, config.hidden, config.embedding)
        self.audio = _embedding(config.c_a, config.hidden, config.embedding)
        self.scale = nn.Parameter(torch.tensor(config.scale))

    def forward(self, batch: method.Batch) -> method.MethodOutput:
        """The mean of both views' losses; each view has its own batch-norm statistics."""
        method.other_pairs(batch)
        heard, scale = whole(self._hear(batch.f_a)), self.scale
        scores = (every_score(self._see(f_v).flatten(2), heard) for f_v in batch.views)
        both = [scale * whole(each) for each in scores]
        return method.mean_of(
            method.MethodOutput(pick_own(scores), {"matched": matched(scores), "scale": scale})
            for scores in both
        )

    def maps(self, f_v: method.Frame, f_a: method.Sound, cycles: int | None = None) -> method.Map:
        """The cosine of every location with the sound, averaged over its patches."""
        return torch.einsum("bdhw,bdt->bhwt", self._see(f_v), self._hear(f_a)).mean(dim=3)

    def _see(self, f_v: method.Frame) -> Float[Tensor, "b d h w"]:
        return F.normalize(self.visual(f_v), dim=1)

    def _hear(self, f_a: method.Sound) -> Float[Tensor, "b d p"]:
        embedded: Tensor = self.audio(f_a.transpose(1, 2)[..., None])
        return F.normalize(embedded[..., 0], dim=1)


def _embedding(channels: int, hidden: int, out: int) -> nn.Sequential:
    """FC-BN-ReLU-FC at every location or patch."""
    return nn.Sequential(
        nn.Conv2d(channels, hidden, 1), nn.BatchNorm2d(hidden), nn.ReLU(), nn.Conv2d(hidden, out, 1)
    )


def every_score(
    seen: Float[Tensor, "b d n"], heard: Float[Tensor, "k d t"]
) -> Float[Tensor, "b k"]:
    """S without its scale: the best location of every patch, averaged over the patches."""
    return torch.einsum("bdn,kdt->bktn", seen, heard).max(dim=3).values.mean(dim=2)
