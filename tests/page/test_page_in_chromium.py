"""What a visitor does and sees, with the real model."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from soundspot.inference.files import localize
from soundspot.inference.models import load
from soundspot.inference.static_page import MODEL

pytestmark = [pytest.mark.weights, pytest.mark.slow]
AXE = Path(__file__).parents[1] / "vendor" / "axe.min.js"


def give(tab, *files: Path, to: str = "file") -> None:
    tab.locator(f"#{to}").set_input_files([str(file) for file in files])


def answered(tab, verdict: str = "visible") -> None:
    tab.wait_for_selector(f"body[data-verdict='{verdict}']")


def sentence(tab) -> str:
    """What is wrong, in a sentence."""
    tab.wait_for_selector("body[data-state=failed]")
    return tab.inner_text("#status")


def peak(tab, answer: str = "soundspot.shown.answer") -> tuple[float, float]:
    """Where the map is hottest: down and along, 0..1."""
    side, place = tab.evaluate(
        f"(() => {{ const a = {answer}; return [a.side, a.map.indexOf(Math.max(...a.map))] }})()"
    )
    return (place // side + 0.5) / side, (place % side + 0.5) / side


def serious(tab) -> list[str]:
    """What axe finds serious or critical."""
    tab.evaluate(AXE.read_text("utf-8"))
    found = tab.evaluate("axe.run(document)")["violations"]
    return [
        f"{rule['id']}: {node['html'][:120]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("screen", ["desk", "phone"])
def test_the_example_is_answered_and_follows_the_sound(screen: str, request):
    tab = request.getfixturevalue(screen)
    tab.wait_for_selector("body[data-mode=example]")
    answered(tab)
    tab.wait_for_selector("body[data-known=all]")
    assert tab.evaluate("document.documentElement.scrollWidth") <= tab.viewport_size["width"]
    names = tab.eval_on_selector_all("#events button", "all => all.map(b => b.lastChild.data)")
    assert names == ["Bird", "Vehicle horn"]
    for name, down, along in (("Bird", 0, 0), ("Vehicle horn", 1, 1)):
        moment = f"soundspot.shown.moving.at({1.5 if name == 'Bird' else 4.5})"
        y, x = peak(tab, moment)
        assert (y > 0.5, x > 0.5) == (bool(down), bool(along)), name
        assert tab.evaluate(moment)["verdict"] == "visible"
    assert serious(tab) == []
    # A click on the timeline goes there.
    tab.click("#play")
    tab.click("#events li:last-child button")
    assert tab.evaluate("document.querySelector('#video').currentTime") > 2


def test_the_next_examples(desk):
    tab = desk
    tab.click("#example")
    tab.wait_for_selector("body[data-mode=example][data-known=all]")
    for time, side in ((1.5, "right"), (4.5, "left")):  # the guitar, then the clock
        _, x = peak(tab, f"soundspot.shown.moving.at({time})")
        assert x < 0.5 if side == "left" else x > 0.5
    tab.click("#example")
    tab.wait_for_selector("body[data-mode=photo] #second:not([hidden])")
    # One photo, two sounds: the bird's map lies on the left, the car's on the right.
    places = [peak(tab, f"soundspot.shown.answers[{k}]")[1] for k in (0, 1)]
    assert places[0] < 0.5 < places[1]
    tab.click("#example")  # and round again
    answered(tab)


def test_a_phones_video_with_sound(phone, media: Path):
    tab = phone
    give(tab, media / "phone.mp4")
    tab.wait_for_selector("body[data-mode=video][data-known=all]")
    assert tab.inner_text("#answer").startswith("Bird")
    box = tab.locator(".shape").first.bounding_box()
    assert box["height"] > box["width"]
    answer = tab.locator("#answer").bounding_box()
    assert answer["y"] + answer["height"] < tab.viewport_size["height"]  # in sight
    with tab.expect_download() as saved:
        tab.click("#json")
    facts = json.loads(Path(saved.value.path()).read_text("utf-8"))
    assert facts["events"][0]["name"] == "Bird"
    with tab.expect_download() as saved:
        tab.click("#save")
    assert Image.open(saved.value.path()).size[0] == 200


def test_the_best_seconds_as_a_clip(desk, media: Path):
    tab = desk
    give(tab, media / "phone.mp4")
    tab.wait_for_selector("body[data-mode=video][data-known=all]")
    with tab.expect_download() as saved:
        tab.click("#clip")
    assert Path(saved.value.path()).read_bytes()[:4] == b"\x1aE\xdf\xa3"  # WebM
    assert saved.value.suggested_filename == "phone-soundspot.webm"


def test_what_cannot_be_answered_is_said_in_a_sentence(desk, media: Path):
    tab = desk
    told = set()
    for name in ("broken.mp4", "mute.mp4", "silent.mp4", "song.wav"):
        give(tab, media / name)
        told.add(sentence(tab))
    assert len(told) == 4
    assert serious(tab) == []
    tab.click("#example")  # and the page goes on
    answered(tab)


def test_a_photo_and_two_sounds_agree_with_python(phone, media: Path):
    tab = phone
    give(tab, media / "stored.png", media / "song.wav")
    tab.wait_for_selector("body[data-mode=photo][data-verdict=visible]")
    give(tab, media / "horn.wav", to="sound")
    tab.wait_for_selector("#second:not([hidden])")
    assert serious(tab) == []
    ours = tab.evaluate("soundspot.shown.answers.map(a => ({...a, map: [...a.map], now: 0}))")
    model = load(MODEL, "cpu")
    for name, found in zip(("song", "horn"), ours, strict=True):
        expected = localize(media / "stored.png", media / f"{name}.wav", model=model)
        np.testing.assert_allclose(found["map"], expected.similarity.ravel(), atol=1e-3)
        assert found["threshold"] == pytest.approx(expected.threshold, abs=1e-3)
        assert (found["verdict"], found["caption"]) == (expected.verdict, expected.caption)
    assert (
        peak(tab, "soundspot.shown.answers[0]")[1]
        < 0.5
        < peak(tab, "soundspot.shown.answers[1]")[1]
    )


def test_camera_and_microphone(phone):
    tab = phone
    tab.click("#camera")
    tab.wait_for_selector("body[data-mode=live][data-verdict=visible]")
    assert peak(tab)[1] < 0.5  # the bird, which the microphone hears
    assert float(tab.inner_text("#rate").split()[0]) > 0
    assert serious(tab) == []
    tab.click("#stop")
    tab.wait_for_selector("body[data-mode=example]")


def test_a_camera_that_is_refused(refused_tab):
    tab = refused_tab
    tab.wait_for_selector("body[data-model=ready]")  # what loads may still say so until then
    tab.click("#camera")
    assert sentence(tab)


def test_offline_after_the_first_visit(visitor):
    tab = visitor.open(1280, 900, "light")
    tab.wait_for_selector("body[data-model=ready][data-offline=ready]")
    tab.context.set_offline(True)
    tab.reload()
    answered(tab)
    tab.context.close()
