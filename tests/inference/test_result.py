import numpy as np
import pytest

from soundspot.inference import figures
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
    assert len({caption(dog, v, 0.5, 0.3) for v in ("visible", "not visible", "unknown")}) == 3


@pytest.mark.parametrize(("threshold", "drawn"), [(0.4, True), (0.6, False), (None, False)])
def test_only_a_visible_source_gets_a_box(threshold: float | None, drawn: bool):
    grid = 0.5 * np.eye(40, dtype=np.float32)
    result = Localization(grid, [], "m", threshold=threshold, frame=FRAME, waveform=SOUND)
    assert (np.asarray(result.picture()) == GREEN).all(axis=2).any() == drawn
    assert (result.box is not None) == drawn


def test_a_span_longer_than_what_is_drawn_says_that_its_middle_is(monkeypatch):
    """Else "1.50 to 10.00 s" would stand above an axis from 4.25 to 7.25 s."""
    headings, draw = [], figures.triptych

    def noted(*parts, **words):
        headings.append(words["headings"])
        return draw(*parts, **words)

    monkeypatch.setattr(figures, "triptych", noted)
    grid = np.zeros((20, 20), np.float32)
    for span, heard in (((1.5, 10.0), (4.25, 7.25)), ((4.5, 7.0), (4.5, 7.0))):
        Localization(
            grid, [], "m", frame=FRAME, waveform=0 * SOUND, span=span, heard=heard
        ).picture()
    assert [words[2] for words in headings] == [
        "The middle of the sound from 1.50 to 10.00 s",
        "Sound from 4.50 to 7.00 s",
    ]
