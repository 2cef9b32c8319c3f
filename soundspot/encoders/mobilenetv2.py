"""MobileNetV2 as a small visual encoder f_v: its last feature, and its 1,000 ImageNet classes.

Axes: b batch, h w pixels, h32 w32 the feature grid (448 pixels give 14), h16 w16 one twice as fine.
"""

from dataclasses import replace
from importlib.resources import files

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot.encoders.formats import read_tensors
from soundspot.encoders.registry import EncoderSpec, published

CHANNELS = 1280
CLASSES = 1000
STRIDE = 32
VIEW_SIZE = 448  # twice what it was trained on, for a grid of 14 x 14
SMALL_VIEW_SIZE = 320  # a grid of 10 x 10 in half the time
FINE_VIEW_SIZE = 352  # a grid of 11 x 11, with finer channels of 22 x 22
FINE_BLOCK = 13  # how many blocks give the finer feature, before the last stride
FINE_CHANNELS = 96
FINER = 2
STEM = 32
EXPANSION = 6
# (output channels, stride) of the inverted residual blocks; the first one does not expand.
BLOCKS = (
    (16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1), (64, 1),
    (96, 1), (96, 1), (96, 1), (160, 2), (160, 1), (160, 1), (320, 1),
)  # fmt: skip
BATCH_NORM_EPSILON = 1e-5


class InvertedResidual(nn.Module):
    """Widen by a 1x1 convolution, filter each channel by a 3x3 one, narrow by a linear 1x1 one."""

    def __init__(self, c_in: int, c_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = c_in * expansion
        self.expand = nn.Conv2d(c_in, width, 1) if expansion > 1 else None
        self.depthwise = nn.Conv2d(width, width, 3, stride, padding=1, groups=width)
        self.project = nn.Conv2d(width, c_out, 1)
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: Float[Tensor, "b c_in h w"]) -> Float[Tensor, "b c_out h_out w_out"]:
        """The narrow ends have no activation, and are added where they have the same shape."""
        wide = x if self.expand is None else F.relu6(self.expand(x))
        narrow: Tensor = self.project(F.relu6(self.depthwise(wide)))
        return x + narrow if self.residual else narrow


class MobileNetV2(nn.Module):
    """torchvision's `mobilenet_v2`, its batch norms folded into the convolutions.

    It takes RGB in 0..1, normalized with the ImageNet mean and standard deviation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, STEM, 3, stride=2, padding=1)
        widths = (STEM, *(width for width, _ in BLOCKS))
        self.blocks = nn.Sequential(
            *(
                InvertedResidual(c_in, c_out, stride, EXPANSION if number else 1)
                for number, (c_in, (c_out, stride)) in enumerate(zip(widths, BLOCKS, strict=False))
            )
        )
        self.head = nn.Conv2d(widths[-1], CHANNELS, 1)
        self.classifier = nn.Linear(CHANNELS, CLASSES)

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b _c h32 w32"]:
        """The last feature before it is averaged, on a grid 32 times coarser than the image."""
        # One picture fills a CPU's caches: several at once take half as long again.
        alone = image.device.type == "cpu" and not torch.compiler.is_compiling()
        pictures = torch.split(image, 1) if alone else (image,)
        return torch.cat([self._feature(picture) for picture in pictures])

    def _feature(self, image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b _c h32 w32"]:
        return F.relu6(self.head(self.blocks(F.relu6(self.stem(image)))))

    def classify(self, feature: Float[Tensor, "*location 1280"]) -> Float[Tensor, "*location 1000"]:
        """Logits of the ImageNet classes, in the order of `class_names`.

        They are linear in the feature: those of a picture are the mean of those of its locations.
        """
        logits: Tensor = self.classifier(feature)
        return logits


class FineMobileNetV2(MobileNetV2):
    """With a feature of its middle layers behind the last one: four fine cells to a coarse one."""

    def _feature(self, image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 1664 h32 w32"]:
        fine = self.blocks[:FINE_BLOCK](F.relu6(self.stem(image)))
        last = F.relu6(self.head(self.blocks[FINE_BLOCK:](fine)))
        right, below = (FINER * last.shape[k] - fine.shape[k] for k in (3, 2))  # of odd grids
        fine = F.pad(fine, (0, right, 0, below))
        return torch.cat([last, F.pixel_unshuffle(fine, FINER)], dim=1)


def from_torchvision(data: bytes) -> dict[str, Tensor]:
    """Converts mobilenet_v2-b0353104.pth: every batch norm goes into the convolution before it."""
    layers = dict(_published_layers())
    norm_parts = ("weight", "bias", "running_mean", "running_var")
    keys = [f"{conv}.weight" for conv, _ in layers.values()]
    keys += [f"{norm}.{part}" for _, norm in layers.values() for part in norm_parts]
    classifier = {f"classifier.{part}": f"classifier.1.{part}" for part in ("weight", "bias")}
    given = read_tensors(data, [*keys, *classifier.values()])
    state = {}
    for own, (conv, norm) in layers.items():
        gamma, beta, mean, variance = (given[f"{norm}.{part}"].double() for part in norm_parts)
        scale = gamma / (variance + BATCH_NORM_EPSILON).sqrt()
        weight = given[f"{conv}.weight"].double() * scale[:, None, None, None]
        state[f"{own}.weight"] = weight.float()
        state[f"{own}.bias"] = (beta - mean * scale).float()
    return state | {own: given[published] for own, published in classifier.items()}


def _published_layers() -> list[tuple[str, tuple[str, str]]]:
    """Our names of the convolutions -> torchvision's names of the convolution and its norm."""
    layers = [("stem", ("features.0.0", "features.0.1"))]
    for number in range(len(BLOCKS)):
        block = f"features.{number + 1}.conv"
        parts = ("expand", "depthwise") if number else ("depthwise",)
        for place, part in enumerate(parts):
            layers.append((f"blocks.{number}.{part}", (f"{block}.{place}.0", f"{block}.{place}.1")))
        narrow = len(parts)
        layers.append((f"blocks.{number}.project", (f"{block}.{narrow}", f"{block}.{narrow + 1}")))
    last = f"features.{len(BLOCKS) + 1}"
    return [*layers, ("head", (f"{last}.0", f"{last}.1"))]


def class_names() -> list[str]:
    """The names of ImageNet's 1,000 classes in the order of the scores, as torchvision has them."""
    text = files("soundspot.encoders").joinpath("imagenet_classes.txt").read_text(encoding="utf-8")
    return text.splitlines()


WEIGHTS = published("mobilenetv2-imagenet", from_torchvision)
ENCODER = EncoderSpec("mobilenetv2", "visual", MobileNetV2, CHANNELS, WEIGHTS, STRIDE, VIEW_SIZE)
SMALL = replace(ENCODER, name="mobilenetv2-320", view=SMALL_VIEW_SIZE)
FINE = replace(
    ENCODER,
    name="mobilenetv2-fine",
    build=FineMobileNetV2,
    channels=CHANNELS + FINER**2 * FINE_CHANNELS,
    view=FINE_VIEW_SIZE,
)
