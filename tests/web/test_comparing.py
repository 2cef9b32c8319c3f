"""Questions and answers: the maps, how they compare and are drawn, the video."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from brightness import brightness_localizer
from soundspot.common.errors import SoundspotError
from soundspot.inference import figures
from soundspot.inference.models import DEFAULT_MODEL
from soundspot.inference.video import VideoMoment
from soundspot.media.clips import MediaInfo, probe
from soundspot.web import video_rendering
from soundspot.web.comparing import (
    Answer,
    Question,
    ServedModels,
    answer_question,
    trained_models,
)
from soundspot.web.limits import Limits
from soundspot.web.overlays import Overlays, make_overlays
from soundspot.web.video_rendering import Stopped, render_within_limits
from web_media import result, write_clip


def test_how_different_two_maps_are():
    rising, falling = result([[0, 1, 2]]), result([[2, 1, 0]])
    names = ("this sound", "a siren")
    assert Answer((rising, falling), names).correlation == pytest.approx(-1)
    line = Answer((rising, falling), names).difference
    assert line.startswith("The other sound gives a very different map: the two correlate at -1.00")
    close = result([[0, 1, 1]])  # covariance 1/3 over deviations sqrt(2/3) and sqrt(2)/3
    line = Answer((rising, close), names, same_scale=False).difference
    assert line.startswith("The other model changes the map: the two correlate at 0.87")
    assert "hardly changes" in Answer((rising, rising), names).difference
    faint = Answer((result([[0, 1, 2]], 0.8), result([[0, 1, 2]], 0.2)), names)
    assert faint.difference == (
        "The other sound gives a very different map: the two correlate at 1.00 "
        "(1 is identical, 0 unrelated) and peak at 0.80 and 0.20."
    )
    flat = Answer((rising, result([[1, 1, 1]])), names)
    assert flat.correlation is None and "flat" in flat.difference
    assert Answer((rising,), names[:1]).difference == ""
    fine = result([[0, 0.25, 0.75, 1.25, 1.75, 2]] * 2)  # `rising` on a grid twice as fine
    assert Answer((rising, fine), names).correlation == pytest.approx(1)
    assert Answer((fine, falling), names).correlation == pytest.approx(-1)


def test_two_sounds_share_a_scale_and_two_models_do_not():
    loud, faint = result([[0.0, 0.8]], 0.8), result([[0.0, 0.2]], 0.2)
    drawn = make_overlays(Answer((loud, faint), ("a", "b")))
    assert drawn.heats[0].max() == pytest.approx(1) and drawn.heats[1].max() == pytest.approx(0.25)
    drawn = make_overlays(Answer((loud, faint), ("a", "b"), same_scale=False))
    assert drawn.heats[1].max() == pytest.approx(1)


def test_a_box_only_around_what_is_probably_visible():
    heat = np.zeros((5, 7), np.float32)
    heat[1:3, 2:5] = 1
    frame = np.full((5, 7, 3), 100, np.uint8)
    drawn = Overlays(frame, np.stack([heat, heat]), (True, True), (True, False)).pictures()
    assert (drawn[0] == figures.GREEN).all(-1).any()
    assert not (drawn[1] == figures.GREEN).all(-1).any()
    hidden = replace(result([[0.0, 0.1]], 0.1), threshold=0.3)
    assert make_overlays(Answer((hidden,), ("a",))).boxed == (False,)


def test_an_untrained_map_is_stamped_and_keeps_its_size():
    frame = np.full((60, 80, 3), 100, np.uint8)
    heat = np.zeros((1, 60, 80), np.float32)
    (stamped,) = Overlays(frame, heat, (False,), (True,)).pictures()
    assert stamped.shape == frame.shape and (stamped == figures.RED).all(-1).any()


def test_large_pictures_are_drawn_small():
    frame, full = np.zeros((500, 1940, 3), np.uint8), np.ones((500, 1940), np.float32)
    large = replace(result([[0, 1, 2]]), frame=frame, map=full)
    assert make_overlays(Answer((large,), ("a",))).frame.shape == (247, 960, 3)


def test_only_models_that_are_served_are_loaded():
    models = ServedModels((DEFAULT_MODEL,))
    with pytest.raises(SoundspotError, match="no model '/etc/passwd' here"):
        models.get("/etc/passwd")
    sounds = ["nothing", "a siren", "a car horn", "a sound of my own"]
    assert models.comparisons(DEFAULT_MODEL) == sounds
    assert ServedModels(("a", "b", "c")).comparisons("b") == [*sounds, "the model a", "the model c"]
    with pytest.raises(SoundspotError, match="cannot compare with 'a sirene': did you mean"):
        info = MediaInfo(Path("x.mp4"), "video", 2.0, (64, 48), has_sound=True)
        answer_question(models, Question(info, compare="a sirene"))
    assert all(not name.startswith("untrained") for name in trained_models())


def test_a_video_stops_when_nobody_wants_it(tmp_path: Path, monkeypatch):
    """And at the limit, should the file be longer than it said."""
    question = Question(probe(write_clip(tmp_path / "a.mp4")))
    shares = []

    def walk(localizer, path, out, *, audio, note):
        for k in range(5):
            note(VideoMoment(k * 0.25, silent=True))

    monkeypatch.setattr(video_rendering, "render_video", walk)
    stop, model = threading.Event(), brightness_localizer()
    render_within_limits(model, question, tmp_path / "b.mp4", Limits(), stop, shares.append)
    assert shares == [1 / 8, 2 / 8, 3 / 8, 4 / 8, 5 / 8]  # 2 s have 8 maps
    with pytest.raises(SoundspotError, match="a.mp4 is longer than the 0.5 s"):
        render_within_limits(
            model, question, tmp_path / "b.mp4", Limits(seconds=0.5), stop, shares.append
        )
    stop.set()
    with pytest.raises(Stopped, match="no video was made"):
        render_within_limits(model, question, tmp_path / "b.mp4", Limits(), stop, shares.append)
