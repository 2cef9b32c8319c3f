"""k-means that learns from one batch at a time and keeps its centers as buffers.

It replaces clusterings of a whole training set between epochs: the training loop needs no
hook, an interrupted run resumes with the same centers, and a seed gives the same ones again.

Axes: b batch, k centers, d dimensions.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from soundspot.model.whole_batch import whole


class OnlineKMeans(nn.Module):
    """Running means of unit vectors.

    A center starts as the vector of a batch that is farthest from all centers so far; then it is
    the mean of the vectors that are nearest to it. The past keeps a share `memory` of its weight.
    """

    centers: Tensor
    weights: Tensor
    started: Tensor

    def __init__(self, centers: int, dim: int, memory: float = 0.99) -> None:
        super().__init__()
        self.memory = memory
        self.register_buffer("centers", torch.zeros(centers, dim))
        self.register_buffer("weights", torch.zeros(centers))
        self.register_buffer("started", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def update(self, x: Float[Tensor, "b d"]) -> None:
        """Move every center towards the vectors that are nearest to it."""
        unit = F.normalize(whole(x.detach()), dim=1)
        self._start(unit)
        one_hot = F.one_hot(self.assign(unit), len(self.centers)).to(unit.dtype)
        counts = one_hot.sum(dim=0)
        self.weights.mul_(self.memory).add_(counts)
        difference = one_hot.T @ unit - counts[:, None] * self.centers
        self.centers.add_(difference / self.weights.clamp_min(1)[:, None])

    @torch.no_grad()
    def assign(self, x: Float[Tensor, "b d"]) -> Int[Tensor, "b"]:
        """The nearest center of each vector; 0 if there is none yet."""
        return self._distances(F.normalize(x.detach(), dim=1)).argmin(dim=1)

    def _start(self, unit: Float[Tensor, "b d"]) -> None:
        """Start the missing centers, at most as many as there are vectors."""
        first = int(self.started)
        for place in range(first, min(len(self.centers), first + len(unit))):
            farthest = self._distances(unit).amin(dim=1).argmax() if place else 0
            self.centers[place] = unit[farthest]
            self.started += 1

    def _distances(self, unit: Float[Tensor, "b d"]) -> Float[Tensor, "b k"]:
        missing = torch.arange(len(self.centers), device=unit.device) >= self.started
        return torch.cdist(unit, self.centers).masked_fill(missing, torch.inf)
