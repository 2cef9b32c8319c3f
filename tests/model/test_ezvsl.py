import math

import pytest
import torch

from soundspot.model.methods.ezvsl import EZVSL, EZVSLConfig
from soundspot.model.methods.method import Batch


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
