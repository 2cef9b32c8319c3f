"""The network of an encoder, frozen, with given or random weights."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from soundspot.common.config import choose
from soundspot.common.errors import SoundspotError
from soundspot.encoders.table import ENCODERS


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
