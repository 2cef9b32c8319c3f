"""SSPL with what is not in the paper.

With its defaults, `SSPLPlus` is the SSPL of `sspl.py`. It adds the extensions that the paper
proposes (BYOL, W-MSE, Barlow Twins) and ours: a 1 x 1 convolution, a cross-modal term without
negatives, self-attention, and ways to make maps.

Axes: b batch, p audio patches, a audio channels (c_a), c visual channels (c_v), d channels in
which sound and frame are compared, h w feature grid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from soundspot.common.config import Positive, Range, Share, Size, Weight
from soundspot.model import attention, losses
from soundspot.model.heads import AudioTransform, Predictor, Projector
from soundspot.model.memory import follow, follow_common, slow_copy
from soundspot.model.methods.method import (
    Batch,
    Frame,
    Map,
    Method,
    MethodOutput,
    Sound,
    Vector,
)
from soundspot.model.methods.sspl import SSPL, Branch, SSPLConfig, Stream
from soundspot.model.pcm import PCM
from soundspot.model.whole_batch import whole


@dataclass(frozen=True)
class SSPLPlusConfig(SSPLConfig):
    """Every switch of SSPL; none of these is in the paper, except for `objective`.

    Attributes:
        visual_conv: A trained 1 x 1 convolution on the visual feature.
        embedding: Channels that the convolution brings the visual feature to; 0 is as many as it
            has.
        map_self_attention: Temperature of a self-attention without parameters on the visual
            feature, only when maps are made: training does without it. 0 is off.
        map_centering: How much of what all sounds have in common is taken from a sound when maps
            are made: 0 is nothing, 1 all of it.
        objective: What brings the two views' representations together; with "none" nothing does,
            and the cross-modal term learns from one view alone.
        momentum: Of BYOL's target network.
        alignment: Weight of the negative-free cross-modal term; 0 is off.
        alignment_objective: "barlow" decorrelates what is seen and what is heard; with "clusters"
            each predicts the other's cluster.
        alignment_temperature: Softness of its pooling over the grid.
        clusters: How many there are for "clusters".
    """

    visual_conv: bool = False
    embedding: Annotated[int, Range(0, 2**20)] = 0
    map_self_attention: Weight = 0.0
    map_centering: Weight = 0.0
    objective: Literal["simsiam", "byol", "wmse", "barlow", "none"] = "simsiam"
    momentum: Share = 0.99
    alignment: Weight = 0.0
    alignment_objective: Literal["barlow", "clusters"] = "barlow"
    alignment_temperature: Positive = 0.1
    clusters: Size = 128

    retired: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"self_attention": 0.0, "map_boxes": 0.0, "alignment_off_diagonal": 0.005}
    )

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if self.embedding and not self.visual_conv:
            raise ValueError("embedding needs visual_conv, which brings the frame there")
        if self.objective == "none" and not self.alignment:
            raise ValueError("objective=none leaves nothing to learn from: set alignment above 0")

    @property
    def width(self) -> int:
        """Channels in which sound and frame are compared."""
        return self.embedding or self.c_v


class PlusBranch(Branch):
    """A branch whose visual feature may be convolved before the PCM."""

    config: SSPLPlusConfig

    def __init__(self, config: SSPLPlusConfig) -> None:
        nn.Module.__init__(self)  # not the branch's: a seed draws the convolution before the MLP
        self.config, width = config, config.width
        self.g = AudioTransform(config.c_a, width, of_mean=config.variant == "paper")
        self.pcm = PCM(width, config.c_a, config.cycles, config.variant) if config.pcm else None
        self.conv = nn.Conv2d(config.c_v, width, 1) if config.visual_conv else nn.Identity()
        width *= 2 if config.fusion == "concatenation" else 1
        self.projector = nn.Identity()
        if config.objective != "none":
            self.projector = Projector(width, config.hidden, config.projection)

    def refine(self, f_v: Frame, f_a: Sound, cycles: int | None, trace: bool) -> list[Tensor]:
        """Convolution, then the PCM."""
        return super().refine(self.conv(f_v), f_a, cycles, trace)


class SSPLPlus(SSPL):
    """SSPL with other objectives, the cross-modal term, and other ways to make maps."""

    config_class = SSPLPlusConfig
    takes_shares = True
    config: SSPLPlusConfig
    common_sound: Tensor | None
    training_only = (*SSPL.training_only, "target.", "prototypes")

    def __init__(self, config: SSPLPlusConfig) -> None:
        Method.__init__(self, config)
        self.branch = PlusBranch(config)
        self.predictor = nn.Identity()
        if config.objective in ("simsiam", "byol"):
            self.predictor = Predictor(config.projection)
        self.prototypes: nn.Parameter | None = None
        if config.alignment and config.alignment_objective == "clusters":
            # Of unit length, since Adam's step is absolute: long vectors would hardly turn.
            prototypes = F.normalize(torch.randn(config.clusters, config.width), dim=1)
            self.prototypes = nn.Parameter(prototypes)
        common = torch.zeros(config.width) if config.map_centering else None
        self.register_buffer("common_sound", common)
        self.target = slow_copy(self.branch) if config.objective == "byol" else None

    def forward(self, batch: Batch) -> MethodOutput:
        """The objective of both views, and the cross-modal term of each."""
        if self.training and self.common_sound is not None:
            follow_common(self.common_sound, self.branch.g(batch.f_a))
        first = self.branch(batch.f_v1, batch.f_a)
        spread = losses.collapse_monitor(first.z)
        if self.config.objective == "none":
            loss = self._alignment(first, batch.f_a)
            return MethodOutput(loss, {"z_std": spread})
        second = self.branch(batch.f_v2, batch.f_a)
        loss = self._objective(first.z, second.z, batch)
        report = {"objective": loss.detach(), "z_std": spread}
        if self.config.alignment:
            aligned = (self._alignment(first, batch.f_a) + self._alignment(second, batch.f_a)) / 2
            report["alignment"] = aligned.detach()
            loss = loss + self.config.alignment * aligned
        return MethodOutput(loss, report)

    def _objective(self, z1: Tensor, z2: Tensor, batch: Batch) -> Tensor:
        if self.config.objective == "barlow":
            return losses.barlow_twins(whole(z1), whole(z2))
        if self.config.objective == "wmse":
            return losses.w_mse(whole(z1), whole(z2))
        if self.target is None:
            return self.predict_views(z1, z2)
        with torch.no_grad():
            if self.training:
                follow(self.target, self.branch, self.config.momentum)
            target1, target2 = (self.target(f_v, batch.f_a).z for f_v in batch.views)
        return losses.byol(self.predictor(z1), self.predictor(z2), target1, target2)

    def _alignment(self, stream: Stream, f_a: Tensor) -> Tensor:
        """The cross-modal term: bring together what is seen and what is heard."""
        heard, temperature = self.branch.g(f_a), self.config.alignment_temperature
        if self.prototypes is not None:
            features = stream.f_v, heard[:, :, None, None]
            every = (attention.every_similarity(self.prototypes, feature) for feature in features)
            seen, known = (attention.soft_maximum(cosines, temperature) for cosines in every)
            return losses.swapped_prediction(whole(seen), whole(known))
        weights = attention.spatial_softmax(stream.similarity, temperature)
        seen = attention.attended_sum(weights, F.normalize(stream.f_v, dim=1))
        return losses.barlow_twins(whole(seen), whole(heard))

    def hear(self, f_a: Sound) -> Vector:
        """The sound as maps compare it with the frame."""
        heard: Tensor = self.branch.g(f_a)
        if self.common_sound is None:
            return heard
        return F.normalize(heard, dim=1) - self.config.map_centering * self.common_sound

    def locate(self, f_a: Sound, f_v: Frame) -> Map:
        """The cosine of sound and frame, after self-attention if that is on."""
        return attention.joined_map(self.hear(f_a), [f_v], self.config.map_self_attention)
