"""The page with its real model, in headless Chromium."""

import shutil
import threading
import wave
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from made_files import load_script
from soundspot.inference import static_page
from soundspot.media.clips import write_video

PAGE = Path(__file__).parents[2] / "page"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
PATIENCE = 120_000  # ms, for a busy machine; nothing waits so long that goes well


@pytest.fixture(scope="session")
def example():
    """How the example is drawn."""
    return load_script(PAGE / "build_example.py")


@pytest.fixture(scope="session")
def address(example) -> Iterator[str]:
    if not (static_page.BUILT / "ort").is_dir():
        pytest.skip("the page is not built: run `make page`")
    pytest.importorskip("onnxscript")
    load_script(PAGE / "build.py").copy_sources()
    server = static_page.open_server("127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def playwright():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    tools = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with tools.sync_playwright() as tool:
        yield tool


@pytest.fixture(scope="module")  # its pages go on playing
def browser(playwright, media: Path):
    """Its camera sees the example's picture, its microphone hears the bird."""
    devices = (
        *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
        f"--use-file-for-fake-video-capture={media / 'scene.mjpeg'}",
        f"--use-file-for-fake-audio-capture={media / 'song.wav'}",
    )
    launched = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *devices])
    yield launched
    launched.close()


@pytest.fixture
def refused_tab(playwright, address: str):
    """The page in a browser that denies whatever it asks permission for."""
    flags = [*FLAGS, "--deny-permission-prompts"]
    launched = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
    tab = launched.new_page()
    tab.set_default_timeout(PATIENCE)
    tab.goto(address)
    yield tab
    launched.close()


class Visitor:
    """Pages in one browser; whatever they do, no request leaves it and no script fails."""

    def __init__(self, browser, address: str) -> None:
        self.browser, self.address = browser, address
        self.asked: list[str] = []
        self.failed: list[str] = []

    def open(self, width: int, height: int, scheme: str):
        """A page of a new visitor."""
        size = {"width": width, "height": height}
        context = self.browser.new_context(viewport=size, color_scheme=scheme)
        context.on("request", lambda request: self.asked.append(request.url))
        tab = context.new_page()
        tab.set_default_timeout(PATIENCE)
        tab.on("pageerror", lambda error: self.failed.append(str(error)))
        tab.goto(self.address)
        return tab

    def check(self) -> None:
        ours = (self.address, "data:", "blob:")
        assert [url for url in self.asked if not url.startswith(ours)] == []
        assert self.failed == []


@pytest.fixture(scope="module")
def visitor(browser, address: str) -> Iterator[Visitor]:
    found = Visitor(browser, address)
    yield found
    assert found.asked
    found.check()


@pytest.fixture(scope="module")
def opened_phone(visitor: Visitor):
    return visitor.open(390, 844, "light")


@pytest.fixture(scope="module")
def opened_desk(visitor: Visitor):
    return visitor.open(1280, 900, "dark")


@pytest.fixture
def phone(visitor: Visitor, opened_phone):
    """One page on a phone for all tests, which come and go on it as a visitor does."""
    yield opened_phone
    visitor.check()


@pytest.fixture
def desk(visitor: Visitor, opened_desk):
    """The same on a wide dark screen."""
    yield opened_desk
    visitor.check()


def write_wav(path: Path, sound: np.ndarray) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes((sound * 32_767).astype(np.int16).tobytes())


@pytest.fixture(scope="session")
def media(tmp_path_factory, example) -> Path:
    """Files to give to the page, all made here."""
    folder = tmp_path_factory.mktemp("media")
    grain = example.draw_grain(np.random.default_rng(1))
    backdrop = example.draw_backdrop(np.random.default_rng(3))
    frame = example.draw_scene(1.5, backdrop, grain)
    song = example.sing(3.0, np.random.default_rng(1)).astype(np.float32)
    horn = example.honk(3.0).astype(np.float32)
    Image.fromarray(frame).save(folder / "scene.png")
    stored = np.asarray(Image.fromarray(frame).resize((256, 256)))
    Image.fromarray(stored).save(folder / "stored.png")
    write_wav(folder / "song.wav", song)
    write_wav(folder / "horn.wav", horn)
    # A phone's video: the bird's half of the scene, upright.
    write_video(folder / "phone.mp4", [np.ascontiguousarray(frame[:, :200])] * 24, song, 12.0)
    write_video(folder / "silent.mp4", [frame] * 6, np.zeros(16_000, np.float32), 6.0)
    (folder / "broken.mp4").write_bytes(b"\0\0\0\x18ftypisom" + bytes(range(256)) * 40)
    write_video(folder / "mute.mp4", [frame] * 6, None, 6.0)
    with av.open(str(folder / "scene.mjpeg"), "w", format="mjpeg") as file:
        stream = file.add_stream("mjpeg", 10)
        stream.width, stream.height, stream.pix_fmt = 480, 360, "yuvj420p"
        for _ in range(3):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame).reformat(format="yuvj420p")))
        file.mux(stream.encode())
    return folder
