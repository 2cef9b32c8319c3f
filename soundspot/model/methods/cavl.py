"""Curriculum Audiovisual Learning (Hu, Wang, Xiong, Wang, Nie and Dou, 2020) on frozen features.

DMC's clustering in one shared space, learned from simple scenes to complex ones. In a scene of K
sources, soft k-means finds K centers among the features of the sound and K + 1 (one for the
background) among those of the frame, by a few rounds of

    s_ij = softmax over j of -beta |u_i - c_j|,    c_j = sum_i s_ij u_i / sum_i s_ij.

Every center of the sound takes the nearest center of the frame, D^2 is the sum of their squared
distances, and the loss is contrastive: D^2 / 2 for a pair, max(0, margin - D)^2 / 2 for a frame
with the sound of another scene. The map shows what belongs to the center of the frame that is
nearest to the sound.

Axes, besides those of method.py: k centers of the sound, m centers of the frame, n local features.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from soundspot.common.config import Positive, Size
from soundspot.model.methods import method

EPSILON = 1e-10  # of squared distances, whose root has no gradient at 0


@dataclass(frozen=True)
class CAVLConfig(method.MethodConfig):
    """The switches of CAVL; the defaults are those of DSOL's code where it has them.

    Attributes:
        dim: Dimensions of the shared space.
        sources: How many a scene has at the end of the curriculum; a batch of b pairs allows b / 2.
        grow_every: Training steps after which scenes gain a source.
        beta: Sharpness of the clustering.
        rounds: How often the centers are computed.
        margin: Distance that a sound should keep from the frames of other scenes.
        map: "assignment" shows how much each location belongs to the center nearest to the sound;
            "distance" how near each location itself is to the sound.
    """

    dim: Size = 512
    sources: Size = 2
    grow_every: Size = 100
    beta: Positive = 30.0
    rounds: Size = 4
    margin: Positive = 5.0
    map: Literal["assignment", "distance"] = "assignment"


class Clustered(NamedTuple):
    """Centers, and how much every feature belongs to each."""

    centers: Float[Tensor, "b k d"]
    assignment: Float[Tensor, "b k n"]


class CAVL(method.Method):
    """One space for both modalities, and the step of the curriculum."""

    config_class = CAVLConfig
    config: CAVLConfig
    full_precision = True
    training_only = ("step",)
    step: Tensor

    def __init__(self, config: CAVLConfig) -> None:
        super().__init__(config)
        c_a, c_v, dim = config.c_a, config.c_v, config.dim
        self.visual = nn.Conv1d(c_v, dim, 1)
        self.audio = nn.Sequential(nn.Linear(c_a, c_v), nn.ReLU(), nn.Linear(c_v, dim))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def forward(self, batch: method.Batch) -> method.MethodOutput:
        """The mean of both views' losses on scenes of as many sources as the curriculum has."""
        method.other_pairs(batch)
        size = len(batch.cls)
        stage = 1 + int(self.step) // self.config.grow_every
        sources = min(stage, self.config.sources, size // 2)
        heard = self._cluster(join_scenes(self._hear(batch.f_a), sources), sources).centers
        strangers = strange_scenes(size, sources).to(heard.device)
        outputs = []
        for f_v in batch.views:
            seen = self._cluster(join_scenes(self._see(f_v), sources), sources + 1).centers
            loss = contrastive_loss(every_distance(heard, seen), strangers, self.config.margin)
            outputs.append(method.MethodOutput(loss, {"sources": torch.tensor(float(sources))}))
        if self.training:
            self.step += 1
        return method.mean_of(outputs)

    def maps(self, f_v: method.Frame, f_a: method.Sound, cycles: int | None = None) -> method.Map:
        """What belongs to the nearest center; the frame is clustered as at the curriculum's end."""
        u, sound = self._see(f_v), self._hear(f_a).mean(dim=1, keepdim=True)
        if self.config.map == "distance":
            found = -distances(sound, u)[:, 0]
        else:
            seen = self._cluster(u, self.config.sources + 1)
            nearest = distances(sound, seen.centers)[:, 0].argmin(dim=1)
            found = seen.assignment[torch.arange(len(nearest), device=u.device), nearest]
        return found.reshape(len(f_v), *f_v.shape[2:])

    def _see(self, f_v: method.Frame) -> Float[Tensor, "b n d"]:
        seen: Tensor = self.visual(F.normalize(f_v.flatten(start_dim=2), dim=1))
        return seen.transpose(1, 2)

    def _hear(self, f_a: method.Sound) -> Float[Tensor, "b p d"]:
        heard: Tensor = self.audio(F.normalize(f_a, dim=2))
        return heard

    def _cluster(self, u: Float[Tensor, "b n d"], centers: int) -> Clustered:
        return soft_k_means(u, centers, self.config.beta, self.config.rounds)


def join_scenes(u: Float[Tensor, "b n d"], sources: int) -> Float[Tensor, "b m d"]:
    """Scene i has the features of pairs i, i + 1, ..., i + sources - 1, in a circle."""
    return torch.cat([u.roll(-shift, dims=0) for shift in range(sources)], dim=1)


def strange_scenes(size: int, sources: int) -> Bool[Tensor, "b b"]:
    """Which scenes share no pair."""
    place = torch.arange(size)
    steps = (place[None, :] - place[:, None]) % size
    return (steps >= sources) & (steps <= size - sources)


def distances(x: Float[Tensor, "*b k d"], y: Float[Tensor, "*b m d"]) -> Float[Tensor, "*b k m"]:
    """Euclidean, with a gradient everywhere."""
    squares = x.square().sum(dim=-1)[..., :, None] + y.square().sum(dim=-1)[..., None, :]
    return (squares - 2 * x @ y.transpose(-2, -1)).clamp_min(EPSILON).sqrt()


def soft_k_means(u: Float[Tensor, "b n d"], centers: int, beta: float, rounds: int) -> Clustered:
    """Soft k-means from evenly spaced features."""
    start = torch.arange(centers, device=u.device) * (u.shape[1] // centers)
    c = u[:, start]
    for _ in range(rounds):
        assignment = (-beta * distances(c, u)).softmax(dim=1)
        c = assignment @ u / assignment.sum(dim=2, keepdim=True).clamp_min(EPSILON)
    return Clustered(c, assignment)


def every_distance(
    heard: Float[Tensor, "b k d"], seen: Float[Tensor, "b m d"]
) -> Float[Tensor, "b b"]:
    """D of every sound (rows) and every frame (columns)."""
    (size, k, _), m = heard.shape, seen.shape[1]
    each = distances(heard.flatten(end_dim=1), seen.flatten(end_dim=1)).view(size, k, size, m)
    return each.amin(dim=3).square().sum(dim=1).sqrt()


def contrastive_loss(
    distance: Float[Tensor, "b b"], strangers: Bool[Tensor, "b b"], margin: float
) -> Float[Tensor, ""]:
    """D^2 / 2 of a pair, max(0, margin - D)^2 / 2 of strangers; pairs and strangers count alike."""
    near = distance.diagonal().square().mean()
    far = F.relu(margin - distance)[strangers].square().mean()
    return (near + far) / 4
