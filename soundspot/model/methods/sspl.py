"""SSPL (paper Fig. 3): two views and one sound, predicting each other without negatives.

Axes: b batch, p audio patches, a audio channels (c_a), c visual channels (c_v), d channels in
which sound and frame are compared, h w feature grid.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.common.config import Range
from soundspot.model import attention, losses
from soundspot.model.attention import similarity
from soundspot.model.heads import AudioTransform, Predictor, Projector
from soundspot.model.methods.method import Batch, Method, MethodOutput
from soundspot.model.momentum import follow, follow_common, slow_copy
from soundspot.model.pcm import PCM, Variant


@dataclass(frozen=True)
class SSPLConfig:
    """Every switch of SSPL; the defaults are the paper's SSPL without PCM.

    Attributes:
        c_v: Channels of the visual feature.
        c_a: Channels of the audio feature: 128 for VGGish, 1024 for YAMNet.
        pcm: Whether the predictive coding module refines the visual feature (Sec. 3.3).
        cycles: T of the PCM.
        variant: Whether g and the PCM follow the released code or the paper's text.
        visual_conv: A trained 1 x 1 convolution on the visual feature (not in the paper).
        embedding: Channels that the convolution brings the visual feature to; 0 is as many as it
            has.
        self_attention: Temperature of a self-attention without parameters on the visual feature,
            before the PCM (not in the paper); 0 is off.
        map_self_attention: The same, after the PCM and only when maps are made; training does
            without it.
        map_centering: How much of what all sounds have in common is taken from a sound when maps
            are made (not in the paper): 0 is nothing, 1 all of it.
        map_boxes: How far maps are drawn out towards boxes (not in the paper): 0 is not at all.
        scaling: How the map becomes attention weights (Table 5).
        fusion: How sound and vision are joined (Table S5).
        objective: What brings the two views' representations together; with "none" nothing does,
            and the cross-modal term learns from one view alone.
        stop_gradient: Whether SimSiam holds the predicted view constant (Table 3).
        projection: Output dimensions of the projector.
        hidden: Hidden dimensions of the projector.
        momentum: Of BYOL's target network.
        alignment: Weight of the negative-free cross-modal term (not in the paper); 0 is off.
        alignment_objective: "barlow" decorrelates what is seen and what is heard; with "clusters"
            each predicts the other's cluster.
        alignment_temperature: Softness of its pooling over the grid.
        alignment_off_diagonal: Weight of the redundancy reduction of "barlow".
        clusters: How many there are for "clusters".
    """

    c_v: int = 512
    c_a: int = 128
    pcm: bool = False
    cycles: Annotated[int, Range(1, 1000)] = 5
    variant: Variant = "released"
    visual_conv: bool = False
    embedding: Annotated[int, Range(0, 2**20)] = 0
    self_attention: float = 0.0
    map_self_attention: float = 0.0
    map_centering: float = 0.0
    map_boxes: Annotated[float, Range(0, 1)] = 0.0
    scaling: Literal["minmax", "relu", "sigmoid", "softmax", "relu+softmax"] = "minmax"
    fusion: Literal["attention", "concatenation", "product", "sum"] = "attention"
    objective: Literal["simsiam", "byol", "wmse", "barlow", "none"] = "simsiam"
    stop_gradient: bool = True
    projection: int = 2048
    hidden: int = 2048
    momentum: float = 0.99
    alignment: float = 0.0
    alignment_objective: Literal["barlow", "clusters"] = "barlow"
    alignment_temperature: float = 0.1
    alignment_off_diagonal: float = 0.005
    clusters: int = 128

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        sizes = (self.c_v, self.c_a, self.cycles, self.projection, self.hidden, self.clusters)
        if min(sizes) < 1:
            raise ValueError("c_v, c_a, cycles, projection, hidden and clusters must be at least 1")
        weights = self.alignment, self.self_attention, self.map_self_attention, self.map_centering
        if min(weights) < 0:
            raise ValueError("alignment, self-attention and centering must not be negative")
        if self.embedding and not self.visual_conv:
            raise ValueError("embedding needs visual_conv, which brings the frame there")
        if self.objective == "none" and not self.alignment:
            raise ValueError("objective=none leaves nothing to learn from: set alignment above 0")
        if self.alignment_temperature <= 0 or not 0 <= self.momentum <= 1:
            raise ValueError("alignment_temperature must be positive, momentum in 0..1")

    @property
    def width(self) -> int:
        """Channels in which sound and frame are compared."""
        return self.embedding or self.c_v


class _Encoded(NamedTuple):
    similarity: Tensor
    f_v: Tensor
    z: Tensor  # f_av itself where no objective compares views


class _Branch(nn.Module):
    """Everything between the frozen features and z: what BYOL keeps a moving average of."""

    def __init__(self, config: SSPLConfig) -> None:
        super().__init__()
        self.scaling, self.fusion = config.scaling, config.fusion
        self.self_attention = config.self_attention
        self.released = config.variant == "released"
        self.g = AudioTransform(config.c_a, config.width, of_mean=not self.released)
        self.pcm = None
        if config.pcm:
            self.pcm = PCM(config.width, config.c_a, config.cycles, config.variant)
        self.conv = nn.Conv2d(config.c_v, config.width, 1) if config.visual_conv else None
        width = config.width * (2 if config.fusion == "concatenation" else 1)
        self.projector: nn.Module = nn.Identity()
        if config.objective != "none":
            self.projector = Projector(width, config.hidden, config.projection)

    def before_pcm(self, f_v: Tensor) -> Tensor:
        """What is not in the paper: a convolution, and a self-attention without parameters."""
        if self.conv is not None:
            f_v = self.conv(f_v)
        return attention.self_attended(f_v, self.self_attention) if self.self_attention else f_v

    def visual(self, f_v: Tensor, f_a: Tensor, cycles: int | None = None) -> Tensor:
        """The visual feature the attention module sees."""
        f_v = self.before_pcm(f_v)
        if self.pcm is not None:
            f_v = self.pcm(f_v, pooled_audio(f_a, unit=self.released), cycles).f_v
        return f_v

    def forward(self, f_v: Tensor, f_a: Tensor) -> _Encoded:
        f_v = self.visual(f_v, f_a)
        attended = attention.attend(self.g(f_a), f_v, self.scaling, self.fusion)
        return _Encoded(attended.similarity, f_v, self.projector(attended.f_av))


class SSPL(Method):
    """The trained part of the paper's network; the encoders stay outside, frozen."""

    config_class = SSPLConfig
    common_sound: Tensor | None
    training_only = ("branch.projector.", "predictor.", "target.", "prototypes")

    def __init__(self, config: SSPLConfig) -> None:
        super().__init__()
        self.config = config
        self.branch = _Branch(config)
        predicts = config.objective in ("simsiam", "byol")
        self.predictor = Predictor(config.projection) if predicts else None
        self.prototypes: nn.Parameter | None = None
        if config.alignment and config.alignment_objective == "clusters":
            # Of unit length, since Adam's step is absolute: long vectors would hardly turn.
            prototypes = F.normalize(torch.randn(config.clusters, config.width), dim=1)
            self.prototypes = nn.Parameter(prototypes)
        common = torch.zeros(config.width) if config.map_centering else None
        self.register_buffer("common_sound", common)
        self.target: _Branch | None = None
        if config.objective == "byol":
            self.target = slow_copy(self.branch)

    @property
    def heads(self) -> list[nn.Parameter]:
        """The parameters that take lr_1 of Table S1; all others take lr_2."""
        predictor = [] if self.predictor is None else list(self.predictor.parameters())
        return [*self.branch.projector.parameters(), *predictor]

    def forward(self, batch: Batch) -> MethodOutput:
        """Each view runs on its own, so that batch-norm statistics stay those of one view."""
        if self.training and self.common_sound is not None:
            follow_common(self.common_sound, self.branch.g(batch.f_a))
        first = self.branch(batch.f_v1, batch.f_a)
        if self.config.objective == "none":
            loss = self._alignment(first, batch.f_a)
            return MethodOutput(loss, {"z_std": losses.collapse_monitor(first.z)})
        second = self.branch(batch.f_v2, batch.f_a)
        loss = self._objective(first.z, second.z, batch)
        report = {"objective": loss.detach(), "z_std": losses.collapse_monitor(first.z)}
        if self.config.alignment:
            aligned = (self._alignment(first, batch.f_a) + self._alignment(second, batch.f_a)) / 2
            report["alignment"] = aligned.detach()
            loss = loss + self.config.alignment * aligned
        return MethodOutput(loss, report)

    def _objective(self, z1: Tensor, z2: Tensor, batch: Batch) -> Tensor:
        match self.config.objective:
            case "barlow":
                return losses.barlow_twins(z1, z2)
            case "wmse":
                return losses.w_mse(z1, z2)
        assert self.predictor is not None
        p1, p2 = self.predictor(z1), self.predictor(z2)
        if self.target is None:
            return losses.simsiam(p1, p2, z1, z2, self.config.stop_gradient)
        with torch.no_grad():
            if self.training:
                follow(self.target, self.branch, self.config.momentum)
            target1 = self.target(batch.f_v1, batch.f_a).z
            target2 = self.target(batch.f_v2, batch.f_a).z
        return losses.byol(p1, p2, target1, target2)

    def _alignment(self, encoded: _Encoded, f_a: Tensor) -> Tensor:
        """The cross-modal term: bring together what is seen and what is heard."""
        heard, temperature = self.branch.g(f_a), self.config.alignment_temperature
        if self.prototypes is not None:
            seen, known = (
                attention.soft_maximum(
                    attention.every_similarity(self.prototypes, feature), temperature
                )
                for feature in (encoded.f_v, heard[:, :, None, None])
            )
            return losses.swapped_prediction(seen, known)
        weights = attention.spatial_softmax(encoded.similarity, temperature)
        seen = attention.attended_sum(weights, F.normalize(encoded.f_v, dim=1))
        return losses.barlow_twins(seen, heard, self.config.alignment_off_diagonal)

    def maps(
        self, f_v: Float[Tensor, "b c h w"], f_a: Float[Tensor, "b p a"], cycles: int | None = None
    ) -> Float[Tensor, "b h w"]:
        """The localization maps S, with the PCM's T of this call if given."""
        return self._map(self.hear(f_a), self.branch.visual(f_v, f_a, cycles))

    def hear(self, f_a: Float[Tensor, "b p a"]) -> Float[Tensor, "b d"]:
        """The sound as maps compare it with the frame."""
        heard: Tensor = self.branch.g(f_a)
        if self.common_sound is None:
            return heard
        return F.normalize(heard, dim=1) - self.config.map_centering * self.common_sound

    def _map(self, heard: Tensor, f_v: Tensor) -> Tensor:
        if self.config.map_self_attention:
            f_v = attention.self_attended(f_v, self.config.map_self_attention)
        return attention.boxed(similarity(heard, f_v), self.config.map_boxes)

    def maps_by_cycle(
        self, f_v: Float[Tensor, "b c h w"], f_a: Float[Tensor, "b p a"], cycles: int | None = None
    ) -> list[Float[Tensor, "b h w"]]:
        """The maps after t = 1, ..., T passes of the PCM (paper Figs. 6 and 7)."""
        if self.branch.pcm is None:
            return [self.maps(f_v, f_a)]
        heard, pooled = self.hear(f_a), pooled_audio(f_a, unit=self.branch.released)
        steps = self.branch.pcm.trace(self.branch.before_pcm(f_v), pooled, cycles)
        return [self._map(heard, step.f_v) for step in steps]


def pooled_audio(f_a: Float[Tensor, "b p a"], unit: bool = True) -> Float[Tensor, "b a"]:
    """What PCM hears: the mean over the patches, put on the unit sphere by the released code."""
    mean = f_a.mean(dim=1)
    return F.normalize(mean, dim=1) if unit else mean
