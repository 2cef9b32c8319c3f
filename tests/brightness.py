"""A localizer without weights whose map is the brightness of the frame."""

import torch
from torch import nn
from torch.nn import functional as F

from soundspot.common.config import to_dict
from soundspot.features.spec import Encoders, FeatureSpec
from soundspot.inference.localizer import Localizer, Part
from soundspot.model.checkpoint import Card
from soundspot.model.methods.method import Method
from soundspot.model.methods.sspl import SSPLConfig


class Bright(nn.Module):
    """A visual encoder that sees how bright things are."""

    def forward(self, views):
        return F.adaptive_avg_pool2d(views.mean(dim=1, keepdim=True), 14)


class Loud(nn.Module):
    def forward(self, sounds):
        return sounds.abs().amax(dim=1)[:, None, None]


class Shown(Method):
    """The map is the picture."""

    def maps(self, f_v, f_a, cycles=None):
        return f_v[:, 0] / 10


def brightness_localizer(threshold: float | None = None, trained: bool = True) -> Localizer:
    calibration = {} if threshold is None else {"threshold": threshold}
    spec = FeatureSpec(pretrained=False)
    card = Card("sspl", to_dict(SSPLConfig()), spec, trained=trained, calibration=calibration)
    place = torch.device("cpu")
    encoders = Encoders(Bright(), Loud(), place)
    return Localizer("brightness", Part(Shown(), card, place, encoders))
