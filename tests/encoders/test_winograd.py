"""winograd.py: the same convolutions, on odd sizes, and where they are not used."""

import pytest
import torch
from torch.nn import functional as F

from soundspot.encoders import winograd
from soundspot.encoders.building import build_encoder
from soundspot.encoders.winograd import F2, F4, conv3x3, plain_operations, transform_weight

pytestmark = pytest.mark.usefixtures("either_library")


@pytest.mark.parametrize("by", [F2, F4])
@pytest.mark.parametrize(("h", "w"), [(1, 1), (5, 7), (8, 12), (14, 13), (29, 3)])
def test_it_is_the_convolution(by: winograd.Transform, h: int, w: int, monkeypatch) -> None:
    monkeypatch.setattr(winograd, "TILES", 5)  # several parts a picture
    x, weight, bias = torch.randn(2, 5, h, w), torch.randn(7, 5, 3, 3), torch.randn(7)
    expected = F.conv2d(x, weight, bias, padding=1)
    found = conv3x3(x, transform_weight(weight, by), bias, by)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
    alone = conv3x3(x[1:], transform_weight(weight, by), bias, by)
    assert torch.equal(alone, found[1:])


def test_vgg16_gives_the_same_features_with_fewer_multiplications() -> None:
    encoder = build_encoder("vgg16", None)
    image = torch.randn(2, 3, 96, 80)
    fast = encoder(image)
    with plain_operations():
        plain = encoder(image)
    assert not torch.equal(fast, plain)
    torch.testing.assert_close(fast, plain, rtol=1e-3, atol=1e-3 * float(plain.std()))
    assert sorted(encoder.state_dict()) == sorted(build_encoder("vgg16", None).state_dict())


def test_new_weights_are_transformed_anew() -> None:
    encoder, other = build_encoder("vgg16", None), build_encoder("vgg16", None)
    image = torch.randn(1, 3, 96, 80)
    encoder(image)
    encoder.load_state_dict(other.state_dict(), assign=True)
    torch.testing.assert_close(encoder(image), other(image), rtol=0, atol=0)


def test_gradients_to_the_picture_still_flow() -> None:
    encoder = build_encoder("vgg16", None)
    image = torch.randn(1, 3, 96, 80, requires_grad=True)
    encoder(image).sum().backward()
    assert image.grad is not None and image.grad.abs().sum() > 0
