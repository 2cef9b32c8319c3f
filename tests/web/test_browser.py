"""The web page in headless Chromium: a real page, real clips, the real model."""

import io
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.inference.localizer import DEFAULT_MODEL
from soundspot.media import clips as media
from soundspot.web.comparing import Question, ServedModels, answer_question
from soundspot.web.overlays import make_overlays
from soundspot.web.sessions import SessionStore

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 60_000  # ms, for a busy machine; nothing waits so long that goes well

pytestmark = pytest.mark.weights
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    module = pytest.importorskip("soundspot.web.server", reason="gradio is not installed")
    try:
        ServedModels((DEFAULT_MODEL,)).get(DEFAULT_MODEL)
    except SoundspotError as error:
        pytest.skip(f"no encoder weights: {error}")
    with module.serving([DEFAULT_MODEL]) as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as tool:
        launched = tool.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
            ],
        )
        yield launched
        launched.close()


@pytest.fixture
def page(server: str, browser):
    """An open page; whatever it does, no request may leave the machine."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.set_default_timeout(PATIENCE)
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(server)
    tab.wait_for_selector("#show")
    yield tab
    tab.close()
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((server, "data:", "blob:"))] == []


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    """The demo's dog, which barks for two seconds."""
    image = Image.fromarray(media.read_frame(weights.media("demo-dog-photo")))
    image.thumbnail((320, 320))
    sound = media.read_waveform(weights.media("demo-dog-bark"))[:32_000]
    path = tmp_path_factory.mktemp("clips") / "dog.mp4"
    media.write_video(path, [np.asarray(image)] * 20, sound, 10.0)
    return path


def give(page, path: Path) -> None:
    page.locator("input[type=file]").first.set_input_files(str(path))


def pixels(page, name: str) -> np.ndarray:
    """What a picture of the page shows."""
    address = page.locator(f"#{name} img").get_attribute("src")
    image = Image.open(io.BytesIO(httpx.get(address).content))
    return np.asarray(image.convert("RGB")).astype(float)


def width(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth")


def test_a_clip_gets_its_map_where_the_model_puts_it(page, clip: Path):
    give(page, clip)
    page.wait_for_selector("#first-map img")
    answer = answer_question(ServedModels((DEFAULT_MODEL,)), Question(media.probe(clip), at=1.0))
    overlays = make_overlays(answer)
    frame, shown = pixels(page, "frame"), pixels(page, "first-map")
    assert np.abs(frame - overlays.frame).mean() < 3  # JPEG
    assert np.abs(shown - overlays.pictures(1.0)[0]).mean() < 3
    # Heat lies where the map is hot: there the picture differs more from a frame without heat.
    change = np.abs(shown - overlays.pictures(0.0)[0]).mean(axis=-1)
    hot, cold = overlays.heats[0] > 0.8, overlays.heats[0] < 0.2
    assert change[hot].mean() > 3 * change[cold].mean()
    text = page.inner_text("body")
    assert answer.results[0].labels[0][0] in text and f"{answer.results[0].score:.3f}" in text
    wave = page.locator("#wave svg")
    assert wave.get_attribute("data-seconds") == "2.0"
    assert not page.locator("#second-map").is_visible()


def test_the_slider_moves_what_is_heard(page, tmp_path: Path):
    frames = [np.full((48, 64, 3), 9 * k, np.uint8) for k in range(24)]
    noise = np.random.default_rng(0).normal(0, 0.1, 12 * 16_000).astype(np.float32)
    media.write_video(tmp_path / "long.mp4", frames, noise, 2.0)
    give(page, tmp_path / "long.mp4")
    page.wait_for_selector("#first-map img")
    dark = pixels(page, "frame").mean()
    old = page.locator("#frame img").get_attribute("src")
    assert float(page.locator("#heard").get_attribute("x")) == pytest.approx(375, abs=1)
    slider = page.get_by_role("slider", name=re.compile("Moment"))
    slider.press("End")
    page.wait_for_function("document.querySelector('#heard').getAttribute('x') > 700")
    page.click("#show")
    page.wait_for_function("old => document.querySelector('#frame img').src != old", arg=old)
    assert pixels(page, "frame").mean() > dark + 50  # the pictures grow lighter


def test_two_sounds_side_by_side(page, clip: Path):
    give(page, clip)
    page.wait_for_selector("#first-map img")
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name="a siren").click()
    page.wait_for_selector("#second-map img")
    question = Question(media.probe(clip), at=1.0, compare="a siren")
    answer = answer_question(ServedModels((DEFAULT_MODEL,)), question)
    assert answer.difference in page.inner_text("body")
    assert "Siren" in page.inner_text("body")
    first, second = pixels(page, "first-map"), pixels(page, "second-map")
    assert np.abs(first - second).max() > 50


def test_the_strength_of_the_map(page, clip: Path):
    give(page, clip)
    page.wait_for_selector("#first-map img")
    strong = pixels(page, "first-map")
    old = page.locator("#first-map img").get_attribute("src")
    slider = page.get_by_role("slider", name=re.compile("Strength"))
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.mouse.click(box["x"] + 2, box["y"] + box["height"] / 2)
    page.wait_for_function("old => document.querySelector('#first-map img').src != old", arg=old)
    assert np.abs(pixels(page, "first-map") - strong).max() > 50


def test_the_whole_video_and_stopping_it(page, clip: Path, tmp_path: Path):
    give(page, clip)
    page.wait_for_selector("#first-map img")
    page.click("#render")
    page.click("#stop")
    page.get_by_text("Stopped: no video was made.").wait_for()
    page.wait_for_function("!document.querySelector('#render').disabled")
    page.click("#render")
    address = page.wait_for_selector("#moving video").get_attribute("src")
    (tmp_path / "moving.mp4").write_bytes(httpx.get(address).content)
    info = media.probe(tmp_path / "moving.mp4")
    assert info.kind == "video" and info.has_sound
    assert info.duration == pytest.approx(2, abs=0.2)


def test_a_bad_file_is_answered_in_a_sentence(page, tmp_path: Path):
    (tmp_path / "bad.mp4").write_bytes(b"this is no video" * 99)
    give(page, tmp_path / "bad.mp4")
    sentence = page.wait_for_selector("[role=alert].note").inner_text()
    assert sentence.startswith("bad.mp4 ")
    (tmp_path / "bad.jpg").write_bytes(b"this is no picture" * 99)
    (tmp_path / "noise.flac").write_bytes(b"")
    page.get_by_role("tab", name="A picture and a sound").click()
    page.get_by_text("Add a picture and a sound.").wait_for()
    give(page, tmp_path / "bad.jpg")
    page.get_by_text(re.compile("^bad.jpg ")).wait_for()
    text = page.inner_text("body")
    assert "Traceback" not in text and os.environ["GRADIO_TEMP_DIR"] not in text


def test_the_keyboard_is_enough(page, clip: Path):
    """Tab reaches the upload, the controls and the button; keys work them all."""
    with page.expect_file_chooser() as chooser:
        tab_to(
            page, "document.activeElement.getAttribute('aria-label')?.includes('Drop a video file')"
        )
        page.keyboard.press("Enter")
    chooser.value.set_files(str(clip))
    page.wait_for_selector("#first-map img")
    tab_to(page, "document.activeElement.getAttribute('aria-label') == 'Compare with'")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#second-map img")
    old = page.locator("#first-map img").get_attribute("src")
    tab_to(page, "document.activeElement.id == 'show'")
    page.keyboard.press("Enter")
    page.wait_for_function("old => document.querySelector('#first-map img').src != old", arg=old)


def tab_to(page, wanted: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(wanted):
            return
    raise AssertionError(f"the Tab key never got to {wanted}")


def test_a_phone_is_wide_enough(page, clip: Path):
    page.set_viewport_size({"width": 390, "height": 844})
    assert width(page) <= 390
    give(page, clip)
    page.wait_for_selector("#first-map img")
    assert width(page) <= 390
    assert page.locator("#first-map").bounding_box()["width"] > 280
    page.get_by_role("tab", name="A picture and a sound").click()
    page.get_by_text("Add a picture and a sound.").wait_for()
    assert width(page) <= 390


def test_a_closed_page_takes_its_files_with_it(server: str, browser, clip: Path, monkeypatch):
    gone, close = threading.Event(), SessionStore.close

    def noted(self, key):
        close(self, key)
        gone.set()

    root = Path(os.environ["GRADIO_TEMP_DIR"])
    tab = browser.new_page()
    tab.goto(server)
    give(tab, clip)
    tab.wait_for_selector("#first-map img", timeout=PATIENCE)
    mine = {path for path in root.iterdir() if path.name.startswith("session-")}
    assert mine
    monkeypatch.setattr(SessionStore, "close", noted)
    tab.close()
    assert gone.wait(PATIENCE / 1000)
    assert not any(path.name == clip.name for path in root.rglob("*"))
