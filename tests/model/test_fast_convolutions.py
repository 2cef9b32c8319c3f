import contextlib

import pytest
import torch
import torch.nn.functional as F

import reference
from soundspot.encoders.winograd import plain_operations
from soundspot.model import fast_convolutions
from soundspot.model.fast_convolutions import (
    broadcast_conv1x1,
    conv1x1,
    pooled_conv3x3,
    upward_conv3x3,
)

C_IN, C_OUT, BATCH = 5, 3, 2
GRIDS = [(14, 14), (7, 7), (3, 3), (2, 5), (7, 11), (8, 13)]
# From 3 x 3 by stride 2, by up-sampling, by stride 2 in one direction only, to smaller than twice.
STEPS = [((3, 3), (7, 7)), ((7, 7), (14, 14)), ((3, 4), (7, 8)), ((5, 3), (9, 6))]


pytestmark = pytest.mark.usefixtures("either_library")


def draw(*shape, dtype=torch.float64):
    torch.manual_seed(sum(shape))
    return torch.randn(*shape, dtype=dtype)


@pytest.mark.parametrize("grid", GRIDS)
def test_the_pooled_convolution_equals_the_naive_one(grid):
    x, weight = draw(BATCH, C_IN, *grid), draw(C_OUT, C_IN, 3, 3)
    expected = reference.max_pool(reference.conv(x.numpy(), weight.numpy(), padding=1))
    torch.testing.assert_close(pooled_conv3x3(weight)(x), torch.from_numpy(expected))


@pytest.mark.parametrize(("below", "above"), STEPS)
def test_the_upward_convolution_equals_the_naive_one(below, above):
    x, weight = draw(BATCH, C_IN, *below), draw(C_IN, C_OUT, 3, 3)
    expected = reference.upward(x.numpy(), weight.numpy(), above)
    torch.testing.assert_close(upward_conv3x3(weight)(x, above), torch.from_numpy(expected))


def both_ways(build, weight, x, *size):
    """The output and both gradients, fast and plain."""
    results = []
    for plain in (False, True):
        leaves = [t.clone().requires_grad_() for t in (weight, x)]
        if plain:
            with plain_operations():
                out = build(leaves[0])(leaves[1], *size)
        else:
            out = build(leaves[0])(leaves[1], *size)
        (out * draw(*out.shape, dtype=out.dtype)).sum().backward()
        results.append([out.detach(), *(leaf.grad for leaf in leaves)])
    return zip(*results, strict=True)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_of_the_pooled_convolution(grid, layout, monkeypatch):
    monkeypatch.setattr(fast_convolutions, "CHUNK", 2 * (grid[0] // 2) * (grid[1] // 2))
    x, weight = draw(3, C_IN, *grid), draw(C_OUT, C_IN, 3, 3)  # two chunks, the second half full
    x, weight = x.to(memory_format=layout), weight.to(memory_format=layout)
    for fast, plain in both_ways(pooled_conv3x3, weight, x):
        torch.testing.assert_close(fast, plain)


def test_of_equal_outputs_the_first_gets_the_gradient():
    for fast, plain in both_ways(
        pooled_conv3x3, draw(C_OUT, C_IN, 3, 3), torch.zeros(1, C_IN, 4, 4).double()
    ):
        torch.testing.assert_close(fast, plain)


@pytest.mark.parametrize(("below", "above"), STEPS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_of_the_upward_convolution(below, above, layout):
    x, weight = draw(BATCH, C_IN, *below), draw(C_IN, C_OUT, 3, 3)
    x, weight = x.to(memory_format=layout), weight.to(memory_format=layout)
    for fast, plain in both_ways(upward_conv3x3, weight, x, above):
        torch.testing.assert_close(fast, plain)


def test_single_precision_is_exact_to_1e_5():
    """At the PCM's width, relative to the largest output."""
    weight = draw(512, 512, 3, 3, dtype=torch.float32) / 68
    for build, x, *size in (
        (pooled_conv3x3, draw(1, 512, 14, 14, dtype=torch.float32)),
        (upward_conv3x3, draw(1, 512, 7, 7, dtype=torch.float32), (14, 14)),
        (upward_conv3x3, draw(1, 512, 3, 3, dtype=torch.float32), (7, 7)),
    ):
        fast, plain = next(iter(both_ways(build, weight, x, *size)))
        assert (fast - plain).abs().max() < 1e-5 * plain.abs().max()


@pytest.mark.parametrize("frozen", [0, 1])
def test_only_what_is_trained_gets_a_gradient(frozen):
    for build, *size in ((pooled_conv3x3,), (upward_conv3x3, (7, 7))):
        leaves = [draw(C_IN, C_IN, 3, 3).requires_grad_(), draw(1, C_IN, 3, 3).requires_grad_()]
        leaves[frozen].requires_grad_(False)
        build(leaves[0])(leaves[1], *size).sum().backward()
        assert leaves[frozen].grad is None
        assert leaves[1 - frozen].grad.abs().sum() > 0


def test_a_map_made_without_gradients_can_be_made_again_for_training():
    """The spatial matrices are kept, also those of a first call in inference mode."""
    fast_convolutions._spread.cache_clear()
    weight, x = draw(C_IN, C_OUT, 3, 3).requires_grad_(), draw(1, C_IN, 7, 7)
    with torch.inference_mode():
        upward_conv3x3(weight)(x, (14, 14))
    upward_conv3x3(weight)(x, (14, 14)).sum().backward()
    assert weight.grad is not None


def test_maps_of_one_cell_equal_the_plain_convolutions():
    weight, bias, x = draw(C_OUT, C_IN, 1, 1), draw(C_OUT), draw(BATCH, C_IN, 3, 4)
    torch.testing.assert_close(conv1x1(weight, bias)(x), F.conv2d(x, weight, bias))
    weight, x = draw(C_IN, C_OUT, 1, 1), draw(BATCH, C_IN)
    expected = F.conv_transpose2d(x[..., None, None].expand(-1, -1, 3, 4), weight)
    torch.testing.assert_close(broadcast_conv1x1(weight)(x, (3, 4)), expected)


def test_other_devices_use_the_plain_operations():
    weight = torch.empty(C_OUT, C_IN, 3, 3, device="meta")
    assert pooled_conv3x3(weight)(torch.empty(1, C_IN, 7, 7, device="meta")).shape == (
        1,
        C_OUT,
        3,
        3,
    )


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("build", "weight", "x", "size"),
    [
        (pooled_conv3x3, (31, 37, 3, 3), (5, 37, 14, 14), ()),
        (upward_conv3x3, (37, 31, 3, 3), (5, 37, 7, 7), ((14, 14),)),
        (conv1x1, (31, 37, 1, 1), (5, 37, 3, 3), (None,)),
        (broadcast_conv1x1, (37, 31, 1, 1), (5, 37), ((3, 3),)),
    ],
)
def test_under_autocast_only_the_products_are_rounded(build, weight, x, size, plain, monkeypatch):
    monkeypatch.setattr(fast_convolutions, "CHUNK", 98)  # more than one chunk
    drawn = draw(*weight, dtype=torch.float32), draw(*x, dtype=torch.float32)
    results = []
    for amp in (False, True):
        leaves = [t.clone().requires_grad_() for t in drawn]
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", torch.bfloat16, enabled=amp))
            if plain:
                stack.enter_context(plain_operations())
            apply = build(leaves[0], *size) if build is conv1x1 else build(leaves[0])
            out = apply(leaves[1]) if build is conv1x1 else apply(leaves[1], *size)
        (out * draw(*out.shape, dtype=torch.float32)).sum().backward()
        results.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for exact, rounded in zip(*results, strict=True):
        assert rounded.dtype == torch.float32
        error = (rounded - exact).norm() / exact.norm()
        # Rounding may choose another of four outputs, which moves its gradient.
        assert 0 < error < (0.12 if build is pooled_conv3x3 else 0.01)
