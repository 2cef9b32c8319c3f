"""Slow copies of what is trained, and slow averages of what it computes.

Axes: b batch, d dimensions.
"""

import copy
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.model.attention import precise
from soundspot.model.whole_batch import whole

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
