"""The small model: it learns to hear by contrast, and the extent of things from a larger model.

Nothing is annotated: beside InfoNCE, the teacher's maps of some training pairs are all it sees. The
encoder's last feature says what is where, its finer one where that ends.

Axes, besides those of method.py: H W the finer grid, twice the feature's.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot.common.config import Count, Positive, Size, Weight
from soundspot.model.attention import every_similarity, similarity, soft_maximum
from soundspot.model.heads import AudioTransform
from soundspot.model.losses import info_nce, matched
from soundspot.model.methods.method import (
    Batch,
    Frame,
    Map,
    Method,
    MethodConfig,
    MethodOutput,
    Sound,
)

FINER = 2  # fine cells along a side of a cell


@dataclass(frozen=True)
class StudentConfig(MethodConfig):
    """The sizes, and how much the teacher counts.

    Attributes:
        fine: Channels of the encoder's finer feature, four of whose cells stand behind each cell of
            the last one: 96 of mobilenetv2-fine; 0 is none.
        embedding: Dimensions in which sound and frame are compared.
        temperature: Of InfoNCE.
        pooling: Temperature of the soft maximum over the grid.
        extent: Weight of the teacher's maps.
        level: The cosine that is as hot as one half of the teacher's peak.
        sharpness: How steeply heat rises with the cosine.
    """

    fine: Count = 0
    embedding: Size = 192
    temperature: Positive = 0.07
    pooling: Positive = 0.1
    extent: Weight = 4.0
    level: float = 0.3
    sharpness: Positive = 8.0

    def __post_init__(self) -> None:
        """Refuse a finer feature that the encoder does not have."""
        if FINER**2 * self.fine >= self.c_v:
            raise ValueError(f"fine={self.fine} takes all of c_v={self.c_v} channels")


class Student(Method):
    """Two grids become one; its cosines with the sound become heat from 0 to 1."""

    config_class = StudentConfig
    config: StudentConfig

    def __init__(self, config: StudentConfig) -> None:
        super().__init__(config)
        width, fine = config.embedding, config.fine
        self.g = AudioTransform(config.c_a, width)
        self.last = nn.Conv2d(config.c_v - FINER**2 * fine, width, 1)
        self.fine = nn.Conv2d(fine, width, 1) if fine else None
        if self.fine is not None:  # first hear, by the feature that knows things
            nn.init.zeros_(self.fine.weight)
        self.around = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.mix = nn.Conv2d(width, width, 1)

    def see(self, f_v: Frame) -> Float[Tensor, "b d H W"]:
        """The frame on the finer grid, where it is compared with sounds."""
        channels = self.last.in_channels
        seen: Tensor = self.last(f_v[:, :channels])
        if self.fine is not None:
            fine = F.pixel_shuffle(f_v[:, channels:], FINER)
            size = (fine.shape[2], fine.shape[3])
            seen = F.interpolate(seen, size, mode="bilinear") + self.fine(fine)
        embedded: Tensor = seen + self.mix(F.relu(self.around(F.relu(seen))))
        return embedded

    def forward(self, batch: Batch) -> MethodOutput:
        """InfoNCE of both views, and the cross-entropy of their heat where a teacher saw them."""
        heard, config = self.g(batch.f_a), self.config
        contrasts, extents, rights = [], [], []
        for number, f_v in enumerate(batch.views):
            seen = self.see(f_v)
            fits = soft_maximum(every_similarity(heard, seen), config.pooling) / config.temperature
            contrasts.append(info_nce(fits))
            rights.append(matched(fits))
            if batch.taught is not None:
                logits = self._logits(similarity(heard, seen))
                extents.append(_cross_entropy(logits, batch.taught[:, number]))
        loss = torch.stack(contrasts).mean()
        report = {"matched": torch.stack(rights).mean().detach(), "contrast": loss.detach()}
        if extents:
            extent = torch.stack(extents).mean()
            loss, report["extent"] = loss + config.extent * extent, extent.detach()
        return MethodOutput(loss, report)

    def maps(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> Float[Tensor, "b H W"]:
        """The heat, which is as high as the teacher's."""
        return torch.sigmoid(self._logits(similarity(self.g(f_a), self.see(f_v))))

    def _logits(self, cosines: Map) -> Map:
        return self.config.sharpness * (cosines - self.config.level)


def _cross_entropy(logits: Map, taught: Float[Tensor, "b _h _w"]) -> Float[Tensor, ""]:
    """Where the teacher has looked; without a finer feature, on a coarser grid than it gives."""
    taught = F.adaptive_avg_pool2d(taught, (logits.shape[1], logits.shape[2]))
    known = ~taught.isnan()
    every = F.binary_cross_entropy_with_logits(logits, taught.nan_to_num(), reduction="none")
    return (every * known).sum() / known.sum().clamp_min(1)
