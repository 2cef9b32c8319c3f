"""How often a request opens the visitor's files."""

from pathlib import Path

import gradio as gr
import pytest

from brightness import brightness_localizer
from media_opens import MOST, count_opens
from soundspot.web import comparing
from soundspot.web.comparing import NOTHING, ServedModels
from soundspot.web.controls import LOOK_OUTPUTS, MOVING_OUTPUTS, VIDEO, Inputs
from soundspot.web.handlers import Handlers
from soundspot.web.limits import Limits
from soundspot.web.sessions import SessionStore
from web_media import write_clip


def test_every_request_opens_a_video_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(comparing, "_load", lambda name, device: brightness_localizer())
    handlers = Handlers(ServedModels(("m",)), Limits(), SessionStore(Limits()))
    upload = handlers.sessions.add_upload(write_clip(tmp_path / "a.mp4"))
    values = Inputs(VIDEO, {"path": str(upload)}, None, None, "m", NOTHING, None)
    request = gr.Request(session_hash="visitor")
    opens = count_opens(monkeypatch)
    handlers.on_begin(request, *values)
    assert 0 < len(opens) <= MOST
    opens.clear()
    *_, last = handlers.on_look(request, *values)
    assert "a-map.jpg" in last[LOOK_OUTPUTS.index("findings")]
    assert 0 < len(opens) <= MOST
    opens.clear()
    *_, last = handlers.on_render(request, *values)
    assert "a-map.mp4" in last[MOVING_OUTPUTS.index("moving")]
    assert 0 < len(opens) <= MOST
    handlers.sessions.clear()
