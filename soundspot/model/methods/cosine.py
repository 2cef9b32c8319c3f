"""What the methods with negatives share: which pairs those are, two projections, their cosine.

Axes: b batch.
"""

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool
from torch import Tensor, nn

from soundspot.common.errors import SoundspotError
from soundspot.model.attention import similarity
from soundspot.model.heads import AudioTransform
from soundspot.model.methods.method import (
    Batch,
    Frame,
    Map,
    Method,
    MethodConfig,
    Sound,
    other_pairs,
)
from soundspot.model.whole_batch import whole

Negatives = Literal["all", "other_class"]


@dataclass(frozen=True)
class CosineConfig(MethodConfig):
    """The sizes of the projections.

    Attributes:
        visual_conv: A trained 1 x 1 convolution on the visual feature.
    """

    visual_conv: bool = False


class Projections(nn.Module):
    """g for the sound, and a 1 x 1 convolution or nothing for the frame.

    Args:
        config: The sizes.
        width: Dimensions that both are brought to; by default the channels of the visual feature.
    """

    def __init__(self, config: CosineConfig, width: int | None = None) -> None:
        super().__init__()
        width = width or config.c_v
        self.g = AudioTransform(config.c_a, width)
        self.conv = nn.Conv2d(config.c_v, width, 1) if config.visual_conv else nn.Identity()


class CosineMethod(Method):
    """The two projections, and their cosine as the map."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        made = Projections(config)
        self.g, self.conv = made.g, made.conv

    def maps(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> Map:
        """The cosine of the transformed sound with every location."""
        return similarity(self.g(f_a), self.conv(f_v))


def negative_pairs(batch: Batch, negatives: Negatives) -> Bool[Tensor, "k k"]:
    """Which sound (column) is a negative of which frame (row).

    A pair is never its own negative. Two pairs that were given the same sound file are negatives of
    each other all the same, as a batch does not say which file a sound came from.
    """
    if negatives == "all":
        return other_pairs(batch)
    cls = whole(batch.cls)
    if (cls < 0).any():
        raise SoundspotError("negatives=other_class needs the class of every pair: use all")
    chosen = cls[:, None] != cls[None, :]
    if not chosen.any():
        raise SoundspotError("all pairs of a batch have one class: raise train.batch")
    return chosen


def split_parts(parts: tuple[int, ...], c_v: int) -> tuple[int, ...]:
    """The channels of every joined visual encoder, also if there is only one."""
    if parts and sum(parts) != c_v:
        raise ValueError(f"parts={list(parts)} must add up to c_v={c_v}")
    return parts or (c_v,)
