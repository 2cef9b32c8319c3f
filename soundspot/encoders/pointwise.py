"""What the encoders of depthwise and 1x1 convolutions share: fast forms for a CPU.

Axes: b batch, h w cells.
"""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot.encoders.winograd import is_worthwhile


class PointwiseConv2d(nn.Conv2d):
    """A 1x1 convolution, on a CPU as one matrix product of the cells, which is faster."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__(c_in, c_out, kernel_size=1)

    def forward(self, input: Float[Tensor, "b c_in h w"]) -> Float[Tensor, "b c_out h w"]:
        """The cells stay in channels_last."""
        if not is_worthwhile(input):
            return super().forward(input)
        cells = input.permute(0, 2, 3, 1).contiguous()
        return F.linear(cells, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


def relu6_(x: Tensor) -> Tensor:
    """In place: at these sizes a new tensor takes longer than the arithmetic."""
    return F.relu6(x, inplace=True)
