"""What the training loop and the localizer ask of a method.

Axes: b batch, p audio patches, a audio channels (c_a), c visual channels (c_v), h w feature grid,
d dimensions of a representation.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from soundspot.common.config import Size
from soundspot.common.errors import SoundspotError
from soundspot.model.whole_batch import whole

Frame = Float[Tensor, "b c h w"]
Sound = Float[Tensor, "b p a"]
Map = Float[Tensor, "b h w"]
Vector = Float[Tensor, "b d"]


class Batch(NamedTuple):
    """What a method learns from: the visual features of two views, and audio embeddings per patch.

    `cls` is the class index, or -1 where there is none; only label-guided baselines may look.
    `taught` is where a teacher sees the sound in both views, from 0 to 1, or NaN where it has not
    looked; None without a teacher.
    """

    f_v1: Frame
    f_v2: Frame
    f_a: Sound
    cls: Int[Tensor, "b"]
    taught: Float[Tensor, "b 2 _h _w"] | None = None

    @property
    def views(self) -> tuple[Frame, Frame]:
        """The visual features of both views."""
        return self.f_v1, self.f_v2

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with all that it holds changed."""
        return Batch._make(held if held is None else change(held) for held in self)


@dataclass(frozen=True)
class MethodConfig:
    """The channels that every method takes from its encoders.

    Attributes:
        c_v: Channels of the visual feature.
        c_a: Channels of the audio feature: 128 for VGGish, 1024 for YAMNet.
    """

    c_v: Size = 512
    c_a: Size = 128


class MethodOutput(NamedTuple):
    """The loss to minimize, and detached scalars for the log."""

    loss: Float[Tensor, ""]
    report: dict[str, Tensor]


def mean_of(outputs: Iterable[MethodOutput]) -> MethodOutput:
    """The mean of losses, of both views for example, and of all that they report."""
    losses, reports = zip(*outputs, strict=True)
    report = {
        name: torch.stack([each[name].detach() for each in reports]).mean() for name in reports[0]
    }
    return MethodOutput(torch.stack(losses).mean(), report)


class Method(nn.Module):
    """The trained part of a network; the encoders stay outside, frozen.

    Attributes:
        config_class: The dataclass of its switches, which its constructor takes.
        training_only: How the names of weights begin that `maps` does not use.
        trainable: False if there is nothing to train, and no loss.
        full_precision: Whether its loss compares what bfloat16 would round away, so that train.amp
            leaves it in float32.
        takes_shares: Whether `forward`, in the class that defines it, gathers what its loss needs
            (see whole_batch.py), so that each of several processes computes a share of the batch.
            Without that, each gets all features.
        per_pair: Whether its loss is a mean over pairs that know nothing of each other, so that a
            batch may be computed in parts (train.accumulate).
        line: The settings of its line in `reproduce main`, if an installed package adds it.
    """

    config_class: ClassVar[type[Any]]
    training_only: tuple[str, ...] = ()
    trainable: bool = True
    full_precision: bool = False
    takes_shares: bool = False
    per_pair: bool = False
    line: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.config = config

    @property
    def heads(self) -> list[nn.Parameter]:
        """The parameters that take lr_1 of Table S1; all others take lr_2."""
        return []

    @property
    def resting(self) -> list[nn.Parameter]:
        """The parameters that the last forward pass did not train: the optimizer passes them by."""
        return []

    def prepare(self, hear: Callable[[Tensor], Sound]) -> None:
        """Before training: hear sounds that no pair has, given as waveforms, with its encoder."""

    def forward(self, batch: Batch) -> MethodOutput:
        """The losses of a batch of two views and their sound."""
        raise NotImplementedError

    def maps(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> Map:
        """The localization maps; `cycles` is the PCM's T for this call, where there is one."""
        raise NotImplementedError

    def maps_by_cycle(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> list[Map]:
        """The maps after t = 1, ..., T passes of a PCM; one map where there is no PCM."""
        return [self.maps(f_v, f_a)]


def other_pairs(batch: Batch) -> Bool[Tensor, "k k"]:
    """Which sound (column) belongs to another pair than the frame (row); there must be one."""
    size = len(whole(batch.cls))
    if size < 2:
        raise SoundspotError(f"this method cannot learn from a batch of {size}; raise train.batch")
    return ~torch.eye(size, dtype=torch.bool, device=batch.cls.device)
