import numpy as np

from soundspot.inference import figures
from soundspot.inference.figures import GREEN
from soundspot.inference.result import UNNAMED, Localization, heard_line


def test_captions_name_only_what_is_probably_heard():
    assert heard_line([("Speech", 0.81), ("Rapping", 0.01), ("Music", 0.01)]) == "heard: Speech"
    assert heard_line([("Dog", 0.9), ("Bark", 0.8), ("Animal", 0.7), ("Pet", 0.6)]) == (
        "heard: Dog, Bark, Animal"
    )
    assert heard_line([("Speech", 0.05)]) == f"heard: {UNNAMED}"
    assert heard_line([]) == ""


def test_a_source_that_is_probably_not_in_the_picture_gets_no_box():
    grid, frame = np.eye(40, dtype=np.float32), np.zeros((40, 40, 3), np.uint8)
    given = (grid, grid, (3, 5, 20, 30), 0.5, [], "m", True, frame, np.ones(48_000, np.float32))

    def boxed(threshold: float | None) -> tuple[bool, str]:
        result = Localization(*given, threshold=threshold)
        pixels = np.asarray(result.picture())
        return bool((pixels == GREEN).all(axis=2).any()), result.describe()

    assert boxed(None)[0] and boxed(0.4)[0]
    drawn, words = boxed(0.6)
    assert not drawn and "where: probably nowhere; the best guess is box (3, 5, 20, 30)" in words


def test_a_span_longer_than_what_is_drawn_says_that_its_middle_is(monkeypatch):
    """Else "1.50 to 10.00 s" would stand above an axis from 4.25 to 7.25 s."""
    headings, draw = [], figures.triptych

    def noted(*parts, **words):
        headings.append(words["headings"])
        return draw(*parts, **words)

    monkeypatch.setattr(figures, "triptych", noted)
    frame, heat = np.zeros((20, 20, 3), np.uint8), np.zeros((20, 20), np.float32)
    still = np.zeros(48_000, np.float32)
    for span, heard in (((1.5, 10.0), (4.25, 7.25)), ((4.5, 7.0), (4.5, 7.0))):
        Localization(
            *(heat, heat, None, 0.9, [], "m", True, frame, still), span=span, heard=heard
        ).picture()
    assert [words[2] for words in headings] == [
        "The middle of the sound from 1.50 to 10.00 s",
        "Sound from 4.50 to 7.00 s",
    ]
