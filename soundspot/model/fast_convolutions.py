"""The PCM's convolutions with fewer multiplications and the same result.

A convolution is linear in space and in channels, so it can be split into small fixed matrices over
the cells and one large matrix product over the channels:

- `pooled_conv3x3`, down to half the grid: a convolution, then max pooling. Winograd's
  F(2 x 2, 3 x 3) takes 16 products for every 2 x 2 outputs instead of 36, and these four outputs
  are exactly one window of the pooling (A. Lavin and S. Gray, "Fast algorithms for convolutional
  neural networks", 2016, whose A, B and G are named below).
- `upward_conv3x3`, up to the grid above: bilinear up-sampling, then a transposed convolution. The
  nine taps are multiplied at the few cells below, then up-sampled and shifted into place.
- `conv1x1` and `broadcast_conv1x1`: a matrix product of the cells, or of one cell for all.

Each takes the weight and returns the map: what depends on the weight alone is computed once for
all applications. Only CPUs benefit; elsewhere, and under torch.compile, the maps are PyTorch's own
operations. Under autocast the large products are made in its type; the small ones, sums and results
stay in that of the weight.

Axes: b batch, i input channels, o output channels, h w cells, y z the coarser grid of the two,
n tiles or cells of a part of the batch.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from soundspot.encoders.products import onednn_multiplies, product, products
from soundspot.encoders.winograd import F2, is_worthwhile

# Tiles or cells that are multiplied at once, and pictures that are cut into tiles at once: as many
# as a matrix product needs to be efficient, and as few as fit into the caches.
CHUNK = 784
PICTURES = 2


def pooled_conv3x3(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """The map x -> max_pool2d(conv2d(x, weight, padding=1), 2), weight (o, i, 3, 3)."""
    if not is_worthwhile(weight):
        return lambda x: F.max_pool2d(F.conv2d(x, weight, padding=1), 2).to(weight.dtype)
    multiplied = _multiplied_type(weight)
    with _without_autocast():
        g = weight.new_tensor(F2.g)
        taps = weight.permute(3, 2, 0, 1).reshape(9, -1)  # columns before rows, as in _tiles
        transformed = (torch.kron(g, g) @ taps).view(16, *weight.shape[:2])

    def apply(x: Tensor) -> Tensor:
        with _without_autocast():
            out: Tensor = _PooledWinograd.apply(_channels_last(x), transformed, multiplied)  # type: ignore[no-untyped-call]
        return _channels_first(out)

    return apply


def upward_conv3x3(weight: Tensor) -> Callable[[Tensor, Sequence[int]], Tensor]:
    """The map of x to a grid of a given size by a transposed convolution, weight (i, o, 3, 3).

    A grid of 2n + 1 by 2m + 1 is reached by stride 2 (3 -> 7), any other by bilinear up-sampling
    first (7 -> 14).
    """
    if not is_worthwhile(weight):
        return lambda x, size: plain_upward_conv3x3(x, weight, size)
    multiplied = _multiplied_type(weight)
    kernel = weight.permute(2, 0, 3, 1).contiguous()

    def apply(x: Tensor, size: Sequence[int]) -> Tensor:
        h, w = x.shape[-2:]
        stride_2 = tuple(size) == (2 * h + 1, 2 * w + 1)
        rows = _spread(h, size[0], stride_2).to(x).permute(2, 0, 1).contiguous()
        columns = _spread(w, size[1], stride_2).to(x).flatten(1)
        with _without_autocast():
            out: Tensor = _SpreadTaps.apply(_channels_last(x), kernel, rows, columns, multiplied)  # type: ignore[no-untyped-call]
        return _channels_first(out)

    return apply


def conv1x1(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The map x -> conv2d(x, weight, bias), weight (o, i, 1, 1): a matrix product of the cells."""
    if not is_worthwhile(weight):
        return lambda x: F.conv2d(x, weight, bias).to(weight.dtype)
    flat = weight.flatten(1)
    return lambda x: _channels_first(F.linear(_channels_last(x), flat, bias)).to(weight.dtype)


def broadcast_conv1x1(weight: Tensor) -> Callable[[Tensor, Sequence[int]], Tensor]:
    """The map of a vector (b, i), the same in every cell, to a grid, weight (i, o, 1, 1).

    A transposed convolution of 1 x 1 gives every cell the same, so one cell is enough.
    """
    if not is_worthwhile(weight):
        return lambda x, size: F.conv_transpose2d(
            x[..., None, None].expand(-1, -1, *size), weight
        ).to(weight.dtype)
    flat = weight.flatten(1)
    return lambda x, size: (x @ flat).to(weight.dtype)[..., None, None].expand(-1, -1, *size)


def plain_upward_conv3x3(x: Tensor, weight: Tensor, size: Sequence[int]) -> Tensor:
    """What `upward_conv3x3` computes, in PyTorch's operations."""
    h, w = x.shape[-2:]
    if tuple(size) == (2 * h + 1, 2 * w + 1):
        return F.conv_transpose2d(x, weight, stride=2).to(weight.dtype)
    x = F.interpolate(x, size=tuple(size), mode="bilinear", align_corners=True)
    return F.conv_transpose2d(x, weight, padding=1).to(weight.dtype)


def _multiplied_type(weight: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype


def _without_autocast() -> torch.autocast:
    return torch.autocast("cpu", enabled=False)


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def _channels_first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


class _PooledWinograd(torch.autograd.Function):
    """max_pool2d of a convolution: x (b, h, w, i) and G w G^T of the weights, (16, o, i).

    F2's B and A hold only 1, 0 and -1: they are written out as sums in _combine and _outputs.
    The backward pass makes the tiles again: they are four times as large as x.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, multiplied: torch.dtype) -> Tensor:
        b, h, w, _ = x.shape
        y, z = h // 2, w // 2
        pooled = x.new_empty(b, y, z, weights.shape[1])
        lower = torch.empty_like(pooled, dtype=torch.bool)
        right = torch.empty_like(pooled, dtype=torch.bool)
        factor = weights.to(multiplied).mT
        for part in _chunks(b, y * z):
            outcome = products(_tiles(x[part]).to(multiplied), factor).to(x.dtype)
            flat = (t[part].flatten(0, 2) for t in (pooled, lower, right))
            _largest_outputs(outcome.view(4, 4, *outcome.shape[1:]), *flat)
        ctx.save_for_backward(x, weights, lower, right)
        ctx.multiplied = multiplied
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weights, lower, right = ctx.saved_tensors
        grad, factor = grad.contiguous(), weights.to(ctx.multiplied)
        for_x, for_weights, _ = ctx.needs_input_grad
        grad_x = torch.empty_like(x) if for_x else None
        grad_weights = torch.empty_like(weights) if for_weights else None
        for part in _chunks(len(x), grad[0, ..., 0].numel()):
            flat = (t[part].flatten(0, 2) for t in (grad, lower, right))
            grad_tiles = _grad_of_products(*flat).flatten(0, 1).to(ctx.multiplied)
            if grad_weights is not None:
                tiles = _tiles(x[part]).to(ctx.multiplied)
                _add_product(grad_weights, grad_tiles.mT, tiles, first=part.start == 0)
            if grad_x is not None:
                _untile(products(grad_tiles, factor).to(x.dtype), grad_x[part])
        return grad_x, grad_weights, None


def _add_product(total: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
    """Add a @ b to the total, which the first product of all starts."""
    if a.dtype != total.dtype or onednn_multiplies(a):
        result = product(a, b) if total.dim() == 2 else products(a, b)
        total.copy_(result) if first else total.add_(result)
    elif total.dim() == 2:
        total.addmm_(a, b, beta=0 if first else 1)
    else:
        total.baddbmm_(a, b, beta=0 if first else 1)


def _chunks(b: int, tiles: int) -> list[slice]:
    step = max(1, CHUNK // tiles)
    return [slice(start, start + step) for start in range(0, b, step)]


def _tiles(x: Tensor) -> Tensor:
    """B^T d B of every tile d of 4 x 4 cells, with zeros around the picture: (16, n, i)."""
    b, h, w, c = x.shape
    tiles = x.new_empty(4, 4, b, h // 2, w // 2, c)
    for pictures, part in zip(
        torch.split(x, PICTURES), torch.split(tiles, PICTURES, 2), strict=True
    ):
        padded = F.pad(pictures, (0, 0, 1, 1 - w % 2, 1, 1 - h % 2))
        rows = x.new_empty(4, len(pictures), h // 2, padded.shape[2], c)
        _combine(padded, 1, rows)
        _combine(rows, 3, part)
    return tiles.view(16, -1, c)


def _combine(x: Tensor, dim: int, out: Tensor) -> None:
    """B^T along one axis of 2n + 2 cells: four combinations of the four cells of each of n tiles.

    The new axis of four comes first.
    """
    n = out.shape[dim + 1]
    even, odd = torch.unflatten(x, dim, (n + 1, 2)).unbind(dim + 1)
    first, third = even.narrow(dim, 0, n), even.narrow(dim, 1, n)
    second, fourth = odd.narrow(dim, 0, n), odd.narrow(dim, 1, n)
    torch.sub(first, third, out=out[0])
    torch.add(second, third, out=out[1])
    torch.sub(third, second, out=out[2])
    torch.sub(second, fourth, out=out[3])


def _untile(tiles: Tensor, out: Tensor) -> None:
    """The transpose of `_tiles`: (16, n, i) into the gradient of the picture."""
    b, h, w, c = out.shape
    tiles = tiles.view(4, 4, b, h // 2, w // 2, c)
    for pictures, part in zip(
        torch.split(out, PICTURES), torch.split(tiles, PICTURES, 2), strict=True
    ):
        rows = out.new_empty(4, len(pictures), h // 2, w, c)
        _separate(part, 3, rows)
        _separate(rows, 1, pictures)


def _separate(tiles: Tensor, dim: int, out: Tensor) -> None:
    """The transpose of `_combine`, without the zeros around: four times n tiles to 2n or 2n + 1.

    The two cells in the middle of a tile are its own; the outer two belong to its neighbors.
    """
    n = tiles.shape[dim + 1]
    second, third = torch.unflatten(out.narrow(dim, 0, 2 * n), dim, (n, 2)).unbind(dim + 1)
    torch.sub(tiles[1], tiles[2], out=second).add_(tiles[3])
    torch.add(tiles[1], tiles[2], out=third).sub_(tiles[0])
    second.narrow(dim, 1, n - 1).sub_(tiles[3].narrow(dim, 0, n - 1))
    third.narrow(dim, 0, n - 1).add_(tiles[0].narrow(dim, 1, n - 1))
    if out.shape[dim] > 2 * n:
        torch.neg(tiles[3].narrow(dim, n - 1, 1), out=out.narrow(dim, 2 * n, 1))


def _largest_outputs(tiles: Tensor, largest: Tensor, lower: Tensor, right: Tensor) -> None:
    """A^T m A of every tile: of its 2 x 2 outputs the largest and where it stands; all (n, o)."""
    left_half, right_half = _outputs(tiles)
    top_left, bottom_left = _outputs(left_half)
    top_right, bottom_right = _outputs(right_half)
    right_at_top, right_at_bottom = top_right > top_left, bottom_right > bottom_left
    top = torch.maximum(top_left, top_right, out=top_left)
    bottom = torch.maximum(bottom_left, bottom_right, out=bottom_left)
    torch.gt(bottom, top, out=lower)
    # Right where the row that wins has its largest on the right; torch.where is slow on bools.
    torch.bitwise_xor(right_at_top, right_at_bottom, out=right)
    right.bitwise_and_(lower).bitwise_xor_(right_at_top)
    torch.maximum(top, bottom, out=largest)


def _outputs(lines: Tensor) -> tuple[Tensor, Tensor]:
    """A^T along the leading axis of four: the first and the second output."""
    first = (lines[0] + lines[1]).add_(lines[2])
    second = (lines[1] - lines[2]).sub_(lines[3])
    return first, second


def _grad_of_products(grad: Tensor, lower: Tensor, right: Tensor) -> Tensor:
    """The gradient goes to one output of each tile, and through A to the 4 x 4 products."""
    rows = grad.new_empty(4, *grad.shape)
    _grad_to_one(grad, lower, rows)
    tiles = grad.new_empty(4, *rows.shape)
    _grad_to_one(rows, right, tiles)
    return tiles


def _grad_to_one(grad: Tensor, second: Tensor, out: Tensor) -> None:
    """A times a pair of outputs of which only the first or the second has a gradient."""
    torch.mul(grad, ~second, out=out[0])
    out[1] = grad
    torch.sub(out[0], grad, out=out[3])
    torch.add(out[0], out[3], out=out[2])


class _SpreadTaps(torch.autograd.Function):
    """Nine taps at every cell, spread over a larger grid.

    x (b, y, z, i), the kernel (3, i, 3, o), and two matrices from `_spread`: rows (3, h, y) and
    columns (w, z * 3).
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        kernel: Tensor,
        rows: Tensor,
        columns: Tensor,
        multiplied: torch.dtype,
    ) -> Tensor:
        b, y, z, i = x.shape
        o, h, w = kernel.shape[3], rows.shape[1], len(columns)
        out = x.new_empty(b, h, w * o)
        factor = kernel.to(multiplied)
        for part in _chunks(b, y * z):
            cells = x[part].view(-1, i).to(multiplied)
            tapped = x.new_empty(3, len(cells), 3 * o)
            for tap in range(3):
                _add_product(tapped[tap], cells, factor[tap].flatten(1), first=True)
            tapped = tapped.view(-1, z * 3, o)
            wide = torch.bmm(columns.expand(len(tapped), -1, -1), tapped).view(3, -1, y, w * o)
            high = out[part]
            for tap in range(3):
                matrix = rows[tap].expand(len(high), -1, -1)
                torch.baddbmm(high, matrix, wide[tap], beta=min(tap, 1), out=high)
        ctx.save_for_backward(x, kernel, rows, columns)
        ctx.multiplied = multiplied
        return out.view(b, h, w, o)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel, rows, columns = ctx.saved_tensors
        _, y, z, i = x.shape
        _, h, w, o = grad.shape
        grad, factor = grad.reshape(-1, h, w * o), kernel.to(ctx.multiplied)
        for_x, for_kernel = ctx.needs_input_grad[:2]
        grad_x = torch.empty_like(x) if for_x else None
        grad_kernel = torch.empty_like(kernel) if for_kernel else None
        for part in _chunks(len(x), y * z):
            high, cells = grad[part], x[part].view(-1, i).to(ctx.multiplied)
            wide = x.new_empty(3, len(high), y, w * o)
            for tap in range(3):
                torch.bmm(rows[tap].mT.expand(len(high), -1, -1), high, out=wide[tap])
            wide = wide.view(-1, w, o)
            tapped = torch.bmm(columns.mT.expand(len(wide), -1, -1), wide).view(3, -1, 3 * o)
            tapped = tapped.to(ctx.multiplied)
            for tap in range(3):
                if grad_x is not None:
                    total, matrix = grad_x[part].view(-1, i), factor[tap].flatten(1).mT
                    _add_product(total, tapped[tap], matrix, first=tap == 0)
                if grad_kernel is not None:
                    total = grad_kernel[tap].view(i, 3 * o)
                    _add_product(total, cells.mT, tapped[tap], first=part.start == 0)
        return grad_x, grad_kernel, None, None, None


@lru_cache(maxsize=64)
def _spread(below: int, above: int, stride_2: bool) -> Tensor:
    """Up-sample `below` cells to `above` and shift by the tap, along one axis: (above, below, 3).

    Made by pushing every cell and every tap through the plain operations.
    """
    # The matrix is kept, so it must not depend on the mode or device of its first caller.
    with torch.inference_mode(False), torch.device("cpu"):
        cells = torch.eye(below, dtype=torch.float64)[:, None]
        taps = torch.eye(3, dtype=torch.float64)[None]
        if stride_2:
            lines = F.conv_transpose1d(cells, taps, stride=2)
        else:
            cells = F.interpolate(cells, size=above, mode="linear", align_corners=True)
            lines = F.conv_transpose1d(cells, taps, padding=1)
        return lines.permute(2, 0, 1).contiguous()
