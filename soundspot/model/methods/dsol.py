"""Discriminative Sounding Objects Localization (Hu et al., NeurIPS 2020) on frozen features.

Stage one finds where a sound comes from and what kinds of objects sound. The localization map is l
= sigmoid(w cos(v(x), a)), and its maximum should be 1 for a pair and 0 for any other (L_loc, binary
cross-entropy). The visual feature averaged where l is above a threshold is an object; clustering
the objects of the training set gives K kinds, whose means are the dictionary D, and the kinds are
the pseudo-labels by which a classifier of sounds learns (cross-entropy, L_cls). In stage two,
dictionary and classifier stay as they are. The dictionary gives a map of every kind, m_k(x) = <D_k,
v(x)>; masked by l and averaged over x it says how much of each kind sounds, which should be what
the classifier hears:

    L = L_c + lambda L_loc,    L_c = KL(p_a || softmax over k of mean over x of l(x) m_k(x)),

with the negatives of L_loc taken in each quarter of the frame. The map is the mean under p_a of the
maps of every kind, softmax over k of 3 l(x) m_k(x).

Axes, besides those of method.py: k kinds, n locations, d dimensions of the comparison.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from soundspot.common.config import BelowOne, Count, Range, Size, Weight
from soundspot.model.memory import OnlineKMeans
from soundspot.model.methods import method


@dataclass(frozen=True)
class DSOLConfig(method.MethodConfig):
    """The switches of DSOL; the defaults are those of the released code where it has them.

    Attributes:
        dim: Dimensions in which a location and a sound are compared.
        kinds: K, the size of the dictionary.
        stage_one: Training steps before kinds are matched.
        mask: An object is where l is above this, and at its peak.
        weight: lambda, the weight of L_loc in stage two.
        map: "objects" joins the maps of the kinds that are heard; "cosine" is the cosine that l is
            made of.
    """

    dim: Size = 128
    kinds: Annotated[int, Range(2, 2**20)] = 11
    stage_one: Count = 150
    mask: BelowOne = 0.05
    weight: Weight = 0.5
    map: Literal["objects", "cosine"] = "objects"


class DSOL(method.Method):
    """Localization, the dictionary of objects, and the classifier of sounds."""

    config_class = DSOLConfig
    config: DSOLConfig
    training_only = ("step",)
    step: Tensor

    def __init__(self, config: DSOLConfig) -> None:
        super().__init__(config)
        c_a, c_v, dim = config.c_a, config.c_v, config.dim
        self.visual = nn.Sequential(nn.Conv2d(c_v, dim, 1), nn.ReLU(), nn.Conv2d(dim, dim, 1))
        self.audio = nn.Sequential(nn.Linear(c_a, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.class_a = nn.Linear(c_a, config.kinds)
        self.sharpness = nn.Parameter(torch.tensor(5.0))  # w, which starts at the released 5
        self.object_scale = nn.Parameter(torch.tensor(10.0))  # the released layer of one weight
        self.dictionary = OnlineKMeans(config.kinds, c_v)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def forward(self, batch: method.Batch) -> method.MethodOutput:
        """The mean of both views' losses."""
        others = method.other_pairs(batch)
        matching = int(self.step) >= self.config.stage_one
        sound = batch.f_a.mean(dim=1)
        heard, kinds = self._hear(sound), self.class_a(sound)
        outputs = [self._view(f_v, heard, kinds, others, matching) for f_v in batch.views]
        if self.training:
            self.step += 1
        return method.mean_of(outputs)

    @property
    def resting(self) -> list[nn.Parameter]:
        """The scale of objects in stage one, the classifier of sounds in stage two."""
        if int(self.step) > self.config.stage_one:  # the step was counted already
            return list(self.class_a.parameters())
        return [self.object_scale]

    def maps(self, f_v: method.Frame, f_a: method.Sound, cycles: int | None = None) -> method.Map:
        """The maps of all kinds of objects, weighed by how much each is heard."""
        sound = f_a.mean(dim=1)
        cosine = torch.einsum("bd,bdhw->bhw", self._hear(sound), self._see(f_v))
        if self.config.map == "cosine":
            return cosine
        located = (self.sharpness * cosine).sigmoid()
        shares = (3 * located[:, None] * self._object_maps(f_v)).softmax(dim=1)
        return torch.einsum("bk,bkhw->bhw", self.class_a(sound).softmax(dim=1), shares)

    def _see(self, f_v: method.Frame) -> Float[Tensor, "b d h w"]:
        return F.normalize(self.visual(f_v), dim=1)

    def _hear(self, sound: Float[Tensor, "b a"]) -> Float[Tensor, "b d"]:
        return F.normalize(self.audio(sound), dim=1)

    def _object_maps(self, f_v: method.Frame) -> Float[Tensor, "b k h w"]:
        """m_k, scaled."""
        kinds = F.normalize(self.dictionary.centers, dim=1)
        return self.object_scale * torch.einsum("kc,bchw->bkhw", kinds, objects(f_v))

    def _view(
        self,
        f_v: method.Frame,
        heard: Float[Tensor, "b d"],
        kinds: Float[Tensor, "b k"],
        others: Bool[Tensor, "b b"],
        matching: bool,
    ) -> method.MethodOutput:
        """L_loc, L_cls and L_c of one view; stage one also feeds the dictionary."""
        every = self.sharpness * torch.einsum("bdhw,jd->bjhw", self._see(f_v), heard)
        localize = localization_loss(every, others, quarters=matching)
        located = every[~others].sigmoid()
        peak = located == located.amax(dim=(1, 2), keepdim=True)
        found = masked_mean(objects(f_v), peak | (located > self.config.mask))
        if self.training and not matching:
            self.dictionary.update(found)
        classify = F.cross_entropy(kinds, self.dictionary.assign(found))
        sounding = (located[:, None] * self._object_maps(f_v)).mean(dim=(2, 3))
        match = matching_loss(sounding, kinds.detach())
        # Every term always enters, if with weight 0: DDP waits for a gradient of each parameter.
        weights = (self.config.weight, 0.0, 1.0) if matching else (1.0, 1.0, 0.0)
        loss = weights[0] * localize + weights[1] * classify + weights[2] * match
        return method.MethodOutput(
            loss, {"localize": localize, "classify": classify, "match": match}
        )


def objects(f_v: method.Frame) -> Float[Tensor, "b c h w"]:
    """The unit vectors of the rectified feature, which VGG16 gives before its last ReLU."""
    return F.normalize(F.relu(f_v), dim=1)


def masked_mean(v: Float[Tensor, "b c h w"], mask: Bool[Tensor, "b h w"]) -> Float[Tensor, "b c"]:
    """The mean of v where the mask is, or beside an inner location where it is, as released."""
    near = mask[:, None].to(v.dtype)
    inner = F.pad(near[..., 1:-1, 1:-1], (1, 1, 1, 1))
    for kernel, padding in (((3, 1), (1, 0)), ((1, 3), (0, 1))):
        near = torch.maximum(near, F.max_pool2d(inner, kernel, stride=1, padding=padding))
    return (v * near).sum(dim=(2, 3)) / near.sum(dim=(2, 3))


def localization_loss(
    logits: Float[Tensor, "b b h w"], others: Bool[Tensor, "b b"], quarters: bool
) -> Float[Tensor, ""]:
    """The maximum of the pairs' maps should be 1, that of all others' (or of each quarter) 0."""
    best = logits[~others].amax(dim=(1, 2))
    wrong = F.adaptive_max_pool2d(logits, 2 if quarters else 1)[others]
    return (F.softplus(-best).mean() + F.softplus(wrong).mean()) / 2


def matching_loss(seen: Float[Tensor, "b k"], heard: Float[Tensor, "b k"]) -> Float[Tensor, ""]:
    """KL divergence of what is seen from what is heard, both as scores of the kinds."""
    return F.kl_div(
        seen.log_softmax(dim=1), heard.log_softmax(dim=1), reduction="batchmean", log_target=True
    )
