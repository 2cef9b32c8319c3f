"""The page in Firefox, driven over WebDriver BiDi."""

import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.weights, pytest.mark.slow]
PATIENCE = 120  # s, for a busy machine
FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")


class Tab:
    """One tab of Firefox."""

    def __init__(self, line: Any) -> None:
        self.line, self.numbers = line, itertools.count()
        self.ask("session.new", capabilities={})
        self.context = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def ask(self, method: str, **params: Any) -> Any:
        number = next(self.numbers)
        self.line.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := json.loads(self.line.recv(PATIENCE))).get("id") != number:
            pass
        assert answer["type"] == "success", answer
        return answer["result"]

    def evaluate(self, script: str) -> Any:
        where = {"context": self.context}
        return self.ask("script.evaluate", expression=script, target=where, awaitPromise=True)[
            "result"
        ]

    def wait(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.evaluate(condition)["value"]:
            assert time.monotonic() < end, self.evaluate("document.body.innerText")
            time.sleep(0.1)

    def give(self, *files: Path) -> None:
        place = self.evaluate("document.querySelector('#file')")
        element, names = {"sharedId": place["sharedId"]}, [str(file) for file in files]
        self.ask("input.setFiles", context=self.context, element=element, files=names)


@pytest.fixture
def tab(address: str, tmp_path: Path) -> Iterator[Tab]:
    if FIREFOX is None:
        pytest.skip("Firefox is not installed")
    client = pytest.importorskip("websockets.sync.client")
    command = [FIREFOX, "--headless", "--remote-debugging-port=0", "--profile", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        told = tmp_path / "WebDriverBiDiServer.json"
        end = time.monotonic() + PATIENCE
        while not (told.is_file() and (text := told.read_text())):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.1)
        place = json.loads(text)
        address_of = f"ws://{place['ws_host']}:{place['ws_port']}/session"
        with client.connect(address_of, max_size=None, proxy=None) as line:
            tab = Tab(line)
            tab.ask("browsingContext.navigate", context=tab.context, url=address, wait="complete")
            yield tab
    finally:
        process.kill()
        process.wait()


def test_the_example_a_photo_and_a_video(tab: Tab, media: Path):
    tab.wait("document.body.dataset.verdict === 'visible'")
    tab.give(media / "stored.png", media / "song.wav")
    tab.wait("document.body.dataset.mode === 'photo' && soundspot.shown.answer !== undefined")
    answer = (
        "(({map, side}) => map.indexOf(Math.max(...map)) % side / side)(soundspot.shown.answer)"
    )
    assert tab.evaluate(answer)["value"] < 0.5  # the bird
    tab.give(media / "phone.mp4")
    tab.wait("document.body.dataset.mode === 'video' && document.body.dataset.known === 'all'")
    assert tab.evaluate("soundspot.shown.events[0].name")["value"] == "Bird"
