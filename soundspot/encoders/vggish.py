"""VGGish as the audio encoder f_a: the 128-D embedding after the last FC + ReLU, before PCA.

Axes: b batch, samples at 16 kHz, patches per waveform, n patches of all waveforms,
c channels, h frames, w mel bands.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.encoders.formats import read_tensors
from soundspot.encoders.logmel import VGGISH_OFFSET, log_mel_patches, stretch_waveform
from soundspot.encoders.registry import EncoderSpec, published
from soundspot.encoders.vgg16 import conv_layers

CHANNELS = 128
# Output channels of the 3x3 convolutions; None is a 2x2 max pool: 96x64 -> 6x4.
LAYOUT = (64, None, 128, None, 256, 256, None, 512, 512, None)
FLAT = 6 * 4 * 512
HIDDEN = 4096


def flatten_hwc(features: Float[Tensor, "n c h w"]) -> Float[Tensor, "n hwc"]:
    """Flattens in TensorFlow's order (h, w, c), which the first FC layer's weights expect."""
    return features.permute(0, 2, 3, 1).flatten(1)


class VGGish(nn.Module):
    """Six convolutions and three fully connected layers, named as in the public PyTorch port."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(*conv_layers(1, LAYOUT))
        self.embeddings = nn.Sequential(
            nn.Linear(FLAT, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, CHANNELS),
            nn.ReLU(),
        )

    def forward(self, waveform: Float[Tensor, "b samples"]) -> Float[Tensor, "b patches 128"]:
        """Embeds each 0.96 s of mono 16 kHz sound, whatever its loudness: it is stretched first."""
        patches = log_mel_patches(stretch_waveform(waveform), VGGISH_OFFSET)
        return self.embed(patches.flatten(0, 1)).reshape(*patches.shape[:2], CHANNELS)

    def embed(self, patches: Float[Tensor, "n 96 64"]) -> Float[Tensor, "n 128"]:
        """The non-negative embedding of each log-mel patch."""
        embedding: Tensor = self.embeddings(flatten_hwc(self.features(patches.unsqueeze(1))))
        return embedding


def from_torch(data: bytes) -> dict[str, Tensor]:
    """Keeps the layers of the public vggish-10086976.pth; anything else in it is dropped."""
    with torch.device("meta"):
        keys = list(VGGish().state_dict())
    return read_tensors(data, keys)


WEIGHTS = published("vggish-audioset", from_torch)
ENCODER = EncoderSpec("vggish", "audio", VGGish, CHANNELS, WEIGHTS)
