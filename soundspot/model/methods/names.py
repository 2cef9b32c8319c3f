"""The named map: what the sound may be, found by a classifier's evidence. Nothing is trained.

The audio encoder's classifier names the sound, the visual encoder's classifier the things at every
location, and a table (see `model.label_map`) joins the two. The map is a root of the probability of
what sounds: unlike the evidence for it, that is near zero wherever something else is more probable.

Axes, besides those of method.py: s sounds, k visual classes, t things, n m locations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from soundspot.common.config import Positive, Size
from soundspot.model.attention import attention_weights
from soundspot.model.label_map import Thing
from soundspot.model.methods.method import Frame, Map, Method, MethodConfig, Sound

FAINTEST = 1e-6  # a lower score of a sound counts as this


@dataclass(frozen=True)
class NamesConfig(MethodConfig):
    """The sizes of the two classifiers, and how their evidence is weighed.

    Attributes:
        sounds: Classes of the audio classifier.
        classes: Classes of the visual classifier.
        things: Lines of the label map.
        self_attention: Temperature of the self-attention without parameters that maps are made
            with.
        temperature: Divides the logits that maps are made of: the visual classifier was trained on
            means of whole pictures and is too sure of single locations.
        root: The map is this root of the probability, so that its contour at one half surrounds
            more than the surest part of a thing.
        size_prior: How far a thing of many classes is discounted: 0 adds up the probabilities of
            its classes, 1 takes their mean.
    """

    c_v: Size = 1280
    c_a: Size = 1024
    sounds: Size = 521
    classes: Size = 1000
    things: Size = 1
    self_attention: Positive = 0.3
    temperature: Positive = 2.0
    root: Positive = 3.0
    size_prior: float = 0.5


class Names(Method):
    """Both classifiers and the label map as buffers: a checkpoint holds all that it needs."""

    config_class = NamesConfig
    config: NamesConfig
    trainable = False
    sound_weight: Tensor
    sound_bias: Tensor
    class_weight: Tensor
    class_bias: Tensor
    heard_as: Tensor
    seen_as: Tensor

    def __init__(self, config: NamesConfig) -> None:
        super().__init__(config)
        self.register_buffer("sound_weight", torch.zeros(config.sounds, config.c_a))
        self.register_buffer("sound_bias", torch.zeros(config.sounds))
        self.register_buffer("class_weight", torch.zeros(config.classes, config.c_v))
        self.register_buffer("class_bias", torch.zeros(config.classes))
        self.register_buffer("heard_as", torch.ones(config.things, config.sounds))  # 0 or 1
        self.register_buffer("seen_as", torch.ones(config.things, config.classes))

    def maps(self, f_v: Frame, f_a: Sound, cycles: int | None = None) -> Map:
        """A root of the probability of what sounds, at every location."""
        f_v = f_v[:, : self.config.c_v]  # an encoder may add finer channels behind
        alike = attention_weights(f_v, self.config.self_attention)
        attended = torch.einsum("bnm,bcm->bcn", alike, f_v.flatten(start_dim=2))
        probable = self._probable(attended, self.config.temperature)
        mixed = torch.einsum("bnt,bt->bn", probable, self.choose(f_v, f_a))
        return mixed.pow(1 / self.config.root).view(len(f_v), *f_v.shape[2:])

    def choose(self, f_v: Frame, f_a: Sound) -> Float[Tensor, "b t"]:
        """How probably each thing sounds: by the sound's score and its best place in the frame."""
        return (self._heard(f_a).log() + self._seen(f_v)).softmax(dim=1)

    def _heard(self, f_a: Sound) -> Float[Tensor, "b t"]:
        """The best score of each thing's sounds, averaged over the patches."""
        logits = torch.einsum("bpa,sa->bps", f_a, self.sound_weight) + self.sound_bias
        scores = torch.sigmoid(logits).mean(dim=1)
        return (scores[:, None, :] * self.heard_as).amax(dim=2).clamp_min(FAINTEST)

    def _seen(self, f_v: Frame) -> Float[Tensor, "b t"]:
        """The log-probability of each thing at its best location."""
        probable = self._probable(f_v.flatten(start_dim=2))
        best = probable.amax(dim=1).clamp_min(torch.finfo(f_v.dtype).tiny)
        return best.log() - self.config.size_prior * self.seen_as.sum(dim=1).log()

    def _probable(
        self, features: Float[Tensor, "b c n"], temperature: float = 1.0
    ) -> Float[Tensor, "b n t"]:
        """The probability of each thing at every location."""
        logits = torch.einsum("bcn,kc->bnk", features, self.class_weight) + self.class_bias
        return torch.einsum("bnk,tk->bnt", (logits / temperature).softmax(dim=2), self.seen_as)


def build_names(
    visual: Mapping[str, Tensor], audio: Mapping[str, Tensor], things: Sequence[Thing]
) -> Names:
    """The method from the tensors of two encoders with a `classifier`, and a label map."""
    sounds, c_a = audio["classifier.weight"].shape
    classes, c_v = visual["classifier.weight"].shape
    model = Names(NamesConfig(c_v, c_a, sounds, classes, len(things)))
    heard_as, seen_as = torch.zeros(len(things), sounds), torch.zeros(len(things), classes)
    for row, thing in enumerate(things):
        heard_as[row, list(thing.sounds)] = 1
        seen_as[row, list(thing.classes)] = 1
    model.load_state_dict(
        {
            "sound_weight": audio["classifier.weight"],
            "sound_bias": audio["classifier.bias"],
            "class_weight": visual["classifier.weight"],
            "class_bias": visual["classifier.bias"],
            "heard_as": heard_as,
            "seen_as": seen_as,
        }
    )
    return model.eval()
