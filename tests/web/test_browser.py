"""The web page in headless Chromium: a real page, with a quick model."""

import os
import re
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest

from soundspot.media import clips as media
from soundspot.web.comparing import Question, ServedModels, answer_question
from soundspot.web.overlays import make_overlays
from soundspot.web.sessions import SessionStore
from web_media import Louder
from web_pages import (
    MODELS,
    PATIENCE,
    address_of_map,
    give,
    located,
    pixels,
    settled,
    still,
    tab_to,
    toasts,
    visit,
    wait_for_another_map,
)


def test_a_clip_gets_its_map_where_the_model_puts_it(page, clip: Path):
    assert "aeroplanes, birds, cars" in page.inner_text("body")
    located(page, clip)
    still(page)
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


def test_a_moment_by_keyboard_brings_its_map_to_the_front(page, clip: Path):
    """The moving map gives way, and falls silent; the moment may be the one that is shown."""
    located(page, clip)
    settled(page)
    still = page.locator("#maps img.map")
    back = page.get_by_role("tab", name="Moving map")
    moment = page.locator("#at input")
    for press in (
        lambda: (moment.fill("2.5"), moment.press("Enter")),
        lambda: moment.press("Enter"),
        lambda: page.locator("#timeline .wave").press("ArrowLeft"),
    ):
        back.click()
        still.wait_for(state="hidden")
        page.evaluate("document.querySelector('#moving video').currentTime = 0")
        page.evaluate("document.querySelector('#moving video').play()")
        press()
        still.wait_for(state="visible")
        page.wait_for_function("document.querySelector('#moving video').paused")
        page.wait_for_selector(".working", state="detached")
        assert page.evaluate("document.querySelector('#moving video').currentTime") < 2.9


@pytest.mark.parametrize("other", ["a siren", "the model sspl-v2"])
def test_two_maps_side_by_side(page, clip: Path, other: str):
    located(page, clip)
    still(page)
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name=other).click()
    page.wait_for_selector(".maps.two")
    answer = answer_question(ServedModels(MODELS), Question(media.probe(clip), compare=other))
    assert answer.difference in page.inner_text("body")
    left, right = (page.locator("#maps .stack").nth(k).bounding_box() for k in range(2))
    assert left["y"] == right["y"] and left["width"] == right["width"]
    assert left["x"] + left["width"] <= right["x"] <= left["x"] + left["width"] + 30
    assert page.locator("#maps .scale").count() == 1


def test_a_model_is_compared_with_others_only(page, clip: Path):
    located(page, clip)
    settled(page)
    page.get_by_label("Compare with").click()
    offered = page.get_by_role("option").all_inner_texts()
    assert [words.strip(" \n✓") for words in offered][4:] == [f"the model {MODELS[1]}"]
    page.get_by_role("option", name=f"the model {MODELS[1]}").click()
    page.wait_for_selector(".maps.two")
    page.get_by_label("Model", exact=True).click()
    page.get_by_role("option", name=MODELS[1], exact=True).click()
    page.wait_for_selector(".maps.two", state="detached")
    page.wait_for_selector("#maps img.map")
    assert page.get_by_label("Compare with").input_value() == "nothing"
    assert page.locator("#answer .note.error").count() == 0


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
    still(page)
    page.locator(".strength input").fill("30")
    opacity = "getComputedStyle(document.querySelector('#maps img.map')).opacity"
    page.wait_for_function(f"{opacity} == '0.3'")


def test_a_wrong_file_is_answered_in_one_sentence(page, clip: Path, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("no video")
    give(page, tmp_path / "notes.txt")
    page.get_by_text("notes.txt is not a video.").wait_for()
    (tmp_path / "unknown").write_text("no type at all")
    give(page, tmp_path / "unknown")
    page.get_by_text("unknown is not a video, as far as this browser can tell.").wait_for()
    (tmp_path / "bad.mp4").write_bytes(b"this is no video" * 99)
    give(page, tmp_path / "bad.mp4")
    page.get_by_text(re.compile("^bad.mp4 is not a readable")).wait_for()
    assert page.locator("#complaint").inner_text() == ""
    page.wait_for_timeout(500)  # a toast would need some time, too
    assert toasts(page) == []
    (tmp_path / "bad.jpg").write_bytes(b"this is no picture" * 99)
    page.get_by_role("tab", name="A picture and a sound").click()
    page.get_by_text("Add a picture and a sound.").wait_for()
    give(page, clip, "sound")
    page.get_by_text("dog.mp4 is a video, not a sound.").wait_for()
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


def test_a_closed_page_takes_its_files_with_it(server: str, browser, clip: Path, monkeypatch):
    gone, close = threading.Event(), SessionStore.close

    def noted(self, key):
        close(self, key)
        gone.set()

    root = Path(os.environ["GRADIO_TEMP_DIR"])
    tab = browser.new_page()
    visit(tab, server)
    located(tab, clip)
    mine = {path for path in root.iterdir() if path.name.startswith("session-")}
    assert mine
    monkeypatch.setattr(SessionStore, "close", noted)
    tab.close()
    assert gone.wait(PATIENCE / 1000)
    assert not any(path.name == clip.name for path in root.rglob("*"))
