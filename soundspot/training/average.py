"""A moving average of the weights, which is smoother than the weights of any one step."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


class WeightAverage:
    """Follows a method's weights and buffers; momentum 0 turns it off, and `state` is empty."""

    def __init__(self, method: nn.Module, momentum: float) -> None:
        self.momentum = momentum
        self.state: dict[str, Tensor] = _copy(method) if momentum else {}

    def update(self, method: nn.Module) -> None:
        """Move towards the method's weights; to be called after every step."""
        current = method.state_dict()
        for name, value in self.state.items():
            if value.is_floating_point():
                value.lerp_(current[name], 1 - self.momentum)
            else:
                value.copy_(current[name])

    @contextmanager
    def applied(self, method: nn.Module) -> Iterator[None]:
        """Give the method the average inside the `with`, and its own weights back at the end."""
        if not self.momentum:
            yield
            return
        own = _copy(method)
        method.load_state_dict(self.state)
        try:
            yield
        finally:
            method.load_state_dict(own)


def _copy(method: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in method.state_dict().items()}
