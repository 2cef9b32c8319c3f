"""A visual encoder: the lowest frequencies of every 16 x 16 patch. It needs no download."""

import math

import torch
from torch import nn

from soundspot.encoders.registry import EncoderSpec

SIDE, FREQUENCIES = 16, 4
CHANNELS = 3 * FREQUENCIES**2


def build() -> nn.Module:
    """The network; `load` gives it its weights."""
    return nn.Conv2d(3, CHANNELS, SIDE, stride=SIDE, bias=False)


def load() -> nn.Module:
    """The network with its own weights, from wherever you have them: a file, another library."""
    place = (torch.arange(SIDE) + 0.5) * math.pi / SIDE
    waves = torch.cos(torch.arange(FREQUENCIES)[:, None] * place) / SIDE
    waves = torch.einsum("ih,jw->ijhw", waves, waves).flatten(end_dim=1)
    network = build()
    for color in range(3):  # other colors have no weight
        part = torch.zeros(len(waves), 3, SIDE, SIDE)
        part[:, color] = waves
        network.weight.data[color::3] = part
    return network


# It gets ImageNet-normalized RGB (b 3 224 224), and gives a grid (b channels 14 14).
ENCODER = EncoderSpec("cosines", "visual", build, CHANNELS, stride=SIDE, view=224, load=load)
