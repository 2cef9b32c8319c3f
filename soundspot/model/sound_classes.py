"""The sounds that learned models know, by class: which of them a mixture holds, and a typical one.

A mixture has no name of its own, and its map mixes those of its sounds. So it is split by what is
heard: a linear classifier of the audio features, trained on mixtures of two sounds, says which
classes sound, and the mean feature of a class makes the map of that class alone.
benchmarks/fit_sound_classes.py makes the file.

Axes: b sounds, p patches, a audio channels, k classes.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor

SOUND_CLASSES = Path(__file__).with_name("sound_classes.safetensors")
FAINT = -4.0  # logit of what is not heard, whatever the picture shows
MOST = 0.6  # of the threshold: the picture cannot speak for a class, or against it, by more
SHARP = 3.0  # of the soft maximum over patches: a short sound is in one of them


class SoundClasses(NamedTuple):
    """The classes, in alphabetical order.

    Attributes:
        names: Of the classes.
        typical: The mean audio feature of their training sounds.
        weight: Of the classifier of mixtures.
        bias: Of the same.
        usual: The mean over pictures of the peak of each class's map, in units of the threshold.
        picture: How much the picture counts beside the sound.
        least: The score that a second sound needs.
    """

    names: tuple[str, ...]
    typical: Float[Tensor, "k a"]
    weight: Float[Tensor, "k a"]
    bias: Float[Tensor, "k"]
    usual: Float[Tensor, "k"]
    picture: float
    least: float


@cache
def read_sound_classes() -> SoundClasses:
    """The classes that ship."""
    with safe_open(SOUND_CLASSES, "pt") as file:
        about = file.metadata()
        typical, weight, bias, usual = (
            file.get_tensor(key).float() for key in ("typical", "weight", "bias", "usual")
        )
        numbers = float(about["picture"]), float(about["least"])
        names = tuple(about["names"].split(","))
        return SoundClasses(names, typical, weight, bias, usual, *numbers)


def logits(
    f_a: Float[Tensor, "b p a"], weight: Float[Tensor, "k a"], bias: Float[Tensor, "k"]
) -> Float[Tensor, "b k"]:
    """How much speaks for each class, by a soft maximum over the patches."""
    return ((f_a @ weight.T + bias) * SHARP).logsumexp(dim=1) / SHARP


def weigh(
    heard: Float[Tensor, "b k"],
    peaks: Float[Tensor, "b k"],
    usual: Float[Tensor, "k"],
    picture: float,
) -> Float[Tensor, "b k"]:
    """What sound and picture say together; peaks of the maps are in units of the threshold."""
    shown = (peaks - usual).clamp(-MOST, MOST)
    return torch.where(heard < FAINT, -torch.inf, heard + picture * shown)
