"""What methods keep from step to step: slow copies and averages, random draws, k-means.

All of it is in buffers, so that an interrupted run resumes with the same.

Axes: b batch, k centers, d dimensions.
"""

import copy
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from soundspot.model.attention import precise
from soundspot.model.whole_batch import place, whole

M = TypeVar("M", bound=nn.Module)
COMMON_MOMENTUM = 0.95  # forgets as fast as the weights move


def slow_copy(trained: M) -> M:
    """A copy that no gradient reaches."""
    return copy.deepcopy(trained).requires_grad_(False)


@torch.no_grad()
def follow(slow: nn.Module, trained: nn.Module, momentum: float) -> None:
    """Move a slow copy towards the weights that the last step left; 1 never moves."""
    for old, new in zip(slow.parameters(), trained.parameters(), strict=True):
        old.lerp_(new, 1 - momentum)


@torch.no_grad()
def follow_common(common: Float[Tensor, "d"], vectors: Float[Tensor, "b d"]) -> None:
    """Move towards what the unit vectors of a batch have in common."""
    common.lerp_(F.normalize(precise(whole(vectors)), dim=1).mean(dim=0), 1 - COMMON_MOMENTUM)


class Draws(nn.Module):
    """A seed and the number of steps so far, kept as buffers.

    The state of torch's own generator is not stored with a run, so a resumed run would go on with
    other numbers. In several processes all ranks draw alike, each for the whole batch.
    """

    seed: Tensor
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seed", torch.randint(2**31, ()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def step(self) -> torch.Generator:
        """Count a training step, and return its generator."""
        generator = torch.Generator(self.seed.device)
        generator.manual_seed(int(self.seed) + int(self.steps))
        self.steps += 1
        return generator


def dropped(x: Tensor, share: float, generator: torch.Generator | None) -> Tensor:
    """Dropout: set a share of the values to 0 and scale up the others; no generator, no dropout."""
    if generator is None or not share:
        return x
    rank, size = place()  # the draws of the whole batch, and of them this share's
    like = torch.cat([x] * size) if size > 1 else x
    kept = torch.empty_like(like).bernoulli_(1 - share, generator=generator)
    return x * kept[rank::size].mul_(1 / (1 - share))


class OnlineKMeans(nn.Module):
    """Running means of unit vectors, in place of clustering the training set between epochs.

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
        for number in range(first, min(len(self.centers), first + len(unit))):
            farthest = self._distances(unit).amin(dim=1).argmax() if number else 0
            self.centers[number] = unit[farthest]
            self.started += 1

    def _distances(self, unit: Float[Tensor, "b d"]) -> Float[Tensor, "b k"]:
        missing = torch.arange(len(self.centers), device=unit.device) >= self.started
        return torch.cdist(unit, self.centers).masked_fill(missing, torch.inf)
