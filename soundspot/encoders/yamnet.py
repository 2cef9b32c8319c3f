"""YAMNet as the audio encoder f_a: MobileNet-v1 on log-mel patches, trained on AudioSet.

Axes: b batch, samples at 16 kHz, patches per waveform, n patches of all waveforms,
c channels, h frames, w mel bands.
"""

from importlib.resources import files

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot.encoders.formats import Layer, read_layers
from soundspot.encoders.logmel import YAMNET_OFFSET, log_mel_patches, stretch_waveform
from soundspot.encoders.registry import EncoderSpec, published

CHANNELS = 1024
CLASSES = 521
STEM = 32
# (output channels, stride) of the depthwise-separable blocks.
BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1),
    (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's "SAME" padding along one axis: (before, after); an odd pixel goes after.

    PyTorch's symmetric padding of 1 differs for stride 2 on an even size, which gives (0, 1) here.
    """
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class SameConv2d(nn.Conv2d):
    """A 3x3 convolution with TensorFlow's "SAME" padding."""

    def __init__(self, c_in: int, c_out: int, stride: int, groups: int = 1) -> None:
        super().__init__(c_in, c_out, kernel_size=3, stride=stride, groups=groups)

    def forward(self, input: Float[Tensor, "n c_in h w"]) -> Float[Tensor, "n c_out h_out w_out"]:
        """Pads according to the size of the input, then convolves."""
        height, width = input.shape[2:]
        top, bottom = same_padding(height, 3, self.stride[0])
        left, right = same_padding(width, 3, self.stride[1])
        if (top, bottom, left, right) == (1, 1, 1, 1):
            return F.conv2d(input, self.weight, self.bias, self.stride, 1, 1, self.groups)
        return super().forward(F.pad(input, (left, right, top, bottom)))


class SeparableBlock(nn.Module):
    """A 3x3 convolution within each channel, then a 1x1 convolution across channels."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.depthwise = SameConv2d(c_in, c_in, stride, groups=c_in)
        self.pointwise = nn.Conv2d(c_in, c_out, 1)

    def forward(self, x: Float[Tensor, "n c_in h w"]) -> Float[Tensor, "n c_out h_out w_out"]:
        """Each of the two convolutions is followed by ReLU6."""
        return F.relu6(self.pointwise(F.relu6(self.depthwise(x))))


class YAMNet(nn.Module):
    """YAMNet, its batch norms folded into the convolutions as in the public TFLite file."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = SameConv2d(1, STEM, stride=2)
        widths = (STEM, *(width for width, _ in BLOCKS))
        blocks = zip(widths, BLOCKS, strict=False)
        self.blocks = nn.Sequential(*(SeparableBlock(c_in, *block) for c_in, block in blocks))
        self.classifier = nn.Linear(CHANNELS, CLASSES)

    def forward(self, waveform: Float[Tensor, "b samples"]) -> Float[Tensor, "b patches 1024"]:
        """Embeds each 0.96 s of mono 16 kHz sound, whatever its loudness: it is stretched first."""
        patches = log_mel_patches(stretch_waveform(waveform), YAMNET_OFFSET)
        return self.embed(patches.flatten(0, 1)).reshape(*patches.shape[:2], CHANNELS)

    def embed(self, patches: Float[Tensor, "n 96 64"]) -> Float[Tensor, "n 1024"]:
        """The average of the last layer over time and frequency."""
        features: Tensor = self.blocks(F.relu6(self.stem(patches.unsqueeze(1))))
        return features.mean(dim=(2, 3))

    def classify(self, embedding: Float[Tensor, "*patch 1024"]) -> Float[Tensor, "*patch 521"]:
        """Independent scores in 0..1 of the AudioSet classes, in the order of `class_names`."""
        return torch.sigmoid(self.classifier(embedding))


def from_tflite(data: bytes) -> dict[str, Tensor]:
    """Converts lite-model_yamnet_classification_tflite_1.tflite (int8) to float tensors."""
    # The first linear layer is the mel matrix, which logmel.py computes.
    _, *layers = read_layers(data)
    with torch.device("meta"):
        keys = list(YAMNet().state_dict())  # weight and bias of each layer, in the same order
    tensors = [t for layer in layers for t in (_torch_order(layer), torch.tensor(layer.bias))]
    return dict(zip(keys, tensors, strict=True))


def _torch_order(layer: Layer) -> Tensor:
    weight = torch.from_numpy(layer.weight)
    if layer.kind == "conv":  # out h w in -> out in h w
        return weight.permute(0, 3, 1, 2).contiguous()
    if layer.kind == "depthwise":  # 1 h w channels -> channels 1 h w
        return weight.permute(3, 0, 1, 2).contiguous()
    return weight


def class_names() -> list[str]:
    """The names of AudioSet's 521 classes in the order of the scores, as the published file has."""
    text = files("soundspot.encoders").joinpath("audioset_classes.txt").read_text(encoding="utf-8")
    return text.splitlines()


WEIGHTS = published("yamnet-audioset", from_tflite)
ENCODER = EncoderSpec("yamnet", "audio", YAMNet, CHANNELS, WEIGHTS)
