"""SSPL on joined visual encoders: each learns on its own, and they make one map together.

Not in the paper. Every visual encoder has an SSPL of its own (`sspl.py`), trained on its channels
alone and without negatives, so that neither can lean on the other. The map is the mean of their
cosines.

Axes: b batch, p audio patches, a audio channels (c_a), c visual channels (c_v), h w feature grid.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.model.attention import boxed, self_attended, similarity
from soundspot.model.methods.contrastive import attention_shares, side_by_side
from soundspot.model.methods.method import Batch, Method, MethodOutput
from soundspot.model.methods.sspl import SSPL, SSPLConfig


@dataclass(frozen=True)
class JoinedSSPLConfig(SSPLConfig):
    """The switches of SSPL, the same for every encoder, and how they are joined.

    Attributes:
        parts: Channels of each visual encoder; they follow from the encoders.
        first_attends: How much the first encoder counts where the self-attention of the maps
            compares locations, from 0 to 1; the others share the rest. None: all count the same.
    """

    parts: tuple[int, ...] = ()
    first_attends: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        super().__post_init__()
        if self.parts and (min(self.parts) < 1 or sum(self.parts) != self.c_v):
            raise ValueError(f"parts={list(self.parts)} must add up to c_v={self.c_v}")
        if self.first_attends is not None and not 0 <= self.first_attends <= 1:
            raise ValueError(f"first_attends={self.first_attends} must be from 0 to 1")

    @property
    def channels(self) -> tuple[int, ...]:
        """Those of every encoder, also if there is only one."""
        return self.parts or (self.c_v,)


class JoinedSSPL(Method):
    """One SSPL per visual encoder."""

    config_class = JoinedSSPLConfig

    def __init__(self, config: JoinedSSPLConfig) -> None:
        super().__init__()
        self.config = config
        plain = replace(config, parts=(), first_attends=None)
        # The self-attention of the maps compares locations by all encoders, so it is done here.
        self.towers = nn.ModuleList(
            SSPL(replace(plain, c_v=c_v, map_self_attention=0.0)) for c_v in config.channels
        )
        self.training_only = tuple(
            f"towers.{i}.{name}" for i in range(len(self.towers)) for name in SSPL.training_only
        )

    @property
    def heads(self) -> list[nn.Parameter]:
        """The projectors and predictors of every encoder."""
        return [parameter for tower in self._towers for parameter in tower.heads]

    @property
    def _towers(self) -> list[SSPL]:
        return [tower for tower in self.towers if isinstance(tower, SSPL)]

    def forward(self, batch: Batch) -> MethodOutput:
        """The mean of the losses; what they report, too, is averaged."""
        first, second = self._split(batch.f_v1), self._split(batch.f_v2)
        outputs: list[MethodOutput] = [
            tower(batch._replace(f_v1=one, f_v2=other))
            for tower, one, other in zip(self.towers, first, second, strict=True)
        ]
        loss = torch.stack([output.loss for output in outputs]).mean()
        report = {
            name: torch.stack([output.report[name] for output in outputs]).mean()
            for name in outputs[0].report
        }
        return MethodOutput(loss, report)

    def maps(
        self, f_v: Float[Tensor, "b c h w"], f_a: Float[Tensor, "b p a"], cycles: int | None = None
    ) -> Float[Tensor, "b h w"]:
        """The mean of the encoders' cosines with the sound, after self-attention if that is on."""
        heard = side_by_side([tower.hear(f_a) for tower in self._towers])
        parts = [
            tower.branch.visual(part, f_a, cycles)
            for tower, part in zip(self._towers, self._split(f_v), strict=True)
        ]
        seen = side_by_side(parts)
        if self.config.map_self_attention:
            shares = attention_shares(self.config.first_attends, len(parts))
            shown = side_by_side(parts, shares)
            seen = self_attended(seen, self.config.map_self_attention, shown)
        return boxed(similarity(heard, seen), self.config.map_boxes)

    def _split(self, f_v: Tensor) -> tuple[Tensor, ...]:
        return torch.split(f_v, list(self.config.channels), dim=1)
