"""joined.py: several encoders side by side."""

import pytest
import torch
from torch import nn

from soundspot.features.spec import JoinedEncoder, join


def test_every_location_of_each_feature_has_a_mean_square_of_one():
    rng = torch.Generator().manual_seed(0)
    large, small = (torch.randn(2, c, 3, 5, generator=rng) for c in (7, 11))
    joined = join([1000 * large, small / 10])
    assert joined.shape == (2, 18, 3, 5)
    for part, given in ((joined[:, :7], large), (joined[:, 7:], small)):
        assert torch.allclose(part.square().mean(dim=1), torch.ones(2, 3, 5), atol=0.02)
        assert torch.allclose(nn.functional.normalize(part), nn.functional.normalize(given))


def test_an_empty_feature_stays_zero():
    assert torch.equal(join([torch.zeros(1, 2, 1, 1)]), torch.zeros(1, 2, 1, 1))


def test_each_encoder_gets_its_own_view_in_order():
    parts = [nn.AvgPool2d(2), nn.AvgPool2d(4)]
    small, large = torch.full((1, 3, 4, 4), 2.0), torch.full((1, 3, 8, 8), -3.0)
    seen = JoinedEncoder(parts)(small, large)
    assert torch.allclose(seen[0, :, 0, 0], torch.tensor([1.0, 1, 1, -1, -1, -1]))
    with pytest.raises(ValueError):
        JoinedEncoder(parts)(small)
