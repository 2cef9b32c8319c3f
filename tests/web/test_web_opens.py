"""How often a request opens the visitor's files."""

from pathlib import Path

import gradio as gr
import pytest

from brightness import brightness_localizer
from media_opens import MOST, count_opens
from soundspot.web import comparing
from soundspot.web.comparing import NOTHING, ServedModels
from soundspot.web.handlers import OUTPUTS, VIDEO, Handlers
from soundspot.web.limits import Limits
from soundspot.web.sessions import SessionStore
from web_media import write_clip


class SilentProgress(gr.Progress):
    def __call__(self, *args, **kwargs):
        return None


def test_every_request_opens_a_video_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(comparing, "_load", lambda name, device: brightness_localizer())
    handlers = Handlers(ServedModels(("m",)), Limits(), SessionStore(Limits()))
    upload = handlers.sessions.add_upload(write_clip(tmp_path / "a.mp4"))
    values = (VIDEO, {"path": str(upload)}, None, None, None, "m", NOTHING, None)
    request = gr.Request(session_hash="visitor")
    opens = count_opens(monkeypatch)
    handlers.on_upload(request, *values)
    assert 0 < len(opens) <= MOST
    opens.clear()
    shown = handlers.on_show(request, *values, 100)
    assert shown[OUTPUTS.index("first")] is not None and len(opens) == 1
    opens.clear()
    _, video = handlers.on_render(request, SilentProgress(), *values)
    assert video.visible and len(opens) <= MOST
    handlers.sessions.clear()
