import numpy as np
import pytest

from soundspot.inference.figures import GREEN
from soundspot.inference.result import Localization, caption

FRAME = np.zeros((40, 40, 3), np.uint8)
SOUND = np.ones(48_000, np.float32)


def test_captions_name_only_what_is_probably_heard():
    dog = [("Animal", 0.9), ("Dog", 0.8)]
    assert "Dog" in caption(dog, "visible", 0.5, 0.3)
    assert caption(dog, "visible", 0.5, 0.3) != caption(dog, "visible", 0.31, 0.3)
    assert "Speech" not in caption([("Speech", 0.05)], "not visible", 0.1, 0.3)
    assert "Dog" in caption([("Silence", 0.9), ("Dog", 0.5)], "visible", 0.5, 0.3)
    unsure = [("Silence", 0.9), ("Animal", 0.6), ("Dog", 0.4)]
    assert caption(unsure, "visible", 0.5, 0.3) == caption(unsure, "visible", 0.31, 0.3)
    assert len({caption(dog, v, 0.5, 0.3) for v in ("visible", "not visible", "unknown")}) == 3


@pytest.mark.parametrize(("threshold", "drawn"), [(0.4, True), (0.6, False), (None, False)])
def test_only_a_visible_source_gets_a_box(threshold: float | None, drawn: bool):
    grid = 0.5 * np.eye(40, dtype=np.float32)
    result = Localization(grid, [], "m", threshold=threshold, frame=FRAME, waveform=SOUND)
    assert (np.asarray(result.picture()) == GREEN).all(axis=2).any() == drawn
    assert (result.box is not None) == drawn
