"""Random features of two views and a sound, as small as the methods' tests like them."""

import torch

from soundspot.model.methods.method import Batch


def small_batch(b=3, grid=(2, 3), c_v=7, cls=None, seed=1):
    """With 5 channels of sound in 3 patches, and without classes unless they are given."""
    rng = torch.Generator().manual_seed(seed)
    views = [torch.randn(b, c_v, *grid, generator=rng) for _ in range(2)]
    labels = torch.full((b,), -1) if cls is None else torch.tensor(cls)
    return Batch(*views, torch.randn(b, 3, 5, generator=rng), labels)
