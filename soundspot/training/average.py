"""A moving average of the weights: smoother than any single epoch."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


class WeightAverage:
    """Follows a method's weights; with momentum 0 it does nothing.

    Attributes:
        state: The averaged weights and buffers; empty when off.
    """

    def __init__(self, method: nn.Module, momentum: float) -> None:
        self.momentum = momentum
        self.state: dict[str, Tensor] = _copy(method) if momentum else {}

    def update(self, method: nn.Module) -> None:
        """Move towards the weights after a step."""
        if not self.momentum:
            return
        for name, value in method.state_dict().items():
            old = self.state[name]
            if old.is_floating_point():
                old.lerp_(value, 1 - self.momentum)
            else:
                old.copy_(value)

    @contextmanager
    def applied(self, method: nn.Module) -> Iterator[None]:
        """The method holds the average inside the `with`, and its own weights again after it."""
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
