"""k-means that learns from one batch at a time and keeps its centres as buffers.

It replaces clusterings of a whole training set between epochs: the training loop needs no
hook, an interrupted run resumes with the same centres, and a seed gives the same ones again. With
several processes the centres follow the batches of rank 0, whose buffers DDP sends to all others.

Axes: b batch, k centres, d dimensions.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class OnlineKMeans(nn.Module):
    """Running means of unit vectors.

    A centre starts as the vector of a batch that is farthest from all centres so far; then it is
    the mean of the vectors that are nearest to it, those of old batches fading.

    Args:
        centres: How many.
        dim: Dimensions of a vector.
        memory: Share of its weight that the past keeps at every update.
    """

    centres: Tensor
    weights: Tensor
    started: Tensor

    def __init__(self, centres: int, dim: int, memory: float = 0.99) -> None:
        super().__init__()
        self.memory = memory
        self.register_buffer("centres", torch.zeros(centres, dim))
        self.register_buffer("weights", torch.zeros(centres))
        self.register_buffer("started", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def update(self, x: Float[Tensor, "b d"]) -> None:
        """Move every centre towards the vectors that are nearest to it."""
        unit = F.normalize(x.detach(), dim=1)
        self._start(unit)
        one_hot = F.one_hot(self.assign(x), len(self.centres)).to(unit.dtype)
        counts = one_hot.sum(dim=0)
        self.weights.mul_(self.memory).add_(counts)
        difference = one_hot.T @ unit - counts[:, None] * self.centres
        self.centres.add_(difference / self.weights.clamp_min(1)[:, None])

    @torch.no_grad()
    def assign(self, x: Float[Tensor, "b d"]) -> Int[Tensor, "b"]:
        """The nearest centre of each vector; 0 if there is none yet."""
        return self._distances(F.normalize(x.detach(), dim=1)).argmin(dim=1)

    def _start(self, unit: Float[Tensor, "b d"]) -> None:
        """Start the missing centres, at most as many as there are vectors."""
        first = int(self.started)
        for place in range(first, min(len(self.centres), first + len(unit))):
            farthest = self._distances(unit).amin(dim=1).argmax() if place else 0
            self.centres[place] = unit[farthest]
            self.started += 1

    def _distances(self, unit: Float[Tensor, "b d"]) -> Float[Tensor, "b k"]:
        missing = torch.arange(len(self.centres), device=unit.device) >= self.started
        return torch.cdist(unit, self.centres).masked_fill(missing, torch.inf)
