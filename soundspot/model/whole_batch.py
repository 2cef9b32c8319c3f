"""What a loss compares across a batch, when several processes have a share of it each.

Process r of n has pairs r, r + n, r + 2n, ... of a batch. Inside `shared`, `whole` gives every
process the rows of all of them in the order of the batch, and takes gradients back to where they
came from; elsewhere, as in a single process, rows are the whole batch and nothing happens.

Axes: b batch of this process, k whole batch, n anything.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

_places: list[tuple[int, int]] = []  # rank and size, while processes share a batch


@contextmanager
def shared(rank: int, size: int) -> Iterator[None]:
    """Inside, this process has its share of a batch; all processes must come here alike."""
    _places.append((rank, size))
    try:
        yield
    finally:
        _places.pop()


def place() -> tuple[int, int]:
    """The number of this process and how many share a batch: 0 of 1 if none do."""
    return _places[-1] if _places else (0, 1)


def whole(x: Tensor) -> Tensor:
    """The rows of all processes, which compute the same from them."""
    rank, size = place()
    gathered: Tensor = x if size == 1 else _Gather.apply(x, rank, size)  # type: ignore[no-untyped-call]
    return gathered


def own(every: Float[Tensor, "b k *n"]) -> Float[Tensor, "b *n"]:
    """What each row of this process has for itself: the diagonal, if there are no others."""
    rank, size = place()
    rows = torch.arange(len(every), device=every.device)
    return every[rows, rows * size + rank]


class _Gather(torch.autograd.Function):
    """Rows of all processes; a row's gradient is the sum of what all of them made of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rank: int, size: int) -> Tensor:
        ctx.place = rank, size
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(size)]
        dist.all_gather(parts, x.contiguous())
        return torch.stack(parts, dim=1).flatten(end_dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        rank, size = ctx.place
        total = gradients[0].float().contiguous()  # gloo does not add bfloat16
        dist.all_reduce(total)
        return total[rank::size].to(gradients[0].dtype), None, None


class SharedBatchNorm(_BatchNorm):
    """A batch norm with the mean and variance of the whole batch, of which it has a share."""

    def forward(self, x: Float[Tensor, "b c *n"]) -> Float[Tensor, "b c *n"]:
        """As torch's; the shares of all processes have the same size."""
        if not self.training or place()[1] == 1:
            return super().forward(x)
        others = [0, *range(2, x.ndim)]
        shape = (1, -1, *[1] * (x.ndim - 2))
        mean = whole(x.float().mean(dim=others)[None]).mean(dim=0)
        centered = x - mean.view(shape)
        variance = whole(centered.square().mean(dim=others)[None]).mean(dim=0)
        if self.running_mean is not None and self.running_var is not None:
            count = x.numel() // x.shape[1] * place()[1]
            momentum = self.momentum or 0.0
            with torch.no_grad():
                self.running_mean.lerp_(mean, momentum)
                self.running_var.lerp_(variance * count / (count - 1), momentum)
                if self.num_batches_tracked is not None:
                    self.num_batches_tracked += 1
        scaled = centered * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            scaled = scaled * self.weight.view(shape) + self.bias.view(shape)
        return scaled.to(x.dtype)

    def _check_input_dim(self, x: Tensor) -> None:
        """Any number of axes."""
