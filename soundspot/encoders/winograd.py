"""3 x 3 convolutions of frozen weights with fewer multiplications: Winograd's F(m x m, 3 x 3).

Each m x m block of outputs takes (m + 2)^2 products per channel, not 9 m^2, between two small fixed
transforms of the cells (A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks",
2016, whose A, B and G are named below). The weights are transformed once. Only CPUs benefit.

Axes: b batch, i input channels, o output channels, h w cells.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from soundspot.encoders.products import products

Matrix = tuple[tuple[float, ...], ...]
TILES = 112  # multiplied at once: enough for a matrix product, and few enough for the caches
LARGE = 20  # cells from which the larger tiles are faster; they waste more at the edge

_plain = ContextVar("plain", default=False)


class Transform(NamedTuple):
    """The three matrices for tiles of m x m outputs."""

    m: int
    a: Matrix
    b: Matrix
    g: Matrix


F2 = Transform(
    2,
    a=((1, 1, 1, 0), (0, 1, -1, -1)),
    b=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    g=((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
)
F4 = Transform(
    4,
    a=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    b=(
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    g=(
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
)


@contextmanager
def plain_operations() -> Iterator[None]:
    """Use PyTorch's own convolutions on a CPU too: to count them, or to compare."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def is_worthwhile(x: Tensor) -> bool:
    """Whether the fast form is the faster one: on a CPU, and not compiled."""
    on_cpu = x.device.type == "cpu"
    return on_cpu and not torch.compiler.is_compiling() and not _plain.get()


def transform_weight(weight: Float[Tensor, "o i 3 3"], by: Transform) -> Float[Tensor, "t i o"]:
    """G w G^T of every pair of channels; t counts the (m + 2)^2 products of a tile."""
    g, (o, i) = weight.new_tensor(by.g), weight.shape[:2]
    # Turned as a matrix and multiplied channel by channel: a third of the time of a permutation.
    taps = weight.reshape(o, -1).t().contiguous().view(i, 9, o)
    return (torch.kron(g, g) @ taps).transpose(0, 1)


def conv3x3(
    x: Float[Tensor, "b i h w"],
    weights: Float[Tensor, "t i o"],
    bias: Float[Tensor, "o"],
    by: Transform,
) -> Float[Tensor, "b o h w"]:
    """conv2d(x, weight, bias, padding=1) from the transformed weights, in channels_last.

    A picture is computed alone, so its result does not depend on the rest of the batch.
    """
    b, i, h, w = x.shape
    m, side, o = by.m, by.m + 2, weights.shape[2]
    rows, columns = -(-h // m), -(-w // m)  # of tiles
    into, back = x.new_tensor(by.b), x.new_tensor(by.a)
    into, back = torch.kron(into, into), torch.kron(back, back)
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, 1, columns * m + 1 - w, 1, rows * m + 1 - h))
    padded = padded.contiguous()
    out = x.new_empty(b, rows * m, columns * m, o)
    step = max(1, TILES // columns)
    for picture, result in zip(padded, out, strict=True):
        tiles = picture.unfold(0, side, m).unfold(1, side, m).permute(3, 4, 0, 1, 2)
        for start in range(0, rows, step):
            part = tiles[:, :, start : start + step]
            transformed = (into @ part.reshape(side * side, -1)).view(side * side, -1, i)
            multiplied = products(transformed, weights).view(side * side, -1)
            cells = (back @ multiplied).view(m, m, -1, columns, o).permute(2, 0, 3, 1, 4)
            target = result[start * m : (start + step) * m]
            torch.add(cells, bias, out=target.view(-1, m, columns, m, o))
    return out[:, :h, :w].permute(0, 3, 1, 2)
