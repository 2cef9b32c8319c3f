"""Random numbers that a method draws while it trains, the same after an interruption."""

import torch
from torch import Tensor, nn

from soundspot.model.whole_batch import place


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
