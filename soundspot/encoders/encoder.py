"""What an encoder says about itself, at the end of its file."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from soundspot.encoders.registry import RegistryEntry

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class EncoderSpec:
    """A frozen encoder.

    A visual encoder maps normalized RGB (b 3 h w) to a feature grid (b c h/stride w/stride); an
    audio encoder maps mono 16 kHz waveforms (b samples) to one embedding per log-mel patch
    (b patches c). Both stay in eval mode after `.train()`.

    Attributes:
        name: Its name in configs and on the command line.
        build: Makes the network, with any weights.
        channels: Of its output: c_v or c_a.
        weights: Its pretrained weights.
        stride: Pixels per grid cell; None for an audio encoder.
        view: Side in pixels of the views it is given; None for an audio encoder.
    """

    name: str
    modality: Literal["visual", "audio"]
    build: "Callable[[], nn.Module]"
    channels: int
    weights: RegistryEntry
    stride: int | None = None
    view: int | None = None


def read_encoder(name: str, found: object) -> EncoderSpec:
    """Check that a line of the table leads to an encoder."""
    if not isinstance(found, EncoderSpec):
        raise TypeError(f"{found!r} is not an EncoderSpec")
    if found.name != name:
        raise ValueError(f"its own name is {found.name!r}")
    if found.modality == "visual" and not (found.stride and found.view):
        raise ValueError("a visual encoder has a stride and a view")
    return found
