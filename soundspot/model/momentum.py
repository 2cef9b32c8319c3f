"""Momentum networks: slow copies of what is trained."""

import copy
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def slow_copy(trained: M) -> M:
    """A copy that no gradient reaches."""
    return copy.deepcopy(trained).requires_grad_(False)


@torch.no_grad()
def follow(slow: nn.Module, trained: nn.Module, momentum: float) -> None:
    """Move a slow copy towards the weights that the last step left; 1 never moves."""
    for old, new in zip(slow.parameters(), trained.parameters(), strict=True):
        old.lerp_(new, 1 - momentum)
