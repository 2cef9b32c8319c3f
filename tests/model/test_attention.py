import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import reference
from soundspot.model.attention import (
    SCALINGS,
    attend,
    boxed,
    every_similarity,
    min_max,
    self_attended,
    similarity,
)


def features(batch=3, c=5, h=7, w=11):
    torch.manual_seed(0)
    return torch.randn(batch, c), torch.randn(batch, c, h, w)


def test_map_and_representation_equal_the_naive_reference():
    f_a, f_v = features()
    s, f_av = reference.attended(f_a.double().numpy(), f_v.double().numpy())
    ours = attend(f_a, f_v)
    np.testing.assert_allclose(ours.similarity, s, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.f_av, f_av, rtol=1e-5, atol=1e-5)


def test_short_features_have_the_cosine_of_long_ones():
    f_a, f_v = features()
    torch.testing.assert_close(similarity(f_a, 1e-5 * f_v), similarity(f_a, f_v))
    every = every_similarity(f_a, f_v)
    torch.testing.assert_close(every_similarity(f_a, 1e-5 * f_v), every)


@pytest.mark.parametrize("shared", [False, True])
def test_the_gradients_of_the_cosine_are_those_of_its_definition(shared):
    f_a, f_v = (tensor.double().requires_grad_() for tensor in features())
    weights = torch.randn(3, 3, 7 * 11) if shared else torch.randn(3, 7, 11)
    ours = every_similarity(f_a, f_v) if shared else similarity(f_a, f_v)
    unit_a, unit_v = (F.normalize(tensor, dim=1) for tensor in (f_a, f_v))
    equation = "kc,bchw->bkhw" if shared else "bc,bchw->bhw"
    plain = torch.einsum(equation, unit_a, unit_v).view_as(ours)
    expected = torch.autograd.grad((plain * weights).sum(), (f_a, f_v))
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(torch.autograd.grad((ours * weights).sum(), (f_a, f_v)), expected)


def test_a_location_without_a_feature_is_like_nothing():
    f_a, f_v = features()
    f_v[:, :, 2, 3] = 0
    f_v.requires_grad_()
    s = similarity(f_a, f_v)
    s.sum().backward()
    assert (s[:, 2, 3] == 0).all()
    assert torch.isfinite(f_v.grad).all()


def test_min_max_of_a_flat_map_is_zero_and_finite():
    flat = torch.full((1, 2, 3), 0.7)
    assert (min_max(flat) == 0).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("relu", [0.0, 0.0, 1.0]),
        ("sigmoid", [0.2689414, 0.5, 0.7310586]),
        ("softmax", [0.0900306, 0.2447285, 0.6652410]),
        ("relu+softmax", [0.2119416, 0.2119416, 0.5761169]),
        ("minmax", [0.0, 0.5, 1.0]),
    ],
)
def test_scalings_by_hand(name, expected):
    s = torch.tensor([[[-1.0, 0.0, 1.0]]])
    torch.testing.assert_close(SCALINGS[name](s), torch.tensor([[expected]]))


@pytest.mark.parametrize(
    ("fusion", "expected"),
    [("concatenation", [2.0, 3.0, 4.0, 1.0]), ("product", [8.0, 3.0]), ("sum", [6.0, 4.0])],
)
def test_fusions_by_hand(fusion, expected):
    f_a = torch.tensor([[2.0, 3.0]])
    f_v = torch.tensor([[[[3.0, 5.0]], [[0.0, 2.0]]]])  # means 4 and 1
    out = attend(f_a, f_v, fusion=fusion)
    torch.testing.assert_close(out.f_av, torch.tensor([expected]))
    torch.testing.assert_close(out.similarity, similarity(f_a, f_v))


def test_self_attention_by_hand():
    """Two locations along x and one along y; at temperature 1 alike ones weigh e, the other 1."""
    f_v = torch.tensor([[[[3.0, 1.0, 0.0]], [[0.0, 0.0, 2.0]]]])
    found = self_attended(f_v, 1.0)
    e = math.e
    near, far = 2 * e / (2 * e + 1), 2 / (2 + e)
    expected = torch.tensor([[[[near, near, far]], [[1 - near, 1 - near, 1 - far]]]])
    torch.testing.assert_close(found, expected)


def test_maps_are_drawn_out_towards_boxes():
    s = torch.tensor([[[0.0, 0.4, 0.0], [0.9, 0.2, 0.0]]])
    # Rows reach 0.4 and 0.9, columns 0.9, 0.4 and 0.
    envelope = torch.tensor([[[0.4, 0.4, 0.0], [0.9, 0.4, 0.0]]])
    torch.testing.assert_close(boxed(s, 1.0), envelope)
    torch.testing.assert_close(boxed(s, 0.25), 0.75 * s + 0.25 * envelope)
    assert boxed(s, 0.0) is s
    torch.testing.assert_close(boxed(3 * s - 2, 1.0), 3 * envelope - 2)
