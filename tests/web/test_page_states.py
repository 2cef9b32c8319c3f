"""Every state of the page: on a phone, with a camera, and as axe sees it."""

import re
from pathlib import Path

import numpy as np
import pytest

from soundspot.media import clips as media
from web_media import BARKS
from web_pages import PHONE, give, located, settled, still, violations, visit, width


@pytest.fixture
def upright(tmp_path: Path) -> Path:
    frame = np.random.default_rng(0).integers(0, 255, (160, 90, 3), dtype=np.uint8)
    noise = np.random.default_rng(1).normal(0, 0.2, 32_000).astype(np.float32)
    media.write_video(tmp_path / "upright.mp4", [frame] * 20, noise, 10.0)
    return tmp_path / "upright.mp4"


def test_an_upright_map_stands_in_the_middle_of_its_place(page, upright: Path):
    """As the moving map does: with all of the room on one side, it would leave a hole."""
    located(page, upright)
    still(page)
    answer, place, picture = (
        page.locator(name).bounding_box() for name in ("#maps", "#maps .stack", "#maps img.map")
    )
    assert place["width"] == pytest.approx(answer["width"], abs=1)
    left = picture["x"] - place["x"]
    assert left > 50
    assert place["width"] - picture["width"] - left == pytest.approx(left, abs=1)
    assert picture["width"] / picture["height"] == pytest.approx(90 / 160, rel=0.02)
    words = page.locator("#maps figcaption").bounding_box()
    assert words["y"] >= picture["y"] + picture["height"] and words["x"] == place["x"]


def test_on_a_phone_the_answer_comes_into_sight(page, upright: Path):
    """Of an upright video, too."""
    page.set_viewport_size(PHONE)
    assert width(page) <= 390
    give(page, upright)
    in_sight = "e => { const b = e.getBoundingClientRect(); return b.top >= 0 && b.top < 500 }"
    page.wait_for_selector(".working")
    page.wait_for_function(f"({in_sight})(document.querySelector('#answer'))")
    page.wait_for_selector("#maps img.map")
    page.wait_for_function(f"({in_sight})(document.querySelector('#maps'))")
    still(page)
    assert page.locator("#maps .stack").bounding_box()["height"] <= 0.55 * PHONE["height"]
    assert page.locator("#video video").bounding_box()["height"] <= 0.4 * PHONE["height"]
    assert width(page) <= 390
    page.click("[data-example=bird]")
    page.wait_for_selector(".maps.two")
    assert width(page) <= 390


def test_on_a_phone_the_answer_is_found_again(page, clip: Path):
    """What was given may grow while the work is done, and push the answer out of sight."""
    page.set_viewport_size(PHONE)
    give(page, clip)
    page.wait_for_selector("#looking .working")
    page.evaluate("document.querySelector('#video').style.marginBottom = '900px'")
    page.evaluate("window.scrollTo({ top: 0, behavior: 'instant' })")
    page.wait_for_selector("#maps img.map")
    top = "document.querySelector('#answer').getBoundingClientRect().top"
    page.wait_for_function(f"{top} >= 0 && {top} < 100")


def test_on_a_phone_an_error_comes_into_sight(page, tmp_path: Path):
    page.set_viewport_size(PHONE)
    (tmp_path / "bad.mp4").write_bytes(b"this is no video" * 99)
    give(page, tmp_path / "bad.mp4")
    page.get_by_text(re.compile("^bad.mp4 is not a readable")).wait_for()
    in_sight = "document.querySelector('#answer .note.error').getBoundingClientRect()"
    page.wait_for_function(f"{in_sight}.top >= 0 && {in_sight}.top < 100")


def test_a_silent_video_gets_a_sentence_and_no_timeline(page, tmp_path: Path):
    frame = np.full((90, 160, 3), 99, np.uint8)
    media.write_video(tmp_path / "mute.mp4", [frame] * 20, np.zeros(32_000, np.float32), 10.0)
    give(page, tmp_path / "mute.mp4")
    page.get_by_text("mute.mp4 is silent from start to end: give another sound.").wait_for()
    assert not page.locator("#timeline").is_visible() and not page.locator("#at").is_visible()
    note = page.locator("#message .note")
    assert note.bounding_box()["height"] > 300  # it takes the place of the answer, and so does
    note.evaluate("e => { e.className = 'note hint'; }")  # what is said after a stop
    assert note.bounding_box()["height"] > 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(server: str, browser, clip: Path, tmp_path: Path, scheme: str):
    tab = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    visit(tab, server)
    tab.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    found = violations(tab, "empty")
    tab.get_by_role("tab", name="A picture and a sound").click()
    tab.get_by_text("Add a picture and a sound.").wait_for()
    found += violations(tab, "empty, the other tab")
    tab.get_by_role("tab", name="A video").click()
    give(tab, clip)
    tab.wait_for_selector("#making .working")
    found += violations(tab, "making")
    settled(tab)
    found += violations(tab, "moving")
    tab.locator("#timeline .events button").last.click()
    tab.wait_for_selector(".working")
    found += violations(tab, "looking at another moment")
    tab.wait_for_selector(".working", state="detached")
    tab.get_by_label("Compare with").click()
    found += violations(tab, "a list")
    tab.get_by_role("option", name="a sound of my own").click()
    tab.get_by_text("Add your own sound to compare with.").wait_for()
    found += violations(tab, "a sound of one's own")
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
    parts = ("#video", "#video .upload-container", "#video .source-selection")
    whole, camera, below = (page.locator(part).first.bounding_box() for part in parts)
    assert whole["y"] <= camera["y"] and camera["y"] + camera["height"] <= below["y"] + 1
    assert below["y"] + below["height"] <= whole["y"] + whole["height"]
    assert violations(page, "camera") == []
    record.click()
    page.wait_for_timeout(4000)  # what is recorded
    record.click()
    page.wait_for_selector("#maps img.map")
    recorded = "document.querySelector('#video video')"
    page.wait_for_function(f"{recorded}.duration < 60 && {recorded}.currentTime == 0")
    page.get_by_role("tab", name="A picture and a sound").click()
    page.click("#sound [aria-label='Record audio']")
    page.click("#sound .record-button")
    page.wait_for_timeout(2500)
    page.click("#sound .stop-button")
    page.get_by_text("Now add a picture.").wait_for()


def test_a_sound_of_ones_own_is_asked_for_beside_the_map(page, clip: Path, tmp_path: Path):
    """The answer so far stays, and it is no error that the sound has not come yet."""
    located(page, clip)
    settled(page)
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name="a sound of my own").click()
    page.get_by_text("Add your own sound to compare with.").wait_for()
    assert page.locator("#answer .note.error").count() == 0
    assert page.locator("#maps img.map").count() == 1
    media.write_flac(tmp_path / "mine.flac", BARKS)
    give(page, tmp_path / "mine.flac", "own")
    page.wait_for_selector(".maps.two")
    page.get_by_role("heading", name="mine.flac").first.wait_for()
    assert not page.get_by_text("Add your own sound to compare with.").is_visible()


def test_each_list_shows_all_of_what_is_chosen(page):
    for wide in (1280, PHONE["width"]):
        page.set_viewport_size({"width": wide, "height": 800})
        page.get_by_label("Compare with").click()
        page.get_by_role("option", name="a sound of my own").click()
        for label in ("Model", "Compare with"):
            field = page.get_by_label(label, exact=True)
            assert field.evaluate("e => e.scrollWidth <= e.clientWidth"), (label, wide)
        model, other = (
            page.get_by_label(name, exact=True).bounding_box() for name in ("Model", "Compare with")
        )
        assert model["x"] == other["x"] and model["y"] < other["y"]


def test_the_page_speaks_plainly_and_of_itself(page, server: str, browser):
    page.get_by_text("Drop a video here").wait_for()
    page.get_by_role("tab", name="A picture and a sound").click()
    page.get_by_text("Drop a picture here").wait_for()
    text = page.inner_text("body")
    assert "Drop a sound here" in text and "Upload" not in text
    assert "Nothing leaves this computer." in text
    assert f'Client("{server.rstrip("/")}"' in page.locator(".help pre").text_content()
    phone = browser.new_page(viewport=PHONE, has_touch=True, is_mobile=True)
    visit(phone, server)
    phone.get_by_text("Tap to choose a video").wait_for()
    phone.close()


def test_nothing_leaves_a_hole_on_a_phone(page, clip: Path):
    """Below the hint comes the end of the page; the place of the answer is taken while it works."""
    page.set_viewport_size(PHONE)
    hint, end = (page.locator(name).bounding_box() for name in (".note.empty", ".help"))
    assert end["y"] - hint["y"] - hint["height"] < 40
    located(page, clip)
    still(page)
    moment, strength = (page.locator(name).bounding_box() for name in ("#at input", ".strength"))
    assert moment["y"] + moment["height"] <= strength["y"]  # beside each other they would not fit
    assert strength["x"] + strength["width"] <= PHONE["width"] and moment["width"] > 80
