"""The examples of the page."""

from pathlib import Path

import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.media import clips as media
from soundspot.web import examples
from soundspot.web.comparing import ServedModels
from soundspot.web.drawings import bird_song, street
from soundspot.web.examples import EXAMPLES, example_files, thumbnail


def test_what_is_made_here_needs_no_download(tmp_path: Path, monkeypatch):
    def refuse(name):
        raise SoundspotError("offline")

    monkeypatch.setattr(weights, "media", refuse)
    monkeypatch.setattr(weights, "path", refuse)
    examples._dog.cache_clear()
    for key in ("street", "bird"):
        for name, content in example_files(key).items():
            (tmp_path / name).write_bytes(content)
        assert thumbnail(key).startswith("data:image/jpeg;base64,")
    assert media.probe(tmp_path / "street.mp4").duration == pytest.approx(6.5, abs=0.2)
    assert media.probe(tmp_path / "street.jpg").size == (640, 426)
    assert media.probe(tmp_path / "street.flac").duration == pytest.approx(3)
    assert thumbnail("dog") is None
    with pytest.raises(SoundspotError, match="offline"):
        example_files("dog")


def test_examples_ask_for_what_the_page_offers():
    assert 4 <= len(EXAMPLES) <= 5
    offered = ServedModels(("m",)).comparisons("m")
    assert all(example.compare in offered for example in EXAMPLES.values())


@pytest.mark.weights
def test_the_model_finds_the_drawn_bird():
    from soundspot.inference.models import load

    found = load().localize(street(), bird_song())
    x1, y1, x2, y2 = found.box
    assert found.visible and "Bird" in [name for name, _ in found.labels]
    assert x1 < 450 < x2 and y1 < 180 < y2 and x1 > 250  # the bird, not the car
    assert np.abs(bird_song()).max() < 1
