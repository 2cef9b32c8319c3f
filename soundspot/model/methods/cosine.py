"""What the methods with negatives share: two small projections, and their cosine as the map."""

from dataclasses import dataclass

from torch import nn

from soundspot.common.config import Size
from soundspot.common.errors import SoundspotError
from soundspot.model.attention import similarity
from soundspot.model.heads import AudioTransform
from soundspot.model.methods.method import Frame, Map, Method, Sound


@dataclass(frozen=True)
class CosineConfig:
    """The sizes of the projections.

    Attributes:
        c_v: Channels of the visual feature.
        c_a: Channels of the audio feature: 128 for VGGish, 1024 for YAMNet.
        visual_conv: A trained 1 x 1 convolution on the visual feature.
    """

    c_v: Size = 512
    c_a: Size = 128
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

    def __init__(self, config: CosineConfig, width: int | None = None) -> None:
        super().__init__()
        made = Projections(config, width)
        self.g, self.conv = made.g, made.conv

    def maps(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> Map:
        """The cosine of the transformed sound with every location."""
        return similarity(self.g(f_a), self.conv(f_v))


def check_batch(count: int) -> None:
    """Refuse a batch of one pair, which leaves nothing to tell apart.

    Of a training in several processes each tells apart the pairs of its own share only.
    """
    if count < 2:
        raise SoundspotError(
            "this method tells the pairs of a batch apart, so a batch of 1 teaches it nothing; "
            "raise train.batch"
        )


def split_parts(parts: tuple[int, ...], c_v: int) -> tuple[int, ...]:
    """The channels of every joined visual encoder, also if there is only one."""
    if parts and sum(parts) != c_v:
        raise ValueError(f"parts={list(parts)} must add up to c_v={c_v}")
    return parts or (c_v,)
