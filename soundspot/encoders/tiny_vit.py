"""TinyViT-5M: the picture encoder of MobileSAM.

Written from the paper (Wu et al., ECCV 2022; distilled for masks by Zhang et al., 2023).

Axes: b pictures, n tokens of a window, c d channels; height width pixels of the input, h w and k l
cells of a grid, 16 pixels each at the end.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

DIM = 256
WIDTHS, DEPTHS = (64, 128, 160, 320), (2, 2, 6, 2)
HEADS, WINDOWS = (0, 4, 5, 10), (0, 7, 14, 7)  # the first stage has convolutions only


class TinyViT(nn.Module):
    """Convolutions, then attention in windows; the last stage keeps its resolution."""

    def __init__(self) -> None:
        super().__init__()
        first = WIDTHS[0]
        self.patch_embed = nn.Sequential(
            nn.Conv2d(3, first // 2, 3, 2, 1), nn.GELU(), nn.Conv2d(first // 2, first, 3, 2, 1)
        )
        self.layers = nn.ModuleList(Stage(number) for number in range(4))
        self.neck = nn.Sequential(
            nn.Conv2d(WIDTHS[3], DIM, 1, bias=False),
            ChannelNorm(DIM),
            nn.Conv2d(DIM, DIM, 3, padding=1, bias=False),
            ChannelNorm(DIM),
        )

    def forward(self, pixels: Float[Tensor, "b 3 height width"]) -> Float[Tensor, "b 256 h w"]:
        """The embedding of normalized pictures."""
        x = self.patch_embed(pixels)
        for layer in self.layers:
            x = layer(x)
        embedding: Tensor = self.neck(x)
        return embedding


class Stage(nn.Module):
    """Blocks of one resolution, then a step to the next width."""

    def __init__(self, number: int) -> None:
        super().__init__()
        width, heads, window = WIDTHS[number], HEADS[number], WINDOWS[number]
        self.blocks = nn.ModuleList(
            WindowBlock(width, heads, window) if heads else ConvBlock(width)
            for _ in range(DEPTHS[number])
        )
        last = number == 3
        # Only the first two steps halve the resolution: masks need a fine grid.
        self.downsample = None if last else Step(width, WIDTHS[number + 1], 2 if number < 2 else 1)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d k l"]:
        """All blocks in turn."""
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)


class ConvBlock(nn.Module):
    """An inverted bottleneck: wider, 3x3 per channel, narrower."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, 4 * width, 1)
        self.conv2 = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)
        self.conv3 = nn.Conv2d(4 * width, width, 1)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """A residual block."""
        inner = F.gelu(self.conv2(F.gelu(self.conv1(x))))
        return F.gelu(x + self.conv3(inner))


class Step(nn.Module):
    """To the next width, and maybe to half the resolution."""

    def __init__(self, width: int, wider: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, wider, 1)
        self.conv2 = nn.Conv2d(wider, wider, 3, stride, 1, groups=wider)
        self.conv3 = nn.Conv2d(wider, wider, 1)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d k l"]:
        """Three convolutions."""
        stepped: Tensor = self.conv3(F.gelu(self.conv2(F.gelu(self.conv1(x)))))
        return stepped


class WindowBlock(nn.Module):
    """Attention in windows, a 3x3 convolution per channel, a perceptron per cell."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.attn = WindowAttention(width, heads, window)
        self.local_conv = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.mlp = nn.ModuleDict(
            {
                "norm": nn.LayerNorm(width),
                "fc1": nn.Linear(width, 4 * width),
                "fc2": nn.Linear(4 * width, width),
            }
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The block, on a grid."""
        b, c, h, w = x.shape
        k = self.window
        # Windows: the grid is filled up with zeros where it is not a multiple of their side.
        down, right = -h % k, -w % k
        grid = F.pad(x, (0, right, 0, down))
        rows, columns = (h + down) // k, (w + right) // k
        tokens = grid.reshape(b, c, rows, k, columns, k).permute(0, 2, 4, 3, 5, 1)
        tokens = self.attn(tokens.reshape(b * rows * columns, k * k, c))
        grid = tokens.reshape(b, rows, columns, k, k, c).permute(0, 5, 1, 3, 2, 4)
        x = x + grid.reshape(b, c, h + down, w + right)[:, :, :h, :w]
        x = self.local_conv(x)
        tokens = self.mlp["norm"](x.permute(0, 2, 3, 1))
        told: Tensor = self.mlp["fc2"](F.gelu(self.mlp["fc1"](tokens)))
        return x + told.permute(0, 3, 1, 2)


class WindowAttention(nn.Module):
    """Self-attention of a window, with a learned bias per distance of two cells."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.attention_biases = nn.Parameter(torch.zeros(heads, window * window))

    def forward(self, tokens: Float[Tensor, "windows n c"]) -> Float[Tensor, "windows n c"]:
        """Attention within each window."""
        windows, n, c = tokens.shape
        q, k, v = (
            self.qkv(self.norm(tokens))
            .reshape(windows, n, self.heads, 3, c // self.heads)
            .permute(3, 0, 2, 1, 4)
        )
        cells = torch.arange(n, device=tokens.device)
        y, x = cells // self.window, cells % self.window
        apart = (y[:, None] - y).abs() * self.window + (x[:, None] - x).abs()
        bias = self.attention_biases[:, apart]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        attended: Tensor = self.proj(mixed.transpose(1, 2).reshape(windows, n, c))
        return attended


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of a grid."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=1e-6)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Normalize every cell."""
        normalized: Tensor = super().forward(x.permute(0, 2, 3, 1))
        return normalized.permute(0, 3, 1, 2)
