"""Scenes of a video that do not change are not encoded again.

Axes: b pictures, h w pixels of a view.
"""

from collections import deque

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

PATCHES = 16  # along a side, in which the change is averaged
# The largest change of a patch, in standard deviations of ImageNet's pixels: about 3 of 256 grey
# levels. Noise of compression is below it; a thing that moves is far above, even in one patch.
STILL = 0.05
REMEMBERED = 2  # pictures: one of the first look, one of the second


class StillScenes(nn.Module):
    """A visual encoder that gives its last features again while what it sees stays the same.

    A picture is compared with those that were encoded last, so slow changes add up. It serves one
    video at a time, picture by picture.
    """

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual
        self.reused = 0  # how often the features were given again
        self._last: deque[tuple[Tensor, Tensor]] = deque(maxlen=REMEMBERED)  # views, features

    def forward(self, *views: Float[Tensor, "b 3 _h _w"]) -> Tensor:
        """The features of the views, or of those before if they look the same."""
        for seen, known in self._last:
            if _alike(seen, views[0]):
                self.reused += 1
                return known
        features: Tensor = self.visual(*views)
        self._last.append((views[0], features))
        return features


def _alike(old: Float[Tensor, "_b 3 _h _w"], new: Float[Tensor, "_c 3 _i _j"]) -> bool:
    if old.shape != new.shape:
        return False
    change = F.adaptive_avg_pool2d((new - old).abs().mean(dim=1, keepdim=True), PATCHES)
    return float(change.max()) < STILL
