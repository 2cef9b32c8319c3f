"""An audio encoder: how loud each band of each second is."""

from torch import Tensor, nn

from soundspot.encoders.logmel import BANDS, YAMNET_OFFSET, log_mel_patches
from soundspot.encoders.registry import EncoderSpec


class Bands(nn.Module):
    """The network, which has no weights."""

    def forward(self, waveform: Tensor) -> Tensor:
        """From sounds at 16 kHz (b samples) to one embedding per second (b patches channels)."""
        return log_mel_patches(waveform, YAMNET_OFFSET).mean(dim=2)


ENCODER = EncoderSpec("bands", "audio", Bands, BANDS, load=Bands, patches=3)
