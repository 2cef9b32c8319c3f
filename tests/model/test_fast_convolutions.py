import pytest
import torch

import reference
from soundspot.model.fast_convolutions import plain_upsampled_conv3x3, upsampled_conv3x3

C_IN, C_OUT, BATCH = 5, 3, 2
STEPS = [((7, 7), (14, 14)), ((3, 4), (7, 8)), ((5, 3), (9, 6))]


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def gradients(step, x, weight, size):
    leaves = [tensor.clone().requires_grad_() for tensor in (x, weight)]
    out = step(*leaves, size)
    return torch.autograd.grad((out * draw(*out.shape, dtype=out.dtype)).sum(), leaves)


@pytest.mark.parametrize(("coarse", "fine"), STEPS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_it_equals_the_naive_form_and_so_do_its_gradients(coarse, fine, layout):
    x, weight = draw(BATCH, C_IN, *coarse), draw(C_IN, C_OUT, 3, 3)
    x, weight = x.to(memory_format=layout), weight.to(memory_format=layout)
    expected = torch.from_numpy(reference.upward(x.numpy(), weight.numpy(), fine))
    torch.testing.assert_close(upsampled_conv3x3(x, weight, fine), expected)
    torch.testing.assert_close(plain_upsampled_conv3x3(x, weight, fine), expected)
    found, plain = (
        gradients(step, x, weight, fine) for step in (upsampled_conv3x3, plain_upsampled_conv3x3)
    )
    torch.testing.assert_close(found, plain)


def test_a_map_made_without_gradients_can_be_made_again_for_training():
    """The spatial matrix is kept, also that of a first call in inference mode."""
    x, weight = draw(1, C_IN, 5, 7), draw(C_IN, C_OUT, 3, 3)
    with torch.inference_mode():
        upsampled_conv3x3(x, weight, (8, 11))
    assert all(grad.abs().sum() > 0 for grad in gradients(upsampled_conv3x3, x, weight, (8, 11)))


def test_other_devices_use_the_plain_operations():
    x, weight = (torch.empty(shape, device="meta") for shape in ((1, 5, 7, 7), (5, 3, 3, 3)))
    assert upsampled_conv3x3(x, weight, (14, 14)).shape == (1, 3, 14, 14)


def test_under_autocast_only_the_products_are_rounded():
    x, weight = (draw(*s, dtype=torch.float32) for s in ((BATCH, 37, 7, 7), (37, 31, 3, 3)))
    exact = upsampled_conv3x3(x, weight, (14, 14))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = upsampled_conv3x3(x, weight, (14, 14))
    assert rounded.dtype == torch.float32
    assert 0 < (rounded - exact).norm() / exact.norm() < 0.01
