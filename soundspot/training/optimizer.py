"""AdamW with the paper's parameter groups (supplement B.2, Table S1), and averaged weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW

from soundspot.model.methods.method import Method
from soundspot.training.recipe import TrainConfig


def parameter_groups(method: Method, config: TrainConfig) -> list[dict[str, Any]]:
    """Heads at lr_1, the rest at lr_2, and the PCM's a_l and b_l without weight decay."""
    heads = {id(parameter) for parameter in method.heads}
    trained = [(n, p) for n, p in method.named_parameters() if p.requires_grad]
    head = [p for _, p in trained if id(p) in heads]
    scalars = [p for name, p in trained if ".pcm.a." in name or ".pcm.b." in name]
    listed = heads | {id(p) for p in scalars}
    rest = [p for _, p in trained if id(p) not in listed]
    groups = [
        {"params": head, "lr": config.lr_heads, "weight_decay": config.weight_decay},
        {"params": rest, "lr": config.lr, "weight_decay": config.weight_decay},
        {"params": scalars, "lr": config.lr, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(method: Method, config: TrainConfig) -> AdamW:
    """The paper's AdamW."""
    return AdamW(parameter_groups(method, config), fused=True)


class WeightAverage:
    """A moving average of weights and buffers, smoother than any one step; momentum 0 is off."""

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
