"""The frozen encoders in one table: a new encoder is one new file and one new line here.

A visual encoder maps normalised RGB (b 3 h w) to a feature grid (b c h/stride w/stride); an audio
encoder maps mono 16 kHz waveforms (b samples) to one embedding per log-mel patch (b patches c).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from soundspot.common.config import choose
from soundspot.common.errors import SoundspotError
from soundspot.encoders import mobilenetv2, vgg16, vggish, views, yamnet


@dataclass(frozen=True)
class EncoderSpec:
    """One line of the table.

    Attributes:
        name: Its name in configs and on the command line.
        channels: Of its output: c_v or c_a.
        stride: Pixels per grid cell; None for an audio encoder.
        view: Side in pixels of the views it is given; None for an audio encoder.
        weights: The name of its pretrained weights in the registry.
    """

    name: str
    modality: Literal["visual", "audio"]
    build: Callable[[], nn.Module]
    channels: int
    stride: int | None
    view: int | None
    weights: str


ENCODERS: dict[str, EncoderSpec] = {
    spec.name: spec
    for spec in (
        EncoderSpec(
            "vgg16",
            "visual",
            vgg16.VGG16,
            vgg16.CHANNELS,
            vgg16.STRIDE,
            views.VIEW_SIZE,
            "vgg16-imagenet",
        ),
        EncoderSpec(
            "mobilenetv2",
            "visual",
            mobilenetv2.MobileNetV2,
            mobilenetv2.CHANNELS,
            mobilenetv2.STRIDE,
            mobilenetv2.VIEW_SIZE,
            "mobilenetv2-imagenet",
        ),
        EncoderSpec(
            "mobilenetv2-320",
            "visual",
            mobilenetv2.MobileNetV2,
            mobilenetv2.CHANNELS,
            mobilenetv2.STRIDE,
            mobilenetv2.SMALL_VIEW_SIZE,
            "mobilenetv2-imagenet",
        ),
        EncoderSpec(
            "vggish", "audio", vggish.VGGish, vggish.CHANNELS, None, None, "vggish-audioset"
        ),
        EncoderSpec(
            "yamnet", "audio", yamnet.YAMNet, yamnet.CHANNELS, None, None, "yamnet-audioset"
        ),
    )
}


def build_encoder(name: str, state: Mapping[str, Tensor] | None) -> nn.Module:
    """Builds an encoder that stays frozen: no gradients, and eval mode even after `.train()`.

    Args:
        name: A key of `ENCODERS`.
        state: Its weights, or None for random ones from torch's global generator: zero biases and
            He normal weights by fan-in, which keep the variance of the signal.

    Raises:
        SoundspotError: The name is unknown, or the weights belong to another network.
    """
    spec = choose("encoder", name, ENCODERS)
    if state is None:
        module = spec.build()
        _he_normal_(module)
    else:
        with torch.device("meta"):  # no need to draw random weights that are replaced
            module = spec.build()
        _check_state(name, module, state)
        module.load_state_dict(state, assign=True)
    return module.requires_grad_(False).eval()


def _he_normal_(module: nn.Module) -> None:
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
            nn.init.zeros_(layer.bias)


def _check_state(name: str, module: nn.Module, state: Mapping[str, Tensor]) -> None:
    expected = {key: tuple(tensor.shape) for key, tensor in module.state_dict().items()}
    given = {key: tuple(tensor.shape) for key, tensor in state.items()}
    for key in expected | given:
        if expected.get(key) != given.get(key):
            raise SoundspotError(
                f"expected {name} weights with {key} of shape {expected.get(key, 'absent')}, "
                f"got {given.get(key, 'absent')}"
            )
