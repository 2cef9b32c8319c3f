"""predictions.py: the answers of a model with a label map, from stored features."""

from dataclasses import replace

import numpy as np
import torch

from soundspot.evaluation import predictions
from soundspot.evaluation.predictions import EncodedFeatures, Features
from soundspot.features.spec import Encoders, FeatureSpec
from soundspot.inference.localizer import Localizer, Part
from soundspot.model.checkpoint import Card
from soundspot.model.methods.method import Method
from soundspot.model.routing import Route, RouteTable

CPU = torch.device("cpu")


class Plain(Method):
    """The map is the first channel."""

    def maps(self, f_v, f_a, cycles=None):
        return f_v[:, 0]


class Routed(Localizer):
    """The second sound is partly named."""

    def routes(self, scores):
        return [Route("named", 1.0, "x"), Route("both", 0.25, "x")]


def stored(value: float) -> EncodedFeatures:
    frames = {name: torch.full((2, 14, 14), value).half() for name in ("a", "b")}
    sounds = {"s": torch.zeros(3, 7)}
    return EncodedFeatures(frames, sounds, {f"lost {value}": "torn"}, {}.__getitem__)


def test_the_sound_decides_which_part_makes_the_map() -> None:
    encoders = Encoders(torch.nn.Identity(), torch.nn.Identity(), CPU)
    card = Card("sspl", {}, FeatureSpec())
    learned = Part(Plain(), card, CPU, encoders)
    named = replace(learned, card=replace(card, features=FeatureSpec(visual="mobilenetv2")))
    model = Routed("m", learned, named=named, table=RouteTable((), (), (), (), ()))
    both = Features({card.features: stored(1.0), named.card.features: stored(0.0)})
    maps = predictions.maps_of(model, both, ["a", "b"], torch.zeros(2, 3, 7))
    np.testing.assert_allclose(maps[:, 0, 0], [0.0, 0.75])
    assert set(both.lost) == {"lost 1.0", "lost 0.0"}
