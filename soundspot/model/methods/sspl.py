"""SSPL (paper Fig. 3): two views and one sound, predicting each other without negatives.

What is not in the paper is in `sspl_plus.py`, which builds on this. Axes: b batch, p audio patches,
a audio channels (c_a), c visual channels (c_v), h w feature grid.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from soundspot.common.config import Range, Size
from soundspot.model.attention import attend, similarity
from soundspot.model.heads import AudioTransform, Predictor, Projector, pooled_audio
from soundspot.model.losses import collapse_monitor, negative_cosine
from soundspot.model.methods.method import Batch, Frame, Map, Method, MethodOutput, Sound, Vector
from soundspot.model.pcm import PCM, Variant


@dataclass(frozen=True)
class SSPLConfig:
    """The switches of the paper; the defaults are its SSPL without PCM.

    Attributes:
        c_v, c_a: Channels of the visual and of the audio feature (VGGish 128, YAMNet 1024).
        pcm, cycles: Whether the PCM refines the visual feature (Sec. 3.3), and its T.
        variant: Whether g and the PCM follow the released code or the paper's text.
        scaling, fusion: From map to weights (Table 5); how sound and vision are joined (Table S5).
        stop_gradient: Whether the predicted view is held constant (Table 3).
        projection, hidden: Output and hidden dimensions of the projector.
    """

    c_v: Size = 512
    c_a: Size = 128
    pcm: bool = False
    cycles: Annotated[int, Range(1, 1000)] = 5
    variant: Variant = "released"
    scaling: Literal["minmax", "relu", "sigmoid", "softmax", "relu+softmax"] = "minmax"
    fusion: Literal["attention", "concatenation", "product", "sum"] = "attention"
    stop_gradient: bool = True
    projection: Size = 2048
    hidden: Size = 2048


class Stream(NamedTuple):
    """What a view gives: the map S, the visual feature behind it, and z = MLP(f_av)."""

    similarity: Map
    f_v: Frame
    z: Vector


class Branch(nn.Module):
    """PCM, attention module and MLP, which both views share, and g of the sound."""

    def __init__(self, config: SSPLConfig) -> None:
        super().__init__()
        self.config = config
        c_v, c_a, variant = config.c_v, config.c_a, config.variant
        self.g = AudioTransform(c_a, c_v, of_mean=variant == "paper")
        self.pcm = PCM(c_v, c_a, config.cycles, variant) if config.pcm else None
        width = 2 * c_v if config.fusion == "concatenation" else c_v
        self.projector: nn.Module = Projector(width, config.hidden, config.projection)

    def forward(self, f_v: Frame, f_a: Sound) -> Stream:
        """One visual stream of Fig. 3."""
        (f_v,) = self.refine(f_v, f_a, cycles=None, trace=False)
        s, f_av = attend(self.g(f_a), f_v, self.config.scaling, self.config.fusion)
        return Stream(s, f_v, self.projector(f_av))

    def refine(self, f_v: Frame, f_a: Sound, cycles: int | None, trace: bool) -> list[Frame]:
        """The visual feature that the attention sees, or that after every pass of the PCM."""
        if self.pcm is None:
            return [f_v]
        heard = pooled_audio(f_a, unit=self.config.variant == "released")
        return self.pcm.trace(f_v, heard, cycles) if trace else [self.pcm(f_v, heard, cycles)]


class SSPL(Method):
    """The trained part of the paper's network; the encoders stay outside, frozen."""

    config_class: ClassVar[type[Any]] = SSPLConfig
    takes_shares = True
    training_only: tuple[str, ...] = ("branch.projector.", "predictor.")

    def __init__(self, config: SSPLConfig) -> None:
        super().__init__(config)
        self.branch = Branch(config)
        self.predictor: nn.Module = Predictor(config.projection)

    def forward(self, batch: Batch) -> MethodOutput:
        """Each view runs on its own, so that batch-norm statistics stay those of one view."""
        z1, z2 = (self.branch(f_v, batch.f_a).z for f_v in batch.views)
        loss = self.predict_views(z1, z2)
        return MethodOutput(loss, {"objective": loss.detach(), "z_std": collapse_monitor(z1)})

    def predict_views(self, z1: Vector, z2: Vector) -> Tensor:
        """Eq. 8: each view predicts the other, whose gradient is stopped; Eq. 7 without that."""
        p1, p2 = self.predictor(z1), self.predictor(z2)
        if self.config.stop_gradient:
            z1, z2 = z1.detach(), z2.detach()
        return (negative_cosine(p1, z2) + negative_cosine(p2, z1)) / 2

    @property
    def heads(self) -> list[nn.Parameter]:
        """The parameters that take lr_1 of Table S1; all others take lr_2."""
        return [*self.branch.projector.parameters(), *self.predictor.parameters()]

    def maps(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> Map:
        """The localization maps S, with the PCM's T of this call if given."""
        return self.locate(f_a, self.branch.refine(f_v, f_a, cycles, trace=False)[0])

    def maps_by_cycle(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> list[Map]:
        """The maps after t = 1, ..., T passes of the PCM (paper Figs. 6 and 7)."""
        return [self.locate(f_a, step) for step in self.branch.refine(f_v, f_a, cycles, trace=True)]

    def locate(self, f_a: Sound, f_v: Frame) -> Map:
        """S of a sound and a refined visual feature."""
        return similarity(self.branch.g(f_a), f_v)
