"""Several visual encoders as one: their features side by side on one grid.

Axes: b batch, c channels of all encoders, h w the feature grid.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

SEPARATOR = "+"  # between the names, as in vgg16+mobilenetv2
EPSILON = 1e-6  # of a mean square


class JoinedEncoder(nn.Module):
    """Encoders that see the same pictures, each at its own size."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, *views: Float[Tensor, "b 3 _h _w"]) -> Float[Tensor, "b c h w"]:
        """One view of the pictures for each encoder, in their order."""
        return join([part(view) for part, view in zip(self.parts, views, strict=True)])


def join(features: Sequence[Float[Tensor, "b _c h w"]]) -> Float[Tensor, "b c h w"]:
    """Join by channel; every location of each feature gets a mean square of 1 first.

    Otherwise the encoder with the larger values would drown the others.
    """
    squares = [feature.square().mean(dim=1, keepdim=True) for feature in features]
    scaled = [f * (s + EPSILON).rsqrt() for f, s in zip(features, squares, strict=True)]
    return torch.cat(scaled, dim=1)
