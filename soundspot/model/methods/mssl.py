"""Multiple sound sources from coarse to fine (Qian et al., ECCV 2020) on frozen features.

Stage one learns classes and correspondence, L1 = L_a + L_v + L_avc: sound and frame are classified
by pseudo-labels (binary cross-entropy of the spatial mean's class scores), and two layers tell
whether a frame and a sound belong together (cross-entropy, half of it over pairs, half over all
others). Stage two aligns class by class, L2 = L1 + L_d. The class activation maps of both
modalities, ReLU(W_c f), weigh their features, which gives one vector per class; projected and
normalized, those of one pair and one class should be near and all others far,

    L_d = mean |a_c - v_c|^2 + mean max(0, margin - |a_c - v_c'|)^2,

over the classes whose probability is above a threshold in both. The map is the cosine of the
sound's class vectors with every location, averaged over the classes that are heard with their
probabilities as weights.

Axes, besides those of method.py: e classes, n locations or patches, f feature channels.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from soundspot.common.config import BelowOne, Count, Positive, Range, Size
from soundspot.model.memory import OnlineKMeans
from soundspot.model.methods import method

EPSILON = 1e-10


@dataclass(frozen=True)
class MSSLConfig(method.MethodConfig):
    """The switches of MSSL; the defaults are those of the released code where it has them.

    Attributes:
        classes: How many pseudo-labels there are.
        width: Channels of the trained features of both modalities.
        hidden: Hidden dimensions of the projections.
        projection: Dimensions in which classes are aligned.
        stage_one: Training steps before classes are aligned.
        threshold: Probability above which a class is there.
        margin: Distance that vectors of different pairs or classes should keep.
        map: "aligned" is the cosine of the sound's class vectors with every location; "activation"
            the frame's class activation at every location, which stage one alone decides.
    """

    classes: Annotated[int, Range(2, 2**20)] = 7
    width: Size = 512
    hidden: Size = 1024
    projection: Size = 128
    stage_one: Count = 100
    threshold: BelowOne = 0.3
    margin: Positive = 1.4
    map: Literal["aligned", "activation"] = "aligned"


class MSSL(method.Method):
    """Features, class scores and projections of both modalities, and the classes of sounds."""

    config_class = MSSLConfig
    config: MSSLConfig
    training_only: tuple[str, ...] = ("class_v.", "avc.", "labels.", "step")
    step: Tensor

    def __init__(self, config: MSSLConfig) -> None:
        super().__init__(config)
        if config.map == "activation":  # the class holds what the default map does not use
            self.training_only = ("project_v.", "project_a.", "avc.", "labels.", "step")
        c_a, width, classes = config.c_a, config.width, config.classes
        self.visual = nn.Sequential(nn.Conv1d(config.c_v, width, 1), nn.ReLU())
        self.audio = nn.Sequential(
            nn.Conv1d(c_a, width, 1), nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU()
        )
        self.class_v = nn.Conv1d(width, classes, 1, bias=False)
        self.class_a = nn.Conv1d(width, classes, 1, bias=False)
        self.avc = nn.Sequential(nn.Linear(2 * width, 128), nn.ReLU(), nn.Linear(128, 2))
        self.project_v = _projection(width, config.hidden, config.projection)
        self.project_a = _projection(width, config.hidden, config.projection)
        self.labels = OnlineKMeans(classes, c_a)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def forward(self, batch: method.Batch) -> method.MethodOutput:
        """The mean of both views' losses."""
        others = method.other_pairs(batch)
        aligning = float(int(self.step) >= self.config.stage_one)
        sound = batch.f_a.mean(dim=1)
        if self.training:
            self.labels.update(sound)
            self.step += 1
        label = F.one_hot(self.labels.assign(sound), self.config.classes).to(sound.dtype)
        heard = self._hear(batch.f_a)
        return method.mean_of(
            self._view(self._see(f_v), heard, label, others, aligning) for f_v in batch.views
        )

    def maps(self, f_v: method.Frame, f_a: method.Sound, cycles: int | None = None) -> method.Map:
        """What each class makes of every location, averaged over the classes that are heard."""
        heard, seen = self._hear(f_a), self._see(f_v)
        if self.config.map == "aligned":
            places = F.normalize(self.project_v(seen), dim=1)
            by_class = torch.einsum("bde,bdn->ben", self._class_vectors_a(heard), places)
        else:
            by_class = self.class_v(seen)
        probability: Tensor = self.class_a(heard).mean(dim=2).sigmoid()
        weight = probability * heard_classes(probability, self.config.threshold)
        found = torch.einsum("be,ben->bn", weight, by_class) / weight.sum(dim=1, keepdim=True)
        return found.reshape(len(f_v), *f_v.shape[2:])

    def _see(self, f_v: method.Frame) -> Float[Tensor, "b f n"]:
        seen: Tensor = self.visual(even(f_v.flatten(start_dim=2)))
        return seen

    def _hear(self, f_a: method.Sound) -> Float[Tensor, "b f p"]:
        heard: Tensor = self.audio(even(f_a.transpose(1, 2)))
        return heard

    def _view(
        self,
        seen: Float[Tensor, "b f n"],
        heard: Float[Tensor, "b f p"],
        label: Float[Tensor, "b e"],
        others: Bool[Tensor, "b b"],
        aligning: float,
    ) -> method.MethodOutput:
        """L_a + L_v, L_avc and L_d of one view."""
        scores_v, scores_a = self.class_v(seen), self.class_a(heard)
        of_frame, of_sound = scores_v.mean(dim=2), scores_a.mean(dim=2)
        classify = F.binary_cross_entropy_with_logits(of_frame, label)
        classify = classify + F.binary_cross_entropy_with_logits(of_sound, label)
        frames, sounds = seen.mean(dim=2)[:, None], heard.mean(dim=2)[None]
        both = torch.cat(
            [frames.expand(-1, len(seen), -1), sounds.expand(len(seen), -1, -1)], dim=2
        )
        correspond = correspondence_loss(self.avc(both), others)
        vectors_v = F.normalize(self.project_v(class_means(seen, scores_v)), dim=1)
        vectors_a = self._class_vectors_a(heard)
        there = torch.stack([of_frame, of_sound]).sigmoid() > self.config.threshold
        align = alignment_loss(vectors_v, vectors_a, there[0], there[1], self.config.margin)
        # L_d always enters, if with weight 0: DDP waits for a gradient of every parameter.
        loss = classify + correspond + aligning * align
        report = {"classify": classify, "correspond": correspond, "align": align}
        return method.MethodOutput(loss, report)

    def _class_vectors_a(self, heard: Float[Tensor, "b f p"]) -> Float[Tensor, "b d e"]:
        return F.normalize(self.project_a(class_means(heard, self.class_a(heard))), dim=1)


def _projection(width: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(width, hidden, 1, bias=False), nn.ReLU(), nn.Conv1d(hidden, out, 1, bias=False)
    )


def even(x: Float[Tensor, "b c n"]) -> Float[Tensor, "b c n"]:
    """Features whose channels have a mean square of 1, whatever the encoder."""
    return math.sqrt(x.shape[1]) * F.normalize(x, dim=1)


def class_means(
    features: Float[Tensor, "b f n"], scores: Float[Tensor, "b e n"]
) -> Float[Tensor, "b f e"]:
    """The mean feature under every class activation map, ReLU(scores), which has no gradient."""
    cam = F.relu(scores.detach()) + EPSILON  # where nothing is active, all locations count alike
    return torch.einsum("bfn,ben->bfe", features, cam / cam.sum(dim=2, keepdim=True))


def correspondence_loss(
    scores: Float[Tensor, "b b 2"], others: Bool[Tensor, "b b"]
) -> Float[Tensor, ""]:
    """Whether frame (row) and sound (column) belong together: pairs and others count alike."""
    each = F.cross_entropy(scores.flatten(end_dim=1), (~others).long().flatten(), reduction="none")
    each = each.view_as(others)
    return (each[~others].mean() + each[others].mean()) / 2


def alignment_loss(
    vectors_v: Float[Tensor, "b d e"],
    vectors_a: Float[Tensor, "b d e"],
    there_v: Bool[Tensor, "b e"],
    there_a: Bool[Tensor, "b e"],
    margin: float,
) -> Float[Tensor, ""]:
    """L_d over all classes of all pairs that are there; 0 where none is."""
    v, a = (vectors.transpose(1, 2).flatten(end_dim=1) for vectors in (vectors_v, vectors_a))
    squares = (2 - 2 * v @ a.T).clamp_min(EPSILON)
    counts = there_v.flatten()[:, None] & there_a.flatten()[None, :]
    own = torch.eye(len(v), dtype=torch.bool, device=v.device)
    near = squares * (counts & own)
    far = F.relu(margin - squares.sqrt()).square() * (counts & ~own)
    pairs, strangers = (counts & own).sum(), (counts & ~own).sum()
    return near.sum() / pairs.clamp_min(1) + far.sum() / strangers.clamp_min(1)


def heard_classes(probability: Float[Tensor, "b e"], threshold: float) -> Bool[Tensor, "b e"]:
    """The classes above the threshold, and always the likeliest one."""
    likeliest = probability == probability.amax(dim=1, keepdim=True)
    return (probability > threshold) | likeliest
