"""The page and its handlers keep to the rules of the server."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gradio as gr
import pytest
from soundspot.inference.router import Router

from brightness import brightness_localizer
from soundspot.inference.localizer import Localizer
from soundspot.model.routing import RouteTable
from soundspot.web import comparing, handlers
from soundspot.web.comparing import NOTHING, ServedModels
from soundspot.web.controls import MOVING_OUTPUTS, VIDEO, Inputs
from soundspot.web.handlers import Handlers
from soundspot.web.layout import build_page
from soundspot.web.limits import Limits
from soundspot.web.sessions import SessionStore
from web_media import write_clip

FILES = (gr.Video, gr.Image, gr.Audio, gr.File)


@pytest.fixture
def served(monkeypatch) -> Iterator[Handlers]:
    monkeypatch.setattr(comparing, "_load", lambda name, device: brightness_localizer())
    made = Handlers(ServedModels(("m",)), Limits(), SessionStore(Limits()))
    yield made
    made.sessions.clear()


def test_whatever_reads_an_upload_waits_in_the_queue(served: Handlers):
    """And gets it as it is: gradio would open pictures of any format, and start ffmpeg."""
    page = build_page(served)
    readers = [fn for fn in page.fns.values() if any(isinstance(i, FILES) for i in fn.inputs)]
    assert len(readers) >= 3
    for fn in readers:
        assert fn.queue is not False and fn.concurrency_limit == 1, fn.name
        assert not fn.preprocess, fn.name
    assert page._queue.max_size == served.limits.waiting


def test_a_video_in_the_making_outlives_comparisons(served: Handlers, tmp_path: Path, monkeypatch):
    session = served.sessions.session("visitor")

    def render(localizer, question, out, limits, stop, on_progress):
        for _ in range(served.limits.kept + 1):
            served.sessions.result_path(session, "map.jpg").write_bytes(b"x")
        on_progress(0.5)
        out.write_bytes(b"video")

    monkeypatch.setattr(handlers, "render_within_limits", render)
    upload = served.sessions.add_upload(write_clip(tmp_path / "a.mp4"))
    values = Inputs(VIDEO, {"path": str(upload)}, None, None, "m", NOTHING, None)
    request = gr.Request(session_hash="visitor")
    *_, last = served.on_render(request, *values)
    assert "a-map.mp4" in last[MOVING_OUTPUTS.index("moving")]
    assert session.results[-1].name == "a-map.mp4"
    assert session.results[-1].read_bytes() == b"video"


def test_all_models_that_are_served_stay_loaded(monkeypatch):
    """However many there are; before, a fifth pushed out the first, and so on in a circle."""
    loaded = []

    def load(name, device):
        loaded.append(name)
        return brightness_localizer()

    monkeypatch.setattr(comparing, "load", load)
    names = tuple(f"one of seven, {k}" for k in range(7))
    models = ServedModels(names)
    for _ in range(3):
        for name in names:
            models.get(name)
    assert loaded == list(names)


def test_a_model_is_loaded_with_its_bridge(monkeypatch):
    """Else the first sound that needs the bridge would wait for it, and maybe for a download."""
    loaded = []

    def load_bridge() -> Localizer:
        loaded.append("bridge")
        return brightness_localizer()

    router = Router(RouteTable((), (), (), (), ()), load_bridge)
    model = replace(brightness_localizer(), router=router)
    monkeypatch.setattr(comparing, "load", lambda name, device: model)
    ServedModels(("with a bridge",)).get("with a bridge")
    assert loaded == ["bridge"]
