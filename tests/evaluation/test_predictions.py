"""predictions.py: the maps of a model with a bridge."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from soundspot.evaluation import predictions
from soundspot.evaluation.predictions import EncodedFeatures, EvaluatedModel, RoutedFeatures
from soundspot.features.spec import FeatureSpec
from soundspot.model.checkpoint import Card
from soundspot.model.methods.method import Method
from soundspot.model.routing import Route


class Plain(Method):
    """The map is the first channel."""

    def maps(self, f_v, f_a, cycles=None):
        return f_v[:, 0]


def features(value: float) -> EncodedFeatures:
    frames = {name: torch.full((2, 3, 5), value).half() for name in ("a", "b")}
    return EncodedFeatures(
        frames, {"s": torch.zeros(3, 7)}, {f"lost {value}": "torn"}, {}.__getitem__
    )


def test_the_sound_decides_whose_map_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    own = EvaluatedModel("own", Plain(), Card("sspl", {}, FeatureSpec()))
    model = replace(own, name="own+names", bridge=replace(own, name="names"))
    both = RoutedFeatures(features(1.0), features(0.0))
    chosen = [Route("names", 1.0, "x"), Route("both", 0.25, "x")]
    monkeypatch.setattr(predictions, "routes", lambda model, f_a: chosen)
    (maps,) = predictions.maps_by_cycle(model, both, ["a", "b"], torch.zeros(2, 3, 7))
    np.testing.assert_allclose(maps[:, 0, 0], [0.0, 0.75])
    assert set(predictions.lost_files(both)) == {"lost 1.0", "lost 0.0"}
