"""MobileSAM: masks of the things that points or a box name, in any picture.

Three parts: the encoder TinyViT, and the prompt encoder and the two-way mask decoder of Segment
Anything, written from the paper (Kirillov et al., ICCV 2023). The size of the input is free: what
the picture does not fill of a square is not encoded.

Axes: b pictures, n tokens, c channels, p points, m masks; height width pixels of the input, and h w
cells of its grid, 16 pixels each.
"""

import io
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.encoders.registry import published
from soundspot.encoders.tiny_vit import DIM, ChannelNorm, TinyViT

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
STRIDE = 16  # pixels per cell of the embedding
MASK_STRIDE = 4  # pixels per cell of a mask


class Masks(NamedTuple):
    """What the decoder offers for one prompt: a part, a thing, the whole.

    Logits are positive inside a mask; its quality is the predicted IoU with the truth.
    """

    logits: Float[Tensor, "b m height width"]
    quality: Float[Tensor, "b m"]


class MobileSAM(nn.Module):
    """The whole network; `embed` once per picture, then `decode` per prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.image_encoder = TinyViT()
        self.prompt_encoder = PromptEncoder()
        self.mask_decoder = MaskDecoder()

    def embed(self, pixels: Float[Tensor, "b 3 height width"]) -> Float[Tensor, "b 256 h w"]:
        """The embedding of pictures of `prepare`; the encoder may be of lower precision."""
        weight = next(self.image_encoder.parameters())
        embedding: Tensor = self.image_encoder(pixels.to(weight.dtype))
        return embedding.float()

    def decode(
        self, embedding: Float[Tensor, "b 256 h w"], points: Float[Tensor, "b p 2"]
    ) -> Masks:
        """The three masks of the thing that holds all points, x y in pixels of the input."""
        side = max(embedding.shape[-2:]) * STRIDE
        return self._decode(embedding, self.prompt_encoder.points(points, side))

    def decode_box(self, embedding: Float[Tensor, "b 256 h w"], box: Float[Tensor, "b 4"]) -> Masks:
        """The three masks of the thing that fills a box, x1 y1 x2 y2 in pixels of the input."""
        side = max(embedding.shape[-2:]) * STRIDE
        return self._decode(embedding, self.prompt_encoder.box(box, side))

    def _decode(self, embedding: Tensor, prompt: Tensor) -> Masks:
        grid = self.prompt_encoder.grid(embedding.shape[-2], embedding.shape[-1])
        image = embedding + self.prompt_encoder.no_mask_embed.weight[0, :, None, None]
        masks: Masks = self.mask_decoder(image, grid, prompt)
        return masks


def prepare(picture: Float[Tensor, "3 _h _w"], side: int) -> Float[Tensor, "1 3 height width"]:
    """RGB of 0..255 with its longer side scaled to `side`, normalized; zeros fill the last cell."""
    height, width = (
        max(1, int(n * side / max(picture.shape[1:]) + 0.5)) for n in picture.shape[1:]
    )
    pixels = F.interpolate(
        picture[None], (height, width), mode="bilinear", align_corners=False, antialias=True
    )
    mean, std = (picture.new_tensor(values)[:, None, None] for values in (MEAN, STD))
    return F.pad((pixels - mean) / std, (0, -width % STRIDE, 0, -height % STRIDE))


class PromptEncoder(nn.Module):
    """Points and boxes as tokens: random Fourier features plus a learned kind."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.zeros(2, DIM // 2))
        # Background, foreground, upper left and lower right corner of a box.
        self.point_embeddings = nn.ModuleList(nn.Embedding(1, DIM) for _ in range(4))
        self.not_a_point_embed = nn.Embedding(1, DIM)
        self.no_mask_embed = nn.Embedding(1, DIM)

    def points(self, points: Float[Tensor, "b p 2"], side: int) -> Float[Tensor, "b n 256"]:
        """Tokens of foreground points, and one that says there is no box."""
        tokens = self._place((points + 0.5) / side) + self._kind(1)
        none = self.not_a_point_embed.weight.expand(len(points), 1, DIM)
        return torch.cat([tokens, none], dim=1)

    def box(self, box: Float[Tensor, "b 4"], side: int) -> Float[Tensor, "b 2 256"]:
        """Tokens of the two corners of a box."""
        corners = (box.reshape(-1, 2, 2) + 0.5) / side
        return self._place(corners) + torch.cat([self._kind(2), self._kind(3)])

    def grid(self, rows: int, columns: int) -> Float[Tensor, "1 256 h w"]:
        """The code of the centers of all cells."""
        side = max(rows, columns)
        centers = (torch.arange(side, device=self.frequencies.device) + 0.5) / side
        places = torch.cartesian_prod(centers[:rows], centers[:columns]).flip(-1)
        return self._place(places).T.reshape(1, DIM, rows, columns)

    def _kind(self, number: int) -> Float[Tensor, "1 256"]:
        kind = self.point_embeddings[number].weight
        assert isinstance(kind, Tensor)
        return kind

    def _place(self, places: Float[Tensor, "*any 2"]) -> Float[Tensor, "*any 256"]:
        angles = 2 * math.pi * ((2 * places - 1) @ self.frequencies)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class MaskDecoder(nn.Module):
    """Tokens that ask for masks and picture attend to each other; every token draws its mask."""

    def __init__(self) -> None:
        super().__init__()
        self.iou_token = nn.Embedding(1, DIM)
        self.mask_tokens = nn.Embedding(4, DIM)  # one for a single mask, three for a choice
        self.transformer = TwoWayTransformer()
        self.output_upscaling = nn.Sequential(
            nn.ConvTranspose2d(DIM, DIM // 4, 2, 2),
            ChannelNorm(DIM // 4),
            nn.GELU(),
            nn.ConvTranspose2d(DIM // 4, DIM // 8, 2, 2),
            nn.GELU(),
        )
        self.output_hypernetworks_mlps = nn.ModuleList(Perceptron(DIM // 8) for _ in range(4))
        self.iou_prediction_head = Perceptron(4)

    def forward(
        self,
        image: Float[Tensor, "b 256 h w"],
        grid: Float[Tensor, "1 256 h w"],
        prompt: Float[Tensor, "b n 256"],
    ) -> Masks:
        """The three masks of a choice."""
        asking = torch.cat([self.iou_token.weight, self.mask_tokens.weight])
        tokens = torch.cat([asking.expand(len(prompt), 5, DIM), prompt], dim=1)
        cells = image.flatten(2).transpose(1, 2), grid.flatten(2).transpose(1, 2)
        tokens, seen = self.transformer(tokens, *cells)
        drawn = self.output_upscaling(seen.transpose(1, 2).reshape_as(image))
        pens = torch.stack(
            [self.output_hypernetworks_mlps[k](tokens[:, 1 + k]) for k in (1, 2, 3)], dim=1
        )
        logits = torch.einsum("bmc,bchw->bmhw", pens, drawn)
        return Masks(logits, self.iou_prediction_head(tokens[:, 0])[:, 1:])


class TwoWayTransformer(nn.Module):
    """Two blocks in which tokens and cells attend to each other, and a last look of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TwoWayBlock(first=k == 0) for k in range(2))
        self.final_attn_token_to_image = Attention(DIM // 2)
        self.norm_final_attn = nn.LayerNorm(DIM)

    def forward(
        self,
        tokens: Float[Tensor, "b n 256"],
        cells: Float[Tensor, "b hw 256"],
        places: Float[Tensor, "1 hw 256"],
    ) -> tuple[Float[Tensor, "b n 256"], Float[Tensor, "b hw 256"]]:
        """Tokens and cells, after they have seen each other."""
        asked = tokens
        for layer in self.layers:
            tokens, cells = layer(tokens, cells, asked, places)
        found = self.final_attn_token_to_image(tokens + asked, cells + places, cells)
        return self.norm_final_attn(tokens + found), cells


class TwoWayBlock(nn.Module):
    """Tokens among themselves, tokens to cells, a perceptron, cells to tokens."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.first = first
        self.self_attn = Attention(DIM)
        self.cross_attn_token_to_image = Attention(DIM // 2)
        self.cross_attn_image_to_token = Attention(DIM // 2)
        self.mlp = nn.ModuleDict({"lin1": nn.Linear(DIM, 2048), "lin2": nn.Linear(2048, DIM)})
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.norm3, self.norm4 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)

    def forward(
        self,
        tokens: Float[Tensor, "b n 256"],
        cells: Float[Tensor, "b hw 256"],
        asked: Float[Tensor, "b n 256"],
        places: Float[Tensor, "1 hw 256"],
    ) -> tuple[Float[Tensor, "b n 256"], Float[Tensor, "b hw 256"]]:
        """One exchange; `asked` and `places` are added wherever tokens and cells are compared."""
        # At first the tokens are their own code, and nothing is kept of them.
        q = tokens if self.first else tokens + asked
        among = self.self_attn(q, q, tokens)
        tokens = self.norm1(among if self.first else tokens + among)
        found = self.cross_attn_token_to_image(tokens + asked, cells + places, cells)
        tokens = self.norm2(tokens + found)
        tokens = self.norm3(tokens + self.mlp["lin2"](F.relu(self.mlp["lin1"](tokens))))
        told = self.cross_attn_image_to_token(cells + places, tokens + asked, tokens)
        return tokens, self.norm4(cells + told)


class Attention(nn.Module):
    """Attention of eight heads, in a space that may be narrower."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(DIM, inner), nn.Linear(DIM, inner)
        self.v_proj, self.out_proj = nn.Linear(DIM, inner), nn.Linear(inner, DIM)

    def forward(
        self, q: Float[Tensor, "b n c"], k: Float[Tensor, "b m c"], v: Float[Tensor, "b m c"]
    ) -> Float[Tensor, "b n c"]:
        """What the queries take from the values."""
        heads = [
            project(x).unflatten(-1, (8, -1)).transpose(1, 2)
            for project, x in ((self.q_proj, q), (self.k_proj, k), (self.v_proj, v))
        ]
        mixed = F.scaled_dot_product_attention(*heads)
        taken: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return taken


class Perceptron(nn.Module):
    """Three layers with ReLU between them."""

    def __init__(self, out: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(DIM, width) for width in (DIM, DIM, out))

    def forward(self, x: Float[Tensor, "b c"]) -> Float[Tensor, "b d"]:
        """The output."""
        first, second, last = self.layers
        out: Tensor = last(F.relu(second(F.relu(first(x)))))
        return out


def from_published(data: bytes) -> dict[str, Tensor]:
    """The tensors of the published file."""
    return convert(torch.load(io.BytesIO(data), "cpu", weights_only=True))


def convert(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by the names used here, with every batch norm folded into its convolution."""
    state: dict[str, Tensor] = {}
    for name, tensor in published.items():
        stem = name.removesuffix(".c.weight")
        if stem != name:
            gamma, beta, mean, var = (
                published[f"{stem}.bn.{part}"]
                for part in ("weight", "bias", "running_mean", "running_var")
            )
            scale = gamma / torch.sqrt(var + 1e-5)
            stem = stem.replace("patch_embed.seq", "patch_embed")
            state[f"{stem}.weight"] = tensor * scale[:, None, None, None]
            state[f"{stem}.bias"] = beta - mean * scale
        elif ".bn." not in name and not any(part in name for part in UNUSED):
            state[name.replace("pe_layer.positional_encoding_gaussian_matrix", "frequencies")] = (
                tensor
            )
    return state


UNUSED = ("norm_head", "image_encoder.head", "mask_downscaling")  # of tasks that are not ours
WEIGHTS = published("mobile-sam", from_published)
