"""The contrastive reference: every sound picks its frame in the batch by its best location.

Multiple-instance learning with a bidirectional InfoNCE loss: the strongest simple method with
negatives, to which methods without them are to be compared.

Axes: b batch (of frames), k batch (of sounds), n locations of the grid, p audio patches, a audio
channels (c_a), c visual channels (c_v), h w feature grid.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.common.config import Count, Positive, Share, Size, Weight
from soundspot.model.attention import (
    every_similarity,
    joined_map,
    side_by_side,
    soft_maximum,
)
from soundspot.model.methods.cosine import CosineConfig, Projections, split_parts
from soundspot.model.methods.method import Batch, Frame, Map, Method, MethodOutput, Sound
from soundspot.model.momentum import follow_common


@dataclass(frozen=True)
class ContrastiveConfig(CosineConfig):
    """The switches of the contrastive reference.

    Attributes:
        self_attention: Temperature of the self-attention without parameters that maps are made
            with; 0 is off. Training does without it.
        temperature: Of InfoNCE.
        pooling: Temperature of the soft maximum over the grid; 0 is the maximum itself.
        alike: Temperature of soft targets: sounds that the frozen encoder finds alike share the
            target, so that false negatives are not pushed away; 0 is one target a sound.
        embedding: Dimensions in which sound and frame are compared; 0 is as many as the visual
            feature has channels.
        map_centering: How much of what all sounds have in common is taken from a sound when maps
            are made: 0 is nothing, 1 all of it.
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
    alike: Weight = 0.0
    embedding: Count = 0
    map_centering: Weight = 0.0
    map_boxes: Share = 0.0
    parts: tuple[Size, ...] = ()
    first_attends: Share | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be computed."""
        if self.embedding and not self.visual_conv:
            raise ValueError("embedding needs visual_conv, which brings the frame there")
        split_parts(self.parts, self.c_v)


class Contrastive(Method):
    """Nothing is trained but the projections; joined encoders have two each."""

    config_class = ContrastiveConfig
    common_sound: Tensor | None

    def __init__(self, config: ContrastiveConfig) -> None:
        super().__init__()
        self.config = config
        alone = [replace(config, c_v=c_v, parts=()) for c_v in config.parts or (config.c_v,)]
        projections = [Projections(part, config.embedding) for part in alone]
        self.towers = nn.ModuleList(projections if config.parts else [])
        if not config.parts:
            self.g, self.conv = projections[0].g, projections[0].conv
        common = torch.zeros(sum(config.embedding or part.c_v for part in alone))
        self.register_buffer("common_sound", common if config.map_centering else None)

    @property
    def _projections(self) -> list[tuple[nn.Module, nn.Module]]:
        """The transform g of the sound and the convolution of the frame, for each encoder."""
        if not self.config.parts:
            return [(self.g, self.conv)]
        return [(tower.g, tower.conv) for tower in map(_as_projections, self.towers)]

    def hear(self, f_a: Sound) -> list[Float[Tensor, "b _d"]]:
        """The sound as each encoder's projection hears it."""
        return [g(f_a) for g, _ in self._projections]

    def see(self, f_v: Frame) -> list[Float[Tensor, "b _d h w"]]:
        """The frame as each encoder's projection sees it."""
        parts = torch.split(f_v, list(self.config.parts or f_v.shape[1:2]), dim=1)
        return [conv(part) for (_, conv), part in zip(self._projections, parts, strict=True)]

    def forward(self, batch: Batch) -> MethodOutput:
        """InfoNCE of both views, in both directions, and of each encoder on its own."""
        heard = self.hear(batch.f_a)
        if self.training and self.common_sound is not None:
            follow_common(self.common_sound, side_by_side(heard))
        targets = alike_targets(batch.f_a, self.config.alike)
        losses, logits = [], []
        for f_v in (batch.f_v1, batch.f_v2):
            every = [every_similarity(*both) for both in zip(heard, self.see(f_v), strict=True)]
            fits = [soft_maximum(e, self.config.pooling) / self.config.temperature for e in every]
            losses += [info_nce(fit, targets) for fit in fits]
            logits.append(torch.stack(fits).mean(dim=0))
        right = torch.stack([matched(fit) for fit in logits]).mean()
        return MethodOutput(torch.stack(losses).mean(), {"matched": right.detach()})

    def maps(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> Map:
        """The cosine of the sound with every location, after self-attention if that is on."""
        config, heard = self.config, side_by_side(self.hear(f_a))
        if self.common_sound is not None:
            heard = F.normalize(heard, dim=1) - config.map_centering * self.common_sound
        return joined_map(
            heard, self.see(f_v), config.self_attention, config.map_boxes, config.first_attends
        )


def _as_projections(module: nn.Module) -> Projections:
    assert isinstance(module, Projections)  # a ModuleList does not say of what
    return module


def alike_targets(f_a: Sound, temperature: float) -> Float[Tensor, "b b"]:
    """Which sounds count as the same: each only itself, or a softmax over their similarity."""
    if temperature == 0:
        return torch.eye(len(f_a), device=f_a.device)
    return (similarity_of_sounds(f_a) / temperature).softmax(dim=1)


def similarity_of_sounds(f_a: Sound) -> Float[Tensor, "b b"]:
    """How alike the frozen encoder finds sounds: the cosine of what differs from their mean."""
    mean = f_a.mean(dim=1)
    unit = F.normalize(mean - mean.mean(dim=0), dim=1)
    return unit @ unit.T


def info_nce(logits: Float[Tensor, "b b"], targets: Float[Tensor, "b b"]) -> Float[Tensor, ""]:
    """Cross-entropy of frames over sounds and of sounds over frames."""
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2


def matched(logits: Float[Tensor, "b b"]) -> Float[Tensor, ""]:
    """The share of frames that fit their own sound best."""
    diagonal = torch.arange(len(logits), device=logits.device)
    return (logits.argmax(dim=1) == diagonal).float().mean()
