"""Work the page in a browser: give files, wait, look at what is shown."""

import io
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

from soundspot.inference.models import DEFAULT_MODEL

PATIENCE = 60_000  # ms, for a busy machine; nothing waits so long that goes well
MODELS = (DEFAULT_MODEL, "sspl-v2")
PHONE = {"width": 390, "height": 844}
AXE = Path(__file__).parent / "vendor" / "axe.min.js"


def visit(page, address: str) -> None:
    """Open the page and wait for its script, which comes a moment after what it serves."""
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector("#show")
    page.wait_for_function("window.soundspot")


def give(page, path: Path, place: str = "video") -> None:
    page.locator(f"#{place} input[type=file]").first.set_input_files(str(path))


def located(page, clip: Path) -> None:
    give(page, clip)
    page.wait_for_selector("#maps img.map")


def settled(page) -> None:
    """Nothing is under way."""
    page.wait_for_selector("#moving video", state="attached")
    page.wait_for_selector(".working", state="detached")


def still(page) -> None:
    """The map of the moment is in front, and stays there: the moving map has come before."""
    settled(page)
    page.wait_for_selector("#moving video", state="visible")
    page.get_by_role("tab", name="This moment").click()
    page.wait_for_selector("#maps img.map", state="visible")


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


# Spinners never end; everything else is waited for.
FADED = """Promise.all(document.getAnimations()
    .filter(a => a.effect.getComputedTiming().iterations !== Infinity)
    .map(a => a.finished.catch(() => null)))"""


def violations(page, state: str) -> list[str]:
    """What axe finds serious or critical, once nothing fades in or out any more."""
    page.evaluate(FADED)
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document)")["violations"]
    return [
        f"{state}: {rule['id']}: {node['html'][:120]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def tab_to(page, wanted: str) -> None:
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate(wanted):
            return
    raise AssertionError(f"the Tab key never got to {wanted}")
