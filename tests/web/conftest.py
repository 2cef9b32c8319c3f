"""A real page with a quick model, in headless Chromium."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from soundspot.media import clips as media
from soundspot.web import comparing
from web_media import quick_model
from web_pages import MODELS, visit

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    module = pytest.importorskip("soundspot.web.server", reason="gradio is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparing, "_load", quick_model)
        with module.serving(MODELS) as url:
            yield url


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    devices = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as tool:
        launched = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *devices])
        yield launched
        launched.close()


@pytest.fixture
def page(server: str, browser):
    """An open page; whatever it does, no request may leave the machine, and no script may fail."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    asked: list[str] = []
    failed: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: failed.append(str(error)))
    visit(tab, server)
    yield tab
    tab.close()
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((server, "data:", "blob:"))] == []
    assert failed == []


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    """Three seconds: a bright square at the left, barks, then a tone."""
    frame = np.full((120, 160, 3), 40, np.uint8)
    frame[40:90, 10:60] = 250
    time = np.arange(24_000) / 16_000
    barks = np.random.default_rng(0).normal(0, 0.2, 24_000)
    sound = np.concatenate([barks, 0.1 * np.sin(2 * np.pi * 400 * time)]).astype(np.float32)
    path = tmp_path_factory.mktemp("clips") / "dog.mp4"
    media.write_video(path, [frame] * 30, sound, 10.0)
    return path
