"""EZ-VSL (Mo and Morgado, ECCV 2022) on the frozen features SSPL sees.

A frame matches a sound as well as its best location does, s_ij = max_xy cos(v_i^xy, a_j), and
every frame has to find its sound in the batch, every sound its frame:

    L = -1/B sum_i [log exp(s_ii/t)/sum_j exp(s_ij/t) + log exp(s_ii/t)/sum_j exp(s_ji/t)]

with t = 0.03. The map is the cosine. The second half of the paper, object-guided localization,
needs no training: it is the guidance of `evaluate`, which joins any method's map with an image-only
one.

It is the `contrastive` method without what that adds: softer maximum, self-attention of the maps.

Axes: b batch (of frames and of sounds), n locations of the grid.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from soundspot.common.config import Positive
from soundspot.model.attention import every_similarity
from soundspot.model.losses import Pairs, info_nce, matched
from soundspot.model.methods.cosine import CosineConfig, CosineMethod
from soundspot.model.methods.method import Batch, MethodOutput, mean_of, other_pairs
from soundspot.model.whole_batch import whole


@dataclass(frozen=True)
class EZVSLConfig(CosineConfig):
    """The switches of EZ-VSL; the defaults are those of its released code.

    Attributes:
        temperature: Of the cross-entropy (t).
    """

    visual_conv: bool = True
    temperature: Positive = 0.03


class EZVSL(CosineMethod):
    """Nothing is trained but the two projections."""

    config_class = EZVSLConfig
    config: EZVSLConfig
    takes_shares = True

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of both views' losses, each the sum of both directions."""
        other_pairs(batch)
        heard = whole(self.g(batch.f_a))
        maps = (every_similarity(heard, self.conv(f_v)) for f_v in batch.views)
        both = [whole(every.amax(dim=2)) for every in maps]
        return mean_of(MethodOutput(self.contrast(s), {"matched": matched(s)}) for s in both)

    def contrast(self, s: Pairs) -> Float[Tensor, ""]:
        """The loss of a view: s are the cosines of the best locations."""
        return 2 * info_nce(s / self.config.temperature)
