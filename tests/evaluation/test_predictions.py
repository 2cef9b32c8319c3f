"""predictions.py: the answers of a model with a label map, from stored features."""

from dataclasses import replace

import numpy as np
import torch

from soundspot.encoders.yamnet import YAMNet
from soundspot.evaluation import predictions
from soundspot.evaluation.predictions import EncodedFeatures, Features
from soundspot.features.spec import Encoders, FeatureSpec
from soundspot.inference.localizer import Localizer, Part
from soundspot.model import evidence
from soundspot.model.checkpoint import Card
from soundspot.model.evidence import SoundTable
from soundspot.model.methods.method import Method

CPU = torch.device("cpu")


class Plain(Method):
    """The map is the first channel."""

    def maps(self, f_v, f_a, cycles=None):
        return f_v[:, 0]


class Hears(YAMNet):
    """Hears nothing that has a name."""

    def forward(self, waveform):
        return torch.zeros(len(waveform), 3, 1024)

    def classify(self, embedding):
        return torch.zeros(*embedding.shape[:2], 521)


NAMES = tuple(f"sound {k}" for k in range(521))


def stored(value: float) -> EncodedFeatures:
    frames = {name: torch.full((2, 14, 14), value).half() for name in ("a", "b")}
    sounds = {"s": torch.zeros(3, 7)}
    return EncodedFeatures(frames, sounds, {f"lost {value}": "torn"}, {}.__getitem__)


def test_the_evidence_is_taken_from_the_stored_features_of_both_parts(monkeypatch) -> None:
    audio = Hears()
    encoders = Encoders(torch.nn.Identity(), audio, CPU)
    card = Card("sspl", {}, FeatureSpec(), calibration={"threshold": 0.5})
    learned = Part(Plain(), card, CPU, encoders)
    named = replace(learned, card=replace(card, features=FeatureSpec(visual="mobilenetv2")))
    model = Localizer("m", learned, named=named, table=SoundTable((0,), (1,)), class_names=NAMES)
    film = np.zeros((3, 64, 64), np.uint8)
    film[1, :32] = 99  # the upper half moves
    stores = {card.features: stored(0.3), named.card.features: stored(0.0)}
    both = Features(stores, {"a": film, "b": None}.get)
    scenes = predictions.StoredScenes(both, ["a", "b"])
    known = model.known(scenes, torch.zeros(2, 3, 1024))
    assert known.recorded.tolist() == [True, False]
    torch.testing.assert_close(known.noise, torch.full((2,), 0.3), atol=1e-3, rtol=0)
    assert known.motion[0, 0, 0] > known.motion[0, -1, -1] == known.motion[1].max() == 0
    weights = evidence.Weights((1.0, 1.0, 0.0, 9.0, 0.0), (0.0,) * 6)
    monkeypatch.setattr(evidence, "read_weights", lambda: weights)
    found = predictions.maps_of(model, both, ["a", "b"], torch.zeros(2, 3, 1024))
    assert found[0].argmax() < 14 * 7 and found[0].max() == 0.5
    assert set(both.lost) == {"lost 0.3", "lost 0.0"}
