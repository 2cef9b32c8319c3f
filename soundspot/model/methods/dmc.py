"""Deep Multimodal Clustering (Hu, Nie and Li, CVPR 2019) on the frozen features SSPL sees.

Local features u_i of both modalities, of unit length, are projected into K shared spaces by W_k and
softly clustered, one center per space, by a few rounds of

    c_k = sum_i s_ik W_k u_i,    s_ik = softmax over k of <c_k / |c_k|, W_k u_i>.

The similarity of a frame and a sound is s(v, a) = sum_k cos(c_k^v, c_k^a), and the loss is the
max-margin loss max(0, s(v, a-) - s(v, a+) + margin), a- the sound of another pair. The map shows
which locations belong to the center that sound and frame agree on best.

Axes, besides those of method.py: k centers, n local features, d dimensions of a space.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from soundspot.common.config import Range, Size, Weight
from soundspot.model.attention import NORM_EPSILON
from soundspot.model.methods import method
from soundspot.model.whole_batch import whole


@dataclass(frozen=True)
class DMCConfig(method.MethodConfig):
    """The switches of DMC; the defaults are those of the released code.

    Attributes:
        centers: K, the number of spaces and of centers.
        dim: Dimensions of a space.
        rounds: How often the centers are computed.
        margin: By how much its own sound should be more similar; 0 is K.
        map: "assignment" shows how much each location belongs to the best center; "cosine" its
            cosine with the sound's center in that space.
    """

    centers: Annotated[int, Range(2, 2**20)] = 10
    dim: Size = 16
    rounds: Size = 3
    margin: Weight = 0.0
    map: Literal["assignment", "cosine"] = "assignment"


class Clustered(NamedTuple):
    """The projected features, their centers, and how much each belongs to each center."""

    projected: Float[Tensor, "b k d n"]
    centers: Float[Tensor, "b k d"]
    assignment: Float[Tensor, "b k n"]


class DMC(method.Method):
    """Shared spaces for both modalities; the sound first takes as many channels as the frame."""

    config_class = DMCConfig
    config: DMCConfig
    takes_shares = True
    full_precision = True

    def __init__(self, config: DMCConfig) -> None:
        super().__init__(config)
        c_a, c_v = config.c_a, config.c_v
        self.audio = nn.Sequential(nn.Linear(c_a, c_v), nn.ReLU(), nn.Linear(c_v, c_v))
        self.spaces = nn.Conv1d(c_v, config.centers * config.dim, 1, bias=False)

    def forward(self, batch: method.Batch) -> method.MethodOutput:
        """The mean of both views' losses; neither view knows of the other."""
        others = method.other_pairs(batch)
        heard = whole(self._hear(batch.f_a).centers)
        margin = self.config.margin or float(self.config.centers)
        both = [whole(every_agreement(self._see(f_v).centers, heard)) for f_v in batch.views]
        return method.mean_of(
            method.MethodOutput(max_margin(each, others, margin), {}) for each in both
        )

    def maps(self, f_v: method.Frame, f_a: method.Sound, cycles: int | None = None) -> method.Map:
        """The best center's assignment, or the sound's cosine with every location in its space."""
        seen, heard = self._see(f_v), self._hear(f_a).centers
        best = F.cosine_similarity(seen.centers, heard, dim=2).argmax(dim=1)
        rows = torch.arange(len(best), device=best.device)
        if self.config.map == "assignment":
            found = seen.assignment[rows, best]
        else:
            sound = heard[rows, best][..., None]
            found = F.cosine_similarity(seen.projected[rows, best], sound, dim=1)
        return found.reshape(len(f_v), *f_v.shape[2:])

    def _see(self, f_v: method.Frame) -> Clustered:
        return self._cluster(f_v.flatten(start_dim=2))

    def _hear(self, f_a: method.Sound) -> Clustered:
        return self._cluster(self.audio(f_a).transpose(1, 2))

    def _cluster(self, u: Float[Tensor, "b c n"]) -> Clustered:
        # W_k is linear, so its output may be divided by the length of u instead of u itself.
        length = torch.linalg.vector_norm(u, dim=1, keepdim=True).clamp_min(NORM_EPSILON)
        projected = self.spaces(u) / length
        return cluster(projected.unflatten(1, (self.config.centers, -1)), self.config.rounds)


def cluster(projected: Float[Tensor, "b k d n"], rounds: int) -> Clustered:
    """Soft clustering with one center a space; it starts with equal shares."""
    assignment = torch.full_like(projected[:, :, 0], 1 / projected.shape[1])
    centers = (projected @ assignment[..., None])[..., 0]
    for _ in range(rounds - 1):
        agreement = (F.normalize(centers, dim=2)[:, :, None] @ projected)[:, :, 0]
        assignment = agreement.softmax(dim=1)
        centers = (projected @ assignment[..., None])[..., 0]
    return Clustered(projected, centers, assignment)


def every_agreement(
    seen: Float[Tensor, "b k d"], heard: Float[Tensor, "s k d"]
) -> Float[Tensor, "b s"]:
    """s(v, a) of every frame (rows) with every sound (columns), from -K to K."""
    unit_seen, unit_heard = F.normalize(seen, dim=2), F.normalize(heard, dim=2)
    return unit_seen.flatten(start_dim=1) @ unit_heard.flatten(start_dim=1).T


def max_margin(
    agreement: Float[Tensor, "b b"], others: Bool[Tensor, "b b"], margin: float
) -> Float[Tensor, ""]:
    """max(0, s(v, a-) - s(v, a+) + margin), the mean over all frames and other sounds."""
    own = agreement.diagonal()[:, None]
    return F.relu(agreement - own + margin)[others].mean()
