"""The web page in headless Chromium: a real page, with a quick model."""

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

from soundspot.inference.localizer import DEFAULT_MODEL
from soundspot.media import clips as media
from soundspot.web import comparing
from soundspot.web.comparing import Question, ServedModels, answer_question
from soundspot.web.overlays import make_overlays
from soundspot.web.sessions import SessionStore
from web_media import Louder, quick_model

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 60_000  # ms, for a busy machine; nothing waits so long that goes well
MODELS = (DEFAULT_MODEL, "sspl-v2")
AXE = Path(__file__).parents[1] / "vendor" / "axe.min.js"
PHONE = {"width": 390, "height": 844}

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


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
    with playwright.sync_playwright() as tool:
        launched = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *devices])
        yield launched
        launched.close()


@pytest.fixture
def page(server: str, browser):
    """An open page; whatever it does, no request may leave the machine, and no script may fail."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.set_default_timeout(PATIENCE)
    asked: list[str] = []
    failed: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: failed.append(str(error)))
    tab.goto(server)
    tab.wait_for_selector("#show")
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


def give(page, path: Path, place: str = "video") -> None:
    page.locator(f"#{place} input[type=file]").first.set_input_files(str(path))


def located(page, clip: Path) -> None:
    give(page, clip)
    page.wait_for_selector("#maps img.map")


def settled(page) -> None:
    """Nothing is under way."""
    page.wait_for_selector("#moving video", state="attached")
    page.wait_for_selector(".working", state="detached")


def pixels(page, picture: str) -> np.ndarray:
    address = page.evaluate(f"document.querySelector('#maps img.{picture}').src")
    image = Image.open(io.BytesIO(httpx.get(address).content))
    return np.asarray(image.convert("RGB")).astype(float)


def wait_for_another_map(page, old: str) -> None:
    page.wait_for_function(
        "old => document.querySelector('#maps img.map').getAttribute('src') != old", arg=old
    )


def address_of_map(page) -> str:
    return page.locator("#maps img.map").first.get_attribute("src")


def width(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth")


def toasts(page) -> list[str]:
    return page.evaluate(
        "[...document.querySelectorAll('.toast-body')].filter(e => e.offsetParent)"
        ".map(e => e.innerText)"
    )


def violations(page, state: str) -> list[str]:
    """What axe finds serious or critical."""
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document)")["violations"]
    return [
        f"{state}: {rule['id']}: {node['html'][:120]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def test_a_clip_gets_its_map_where_the_model_puts_it(page, clip: Path):
    assert "aeroplanes, birds, cars" in page.inner_text("body")
    located(page, clip)
    answer = answer_question(ServedModels(MODELS), Question(media.probe(clip)))
    overlays = make_overlays(answer)
    assert np.abs(pixels(page, "frame") - overlays.frame).mean() < 3  # JPEG
    assert np.abs(pixels(page, "map") - overlays.pictures()[0]).mean() < 3
    alt = page.locator("#maps img.map").get_attribute("alt")
    assert "Heard: Dog." in alt and "middle left" in alt
    text = page.inner_text("body")
    assert f"{answer.results[0].score:.3f}" in text
    assert "Rapping" not in text  # a mere guess
    names = page.locator("#findings .downloads a").all_inner_texts()
    assert names == ["dog-map.jpg", "dog-map.json"]
    assert page.get_by_role("button", name=re.compile("share", re.I)).count() == 0
    answers, question = (page.locator(name).bounding_box() for name in ("#maps", "#video"))
    assert answers["width"] > 1.3 * question["width"] and answers["x"] > question["x"]


def test_the_moving_map_plays_as_soon_as_it_is_ready(page, clip: Path, tmp_path: Path):
    give(page, clip)
    words = page.wait_for_selector("#making .working .words").inner_text()
    assert re.match(r"Making the moving map: \d+\s%", words)
    video = page.wait_for_selector("#moving video")
    page.wait_for_function("document.querySelector('#moving video').currentTime > 0.2")
    (tmp_path / "moving.mp4").write_bytes(
        httpx.get(page.evaluate("document.querySelector('#moving video').src")).content
    )
    info = media.probe(tmp_path / "moving.mp4")
    assert info.kind == "video" and info.has_sound
    assert info.duration == pytest.approx(3, abs=0.2)
    assert video.is_visible()
    assert page.locator("#moving .downloads a").get_attribute("download") == "dog-map.mp4"


def test_stopping(page, clip: Path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Louder, "seconds", 1.0)  # so that there is time to stop
        give(page, clip)
        page.click("#making .stop")
        page.get_by_text("Stopped: no video was made.").wait_for()
    assert page.locator("#moving video").count() == 0
    page.click("#render")  # and once more, to the end
    page.wait_for_selector("#moving video")


def test_the_timeline_names_what_is_heard_and_leads_there(page, clip: Path):
    located(page, clip)
    settled(page)
    names = page.locator("#timeline .events button")
    assert names.all_inner_texts() == ["Dog", "Vehicle horn"]
    old = address_of_map(page)
    names.nth(1).click()
    wait_for_another_map(page, old)
    chosen = float(page.locator("#at input").input_value())
    assert 1.5 <= chosen <= 3.0
    playing = page.evaluate(
        "[...document.querySelectorAll('#moving video')].map(v => v.currentTime)"
    )
    assert playing[0] >= chosen - 0.1
    old = address_of_map(page)
    page.locator("#at input").fill("0.5")
    page.locator("#at input").press("Enter")
    wait_for_another_map(page, old)
    wave = page.locator("#timeline .wave")
    assert wave.get_attribute("aria-valuenow") == "0.50"
    old = address_of_map(page)
    wave.press("ArrowRight")
    wait_for_another_map(page, old)
    assert page.locator("#at input").input_value() == "0.75"


@pytest.mark.parametrize("other", ["a siren", "the model sspl-v2"])
def test_two_maps_side_by_side(page, clip: Path, other: str):
    located(page, clip)
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name=other).click()
    page.wait_for_selector(".maps.two")
    answer = answer_question(ServedModels(MODELS), Question(media.probe(clip), compare=other))
    assert answer.difference in page.inner_text("body")
    left, right = (page.locator("#maps .stack").nth(k).bounding_box() for k in range(2))
    assert left["y"] == right["y"] and left["width"] == right["width"]
    assert left["x"] + left["width"] <= right["x"] <= left["x"] + left["width"] + 30
    assert page.locator("#maps .scale").count() == 1


def test_an_example_fills_the_page_with_one_click(page):
    page.click("[data-example=street]")
    page.wait_for_selector("#maps img.map")
    assert page.locator("#video video").is_visible()
    assert "street-map.jpg" in page.locator(".downloads a").all_inner_texts()
    page.click("[data-example=bird]")
    page.wait_for_selector(".maps.two")
    assert page.locator("#picture img").is_visible()
    assert page.locator("#moving video").count() == 0  # that was of other files


def test_the_strength_of_the_map(page, clip: Path):
    located(page, clip)
    page.locator(".strength input").fill("30")
    opacity = "getComputedStyle(document.querySelector('#maps img.map')).opacity"
    page.wait_for_function(f"{opacity} == '0.3'")


def test_a_wrong_file_is_answered_in_one_sentence(page, clip: Path, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("no video")
    give(page, tmp_path / "notes.txt")
    page.get_by_text("notes.txt is not a video.").wait_for()
    (tmp_path / "bad.mp4").write_bytes(b"this is no video" * 99)
    give(page, tmp_path / "bad.mp4")
    page.get_by_text(re.compile("^bad.mp4 is not a readable")).wait_for()
    assert not page.get_by_text("notes.txt is not a video.").is_visible()
    page.wait_for_timeout(500)  # a toast would need some time, too
    assert toasts(page) == []
    (tmp_path / "bad.jpg").write_bytes(b"this is no picture" * 99)
    page.get_by_role("tab", name="A picture and a sound").click()
    page.get_by_text("Add a picture and a sound.").wait_for()
    give(page, tmp_path / "bad.jpg", "picture")
    page.get_by_text(re.compile("^bad.jpg ")).wait_for()
    text = page.inner_text("body")
    assert "Traceback" not in text and os.environ["GRADIO_TEMP_DIR"] not in text


def test_the_keyboard_is_enough(page, clip: Path):
    """Tab reaches the upload, the controls and the button; keys work them all."""
    with page.expect_file_chooser() as chooser:
        tab_to(page, "document.activeElement.className.includes('upload-container')")
        page.keyboard.press("Enter")
    chooser.value.set_files(str(clip))
    page.wait_for_selector("#maps img.map")
    tab_to(page, "document.activeElement.getAttribute('aria-label') == 'Compare with'")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".maps.two")
    tab_to(page, "document.activeElement.className.includes('wave')")
    old = address_of_map(page)
    page.keyboard.press("Home")
    wait_for_another_map(page, old)
    tab_to(page, "document.activeElement.id == 'show'")


def tab_to(page, wanted: str) -> None:
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate(wanted):
            return
    raise AssertionError(f"the Tab key never got to {wanted}")


def test_on_a_phone_the_answer_comes_into_sight(page, tmp_path: Path):
    """Of an upright video, too."""
    frame = np.random.default_rng(0).integers(0, 255, (160, 90, 3), dtype=np.uint8)
    noise = np.random.default_rng(1).normal(0, 0.2, 32_000).astype(np.float32)
    media.write_video(tmp_path / "upright.mp4", [frame] * 20, noise, 10.0)
    page.set_viewport_size(PHONE)
    assert width(page) <= 390
    give(page, tmp_path / "upright.mp4")
    in_sight = "e => { const b = e.getBoundingClientRect(); return b.top >= 0 && b.top < 500 }"
    page.wait_for_selector(".working")
    page.wait_for_function(f"({in_sight})(document.querySelector('#answer'))")
    page.wait_for_selector("#maps img.map")
    page.wait_for_function(f"({in_sight})(document.querySelector('#maps'))")
    assert page.locator("#maps .stack").bounding_box()["height"] <= 0.55 * PHONE["height"]
    assert page.locator("#video video").bounding_box()["height"] <= 0.4 * PHONE["height"]
    assert width(page) <= 390
    page.click("[data-example=bird]")
    page.wait_for_selector(".maps.two")
    assert width(page) <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(server: str, browser, clip: Path, tmp_path: Path, scheme: str):
    tab = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    tab.set_default_timeout(PATIENCE)
    tab.goto(server)
    tab.wait_for_selector("#show")
    tab.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    found = violations(tab, "empty")
    give(tab, clip)
    tab.wait_for_selector("#making .working")
    found += violations(tab, "making")
    settled(tab)
    found += violations(tab, "moving")
    tab.click("[data-example=bird]")
    tab.wait_for_selector(".maps.two")
    tab.wait_for_selector(".working", state="detached")
    found += violations(tab, "two maps")
    tab.click("#picture [aria-label='Remove Image']")
    tab.get_by_text("Now add a picture.").wait_for()
    found += violations(tab, "a file is missing")
    (tmp_path / "bad.jpg").write_bytes(b"this is no picture" * 99)
    give(tab, tmp_path / "bad.jpg", "picture")
    tab.get_by_text(re.compile("^bad.jpg ")).wait_for()
    found += violations(tab, "error")
    tab.close()
    assert found == []


def test_recording_from_camera_and_microphone(page):
    """Chromium's fake devices: a moving picture, and a beep every second."""
    page.click("#video [aria-label='Capture from camera']")
    page.get_by_text("Click to Access Webcam").click()
    record = page.locator("#video button.capture-button")
    record.wait_for()
    assert violations(page, "camera") == []
    record.click()
    page.wait_for_timeout(4000)  # what is recorded
    record.click()
    page.wait_for_selector("#maps img.map")
    page.get_by_role("tab", name="A picture and a sound").click()
    page.click("#sound [aria-label='Record audio']")
    page.click("#sound .record-button")
    page.wait_for_timeout(2500)
    page.click("#sound .stop-button")
    page.get_by_text("Now add a picture.").wait_for()


def test_a_closed_page_takes_its_files_with_it(server: str, browser, clip: Path, monkeypatch):
    gone, close = threading.Event(), SessionStore.close

    def noted(self, key):
        close(self, key)
        gone.set()

    root = Path(os.environ["GRADIO_TEMP_DIR"])
    tab = browser.new_page()
    tab.goto(server)
    give(tab, clip)
    tab.wait_for_selector("#maps img.map", timeout=PATIENCE)
    mine = {path for path in root.iterdir() if path.name.startswith("session-")}
    assert mine
    monkeypatch.setattr(SessionStore, "close", noted)
    tab.close()
    assert gone.wait(PATIENCE / 1000)
    assert not any(path.name == clip.name for path in root.rglob("*"))
