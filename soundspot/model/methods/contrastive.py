"""The contrastive reference: every sound picks its frame in the batch by its best location.

Multiple-instance learning with a bidirectional InfoNCE loss: the strongest simple method with
negatives, to which methods without them are to be compared.

Axes, besides those of method.py: k batch (of sounds), n locations of the grid.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.common.config import Count, Positive, Share, Size, Weight
from soundspot.model.attention import every_similarity, joined_map, side_by_side, soft_maximum
from soundspot.model.losses import info_nce, matched
from soundspot.model.methods.cosine import CosineConfig, Projections, split_parts
from soundspot.model.methods.method import Batch, Frame, Map, Method, MethodOutput, Sound
from soundspot.model.whole_batch import whole


@dataclass(frozen=True)
class ContrastiveConfig(CosineConfig):
    """The switches of the contrastive reference.

    Attributes:
        self_attention: Temperature of the self-attention without parameters that maps are made
            with; 0 is off. Training does without it.
        temperature: Of InfoNCE.
        pooling: Temperature of the soft maximum over the grid; 0 is the maximum itself.
        embedding: Dimensions in which sound and frame are compared; 0 is as many as the visual
            feature has channels.
        map_boxes: How far maps are drawn out towards boxes, which are what benchmarks annotate: 0
            is not at all, 1 gives box envelopes.
        parts: Channels of each visual encoder, if several are joined; they follow from the
            encoders. Each learns on its own, and a map averages their cosines.
        first_attends: With parts: how much the first of them counts where the self-attention
            compares locations, from 0 to 1; the others share the rest.
    """

    visual_conv: bool = True
    self_attention: Weight = 0.0
    temperature: Positive = 0.07
    pooling: Weight = 0.0
    embedding: Count = 0
    map_boxes: Share = 0.0
    parts: tuple[Size, ...] = ()
    first_attends: Share | None = None

    retired: ClassVar[Mapping[str, Any]] = MappingProxyType({"alike": 0.0, "map_centering": 0.0})

    def __post_init__(self) -> None:
        """Refuse what cannot be computed."""
        if self.embedding and not self.visual_conv:
            raise ValueError("embedding needs visual_conv, which brings the frame there")
        split_parts(self.parts, self.c_v)


class Contrastive(Method):
    """Nothing is trained but the projections; joined encoders have two each."""

    config_class = ContrastiveConfig
    config: ContrastiveConfig
    takes_shares = True

    def __init__(self, config: ContrastiveConfig) -> None:
        super().__init__(config)
        alone = [replace(config, c_v=c_v, parts=()) for c_v in config.parts or (config.c_v,)]
        projections = [Projections(part, config.embedding) for part in alone]
        self.towers = nn.ModuleList(projections if config.parts else [])
        if not config.parts:
            self.g, self.conv = projections[0].g, projections[0].conv

    @property
    def _projections(self) -> list[Any]:
        """What has the transform g of the sound and the convolution of the frame, per encoder."""
        return list(self.towers) if self.config.parts else [self]

    def hear(self, f_a: Sound) -> list[Float[Tensor, "b _d"]]:
        """The sound as each encoder's projection hears it."""
        return [one.g(f_a) for one in self._projections]

    def see(self, f_v: Frame) -> list[Float[Tensor, "b _d h w"]]:
        """The frame as each encoder's projection sees it."""
        parts = torch.split(f_v, list(self.config.parts or f_v.shape[1:2]), dim=1)
        return [one.conv(part) for one, part in zip(self._projections, parts, strict=True)]

    def forward(self, batch: Batch) -> MethodOutput:
        """InfoNCE of both views, in both directions, and of each encoder on its own."""
        heard = [whole(sound) for sound in self.hear(batch.f_a)]
        losses, logits = [], []
        for f_v in batch.views:
            every = [every_similarity(*both) for both in zip(heard, self.see(f_v), strict=True)]
            best = [whole(soft_maximum(each, self.config.pooling)) for each in every]
            fits = [each / self.config.temperature for each in best]
            losses += [info_nce(fit) for fit in fits]
            logits.append(torch.stack(fits).mean(dim=0))
        right = torch.stack([matched(fit) for fit in logits]).mean()
        return MethodOutput(torch.stack(losses).mean(), {"matched": right.detach()})

    def maps(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> Map:
        """The cosine of the sound with every location, after self-attention if that is on."""
        config, heard = self.config, side_by_side(self.hear(f_a))
        return joined_map(
            heard, self.see(f_v), config.self_attention, config.map_boxes, config.first_attends
        )
