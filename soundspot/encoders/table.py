"""What there is by name: the frozen encoders, and all published weights and media.

A new encoder is one new file, which ends with its `EncoderSpec`, an entry of weights.yaml, and one
new line in ENCODERS. An installed package can add one through an entry point of the group
"soundspot.encoders".
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from soundspot.common.config import NamedTable, choose
from soundspot.encoders.registry import (
    HUB,
    MEDIA,
    EncoderSpec,
    RegistryEntry,
    WeightsError,
    published,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


def read_encoder(name: str, found: object) -> EncoderSpec:
    """Check that a line of the table leads to an encoder."""
    if not isinstance(found, EncoderSpec):
        raise TypeError(f"{found!r} is not an EncoderSpec")
    if found.name != name:
        raise ValueError(f"its own name is {found.name!r}")
    if found.modality == "visual" and not (found.stride and found.view):
        raise ValueError("a visual encoder has a stride and a view")
    return found


class EncoderTable(NamedTable[EncoderSpec]):
    """Lines, packages, and whatever the hub has by a name that begins with "hf:"."""

    def __getitem__(self, name: str) -> EncoderSpec:
        """The encoder of a name; one of the hub has a longer name of its own."""
        if not name.startswith(HUB):
            return super().__getitem__(name)
        from soundspot.encoders.hub import encoder  # which imports torch

        return encoder(name)


ENCODERS = EncoderTable(
    "encoder",
    {
        "vgg16": "soundspot.encoders.vgg16:ENCODER",
        "mobilenetv2": "soundspot.encoders.mobilenetv2:ENCODER",
        "mobilenetv2-320": "soundspot.encoders.mobilenetv2:SMALL",
        "mobilenetv2-fine": "soundspot.encoders.mobilenetv2:FINE",
        "vggish": "soundspot.encoders.vggish:ENCODER",
        "yamnet": "soundspot.encoders.yamnet:ENCODER",
    },
    read_encoder,
)


def registry() -> dict[str, RegistryEntry]:
    """All weights and media by name; imports every encoder."""
    from soundspot.encoders.mobile_sam import WEIGHTS  # which imports torch

    encoders = ENCODERS.usable().values()
    weights = [encoder.weights for encoder in encoders if encoder.weights is not None]
    return {entry.name: entry for entry in (*weights, WEIGHTS, *map(published, MEDIA))}


def build_encoder(name: str, state: "Mapping[str, Tensor] | None") -> "nn.Module":
    """Builds a frozen encoder: no gradients, in eval mode.

    Without a state it has random weights from torch's global generator: zero biases and He normal
    weights by fan-in, which keep the variance of the signal.
    """
    import torch
    from torch import nn

    spec = choose("encoder", name, ENCODERS)
    if state is None:
        module = spec.build()
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
                nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
                nn.init.zeros_(layer.bias)
    else:
        with torch.device("meta"):  # no need to draw random weights that are replaced
            module = spec.build()
        try:
            module.load_state_dict(state, assign=True)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise WeightsError(f"these are not the weights of {name}: {reason}") from error
    return frozen(module)


def frozen(module: "nn.Module") -> "nn.Module":
    """A network that is not trained, laid out for convolutions."""
    import torch

    return module.requires_grad_(False).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
