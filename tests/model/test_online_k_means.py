import math

import pytest
import torch

from soundspot.model.memory import OnlineKMeans


def corners(turns: list[float]) -> torch.Tensor:
    """Unit vectors at fractions of a full turn."""
    angles = 2 * math.pi * torch.tensor(turns)
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_centers_start_far_apart_and_then_are_running_means():
    means = OnlineKMeans(2, 2, memory=0.5)
    first = corners([0.0, 0.05, 0.5])
    means.update(5 * first)  # lengths do not count
    assert means.assign(first).tolist() == [0, 0, 1]
    torch.testing.assert_close(means.centers, torch.stack([first[:2].mean(dim=0), first[2]]))
    second = corners([0.1])
    means.update(second)
    # Two old vectors at half their weight, and a new one.
    torch.testing.assert_close(means.centers[0], (first[:2].mean(dim=0) + second[0]) / 2)
    torch.testing.assert_close(means.weights, torch.tensor([2.0, 0.5]))


def test_centers_may_start_over_several_batches():
    means = OnlineKMeans(3, 2)
    assert means.assign(corners([0.3])).tolist() == [0]
    means.update(corners([0.0, 0.5]))
    assert means.started == 2
    assert means.assign(corners([0.45, 0.2])).tolist() == [1, 0]
    means.update(corners([0.25]))
    assert means.assign(corners([0.0, 0.5, 0.25])).tolist() == [0, 1, 2]


def test_nothing_passes_gradients():
    means = OnlineKMeans(2, 3)
    x = torch.randn(5, 3, requires_grad=True)
    means.update(x)
    assert not means.centers.requires_grad
    assert means.assign(x).dtype == torch.long
    assert [name for name, _ in means.named_parameters()] == []
    assert pytest.approx(means.weights.sum().item()) == 5
