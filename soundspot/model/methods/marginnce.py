"""MarginNCE (Park et al., ICASSP 2023): EZ-VSL with a negative margin, on the frozen features.

Some pairs do not belong together and some negatives do, so the border between them should be less
strict. The cosine of a pair competes after a margin m < 0 has been taken from it:

    L = -1/B sum_i [log exp((s_ii - m)/t) / (exp((s_ii - m)/t) + sum_{j != i} exp(s_ij/t))
                    + the same of s_ji]

which stops pulling a pair together once it is within |m| of its negatives. s is EZ-VSL's.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from soundspot.common.config import Positive, Range
from soundspot.model.losses import Pairs
from soundspot.model.methods.ezvsl import EZVSL, EZVSLConfig


@dataclass(frozen=True)
class MarginNCEConfig(EZVSLConfig):
    """The switches of MarginNCE.

    Attributes:
        margin: What is taken from the cosine of a pair (m); 0 is EZ-VSL.
    """

    temperature: Positive = 0.07
    margin: Annotated[float, Range(-2, 2)] = -0.2


class MarginNCE(EZVSL):
    """EZ-VSL, less strict about which cosine is the larger."""

    config_class = MarginNCEConfig
    config: MarginNCEConfig

    def contrast(self, s: Pairs) -> Float[Tensor, ""]:
        """EZ-VSL's loss, where pairs compete without the margin."""
        return super().contrast(s - self.config.margin * torch.eye(len(s), device=s.device))
