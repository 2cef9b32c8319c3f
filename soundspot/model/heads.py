"""The small trained networks around the attention module (paper Secs. 3.2 and 4.2).

Axes: b batch, p audio patches, a audio channels (c_a), c visual channels (c_v), d dimensions.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class AudioTransform(nn.Module):
    """g of the paper: FC-ReLU-FC on every patch's embedding, then the mean over the patches.

    Args:
        c_a: Channels of the audio feature.
        c_v: Channels of the visual feature.
        of_mean: Transform the mean embedding instead, as the paper's text has it.
    """

    def __init__(self, c_a: int, c_v: int = 512, of_mean: bool = False) -> None:
        super().__init__()
        self.of_mean = of_mean
        self.layers = nn.Sequential(nn.Linear(c_a, c_v), nn.ReLU(), nn.Linear(c_v, c_v))

    def forward(self, f_a: Float[Tensor, "b p a"]) -> Float[Tensor, "b c"]:
        """Bring a sound into the space of the visual feature."""
        if self.of_mean:
            f_a = f_a.mean(dim=1, keepdim=True)
        transformed: Tensor = self.layers(f_a)
        return transformed.mean(dim=1)


def pooled_audio(f_a: Float[Tensor, "b p a"], unit: bool = True) -> Float[Tensor, "b a"]:
    """What PCM hears: the mean over the patches, put on the unit sphere by the released code."""
    mean = f_a.mean(dim=1)
    return F.normalize(mean, dim=1) if unit else mean


class Projector(nn.Sequential):
    """MLP of the paper, SimSiam's projector: batch norm everywhere, none of it affine at the end.

    The linear layers have no bias: the batch norm behind each would cancel it.
    """

    def __init__(self, c_in: int = 512, hidden: int = 2048, out: int = 2048) -> None:
        super().__init__(
            nn.Linear(c_in, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, out, bias=False),
            nn.BatchNorm1d(out, affine=False),
        )


class Predictor(nn.Sequential):
    """Pred of the paper, SimSiam's bottleneck predictor."""

    def __init__(self, dim: int = 2048, hidden: int = 512) -> None:
        super().__init__(
            nn.Linear(dim, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, dim),
        )
