import math

import pytest
import torch

from soundspot.model.methods.ezvsl import EZVSL, EZVSLConfig, matching_loss
from soundspot.model.methods.method import Batch


def test_loss_by_hand():
    """Frame 0 prefers the other's sound by 2, frame 1 its own by 3; by columns 1 and 0."""
    logits = torch.tensor([[1.0, 3.0], [0.0, 3.0]])
    frames = math.log(1 + math.exp(2)) + math.log(1 + math.exp(-3))
    sounds = math.log(1 + math.exp(-1)) + math.log(1 + math.exp(0))
    assert matching_loss(logits).item() == pytest.approx((frames + sounds) / 2, rel=1e-5)


def test_the_best_location_counts_at_the_papers_temperature():
    """Untransformed features: cosines 0.8 with its own sound at one place, 0.6 with the other."""
    model = EZVSL(EZVSLConfig(c_v=2, c_a=2, visual_conv=False))
    model.g = torch.nn.Flatten(1)  # one patch: the sound itself
    sounds = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    place, nothing = torch.tensor([0.8, 0.6]), torch.tensor([-1.0, -1.0])
    first = torch.stack([nothing, place], dim=1).view(1, 2, 1, 2)
    second = torch.stack([place.flip(0), nothing], dim=1).view(1, 2, 1, 2)
    view = torch.cat([first, second])
    apart = 0.2 / 0.03
    expected = 2 * math.log(1 + math.exp(-apart))
    found = model(Batch(view, view, sounds, torch.tensor([-1, -1]))).loss.item()
    assert found == pytest.approx(expected, rel=1e-4)


def test_a_better_match_costs_less():
    worse, better = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    assert matching_loss(better) < matching_loss(worse)


def test_both_views_count():
    torch.manual_seed(1)
    model = EZVSL(EZVSLConfig(c_v=5, c_a=3))
    one, two = torch.randn(2, 3, 5, 2, 2).unbind()
    rest = (torch.rand(3, 2, 3), torch.full((3,), -1))
    alone = [model(Batch(view, view, *rest)).loss.item() for view in (one, two)]
    assert abs(alone[0] - alone[1]) > 1e-3
    assert model(Batch(one, two, *rest)).loss.item() == pytest.approx(sum(alone) / 2, rel=1e-5)
