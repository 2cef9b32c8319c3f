"""The server without a browser: programs, uploads, what cannot be read, the command."""

import os
import re
import socket
import sys
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, UnidentifiedImageError

from soundspot import cli
from soundspot.common.errors import SoundspotError
from soundspot.inference.localizer import Localizer
from soundspot.inference.models import DEFAULT_MODEL
from soundspot.media import clips as media
from soundspot.web.comparing import ServedModels
from soundspot.web.markup import CLIENT
from soundspot.web.sessions import SessionStore
from web_media import BARKS, FRAME, write_clip

DOCS = Path(__file__).parents[2] / "docs" / "web.md"


def default_model() -> Localizer:
    """The one that the server has loaded."""
    return ServedModels((DEFAULT_MODEL,)).get(DEFAULT_MODEL)


@pytest.fixture(scope="module")
def server():
    module = pytest.importorskip("soundspot.web.server", reason="gradio is not installed")
    try:
        default_model()
    except SoundspotError as error:
        pytest.skip(f"no encoder weights: {error}")
    with module.serving([DEFAULT_MODEL, "untrained-sspl"], upload_mb=1, seconds=5.0) as url:
        yield url


@pytest.fixture
def client(server: str):
    from gradio_client import Client

    client = Client(server, verbose=False)
    yield client
    client.close()


def locate(client, file: Path, **others):
    from gradio_client import handle_file

    files = {key: handle_file(str(others.pop(key))) for key in ("sound", "own") if key in others}
    asked = {"sound": None, "at": None, "model": None, "compare": "nothing", "own": None}
    return client.predict(
        file=handle_file(str(file)), **{**asked, **files, **others}, api_name="/localize"
    )


@pytest.mark.weights
def test_the_example_for_programs_runs(server: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_clip(Path("clip.mp4"))
    (block,) = re.findall(r"^```python\n(.*?)^```", DOCS.read_text("utf-8"), re.M | re.S)
    assert block == CLIENT and "http://127.0.0.1:7860" in block
    assert len(block.splitlines()) <= 10
    exec(block.replace("http://127.0.0.1:7860", server), {})
    first, second, picture = (capsys.readouterr().out.splitlines())[-3:]
    at = float(first.removeprefix("this sound ").split()[0])
    expected = default_model().localize_file("clip.mp4", at=at)
    assert float(first.split()[3]) == pytest.approx(expected.score, abs=1e-4)
    assert second.startswith("a siren")
    assert Path(picture).name == "clip-map.png"
    height = Image.open(picture).height
    assert height == 2 * expected.picture().height


@pytest.mark.weights
def test_programs_may_compare_sounds_of_their_own_and_models(client, tmp_path: Path):
    media.write_jpeg(tmp_path / "p.jpg", FRAME)
    media.write_flac(tmp_path / "s.flac", BARKS)
    tone = 0.3 * np.sin(2 * np.pi * 700 * np.arange(48_000) / 16_000)
    media.write_flac(tmp_path / "own.flac", tone.astype(np.float32))
    photo, sounds = tmp_path / "p.jpg", {"sound": tmp_path / "s.flac"}
    own = {"own": tmp_path / "own.flac", "compare": "a sound of my own"}
    numbers, _ = locate(client, photo, **sounds, **own)
    assert [row["name"] for row in numbers["maps"]] == ["this sound", "own.flac"]
    numbers, _ = locate(client, photo, **sounds, compare="the model untrained-sspl")
    assert [row["trained"] for row in numbers["maps"]] == [True, False]


@pytest.mark.weights
def test_bad_input_is_answered_in_a_sentence(client, tmp_path: Path):
    from gradio_client.exceptions import AppError

    good = write_clip(tmp_path / "good.mp4")
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "bad.mp4").write_bytes(b"no video" * 99)
    mute = write_clip(tmp_path / "mute.mp4", sound=None)
    silent = write_clip(tmp_path / "silent.mp4", sound=0 * BARKS)
    long = tmp_path / "long.flac"
    media.write_flac(long, np.tile(BARKS, 3))
    cases = [
        (tmp_path / "empty.mp4", {}, "^'?empty.mp4 is empty"),
        (tmp_path / "bad.mp4", {}, "^'?bad.mp4 "),
        (mute, {}, "mute.mp4 is a video without sound"),
        (silent, {}, "silent.mp4 is silent from start to end"),
        (good, {"sound": long}, "long.flac is 6 s long, but this page accepts up to 5 s"),
        (good, {"at": 9}, "it has no moment 9.0 s"),
        (good, {"model": "/etc/passwd"}, "No model '/etc/passwd' here"),
        (good, {"compare": "a sound of my own"}, "Add your own sound"),
    ]
    for file, others, sentence in cases:
        with pytest.raises(AppError, match=sentence) as caught:
            locate(client, file, **others)
        assert "Traceback" not in str(caught.value) and "soundspot-web" not in str(caught.value)


@pytest.mark.weights
def test_equal_uploads_are_two_files_and_too_large_ones_none(server: str, tmp_path: Path):
    address = f"{server}gradio_api/upload"
    files = {"files": ("a.mp4", b"same")}
    first, second = (httpx.post(address, files=files).json()[0] for _ in range(2))
    assert first != second and Path(second).read_bytes() == b"same"
    root = Path(second).parents[1]
    assert {path.name.partition("-")[0] for path in root.iterdir()} <= {"upload", "session"}
    answer = httpx.post(address, files={"files": ("b.mp4", b"x" * 1_500_000)})
    assert answer.status_code == 413 and answer.text == "this page accepts files of up to 1 MB"


@pytest.mark.weights
def test_nothing_of_the_server_can_be_read(server: str, tmp_path: Path):
    secret = tmp_path / "secret.mp4"
    write_clip(secret)
    for path in (secret, Path(__file__), Path("/etc/hostname"), Path("pyproject.toml").resolve()):
        assert httpx.get(f"{server}gradio_api/file={path}").status_code == 403
    data = {"path": str(secret), "meta": {"_type": "gradio.FileData"}}
    call = httpx.post(
        f"{server}gradio_api/call/localize",
        json={"data": [data, None, None, DEFAULT_MODEL, "nothing", None]},
    )
    answer = httpx.get(f"{server}gradio_api/call/localize/{call.json()['event_id']}", timeout=60)
    assert "event: error" in answer.text and "complete" not in answer.text


@pytest.mark.weights
def test_the_server_is_no_proxy(server: str, monkeypatch):
    from gradio import processing_utils, routes

    asked = []

    async def fetch(address, *_):
        asked.append(address)

    monkeypatch.setattr(routes, "secure_url_stream_response", fetch)
    monkeypatch.setattr(processing_utils, "async_ssrf_protected_download", fetch)
    for route in ("file/", "file=", "proxy="):
        answer = httpx.get(f"{server}gradio_api/{route}http://example.org/x")
        assert answer.status_code in (403, 404)
    data = [{"path": "http://example.org/x.mp4", "meta": {"_type": "gradio.FileData"}}]
    call = httpx.post(f"{server}gradio_api/call/localize", json={"data": [*data, *[None] * 5]})
    assert call.status_code == 400 and asked == []


@pytest.mark.weights
def test_nobody_passes_the_queue(server: str, tmp_path: Path):
    """Gradio would run a function at once for whoever calls it by its other address."""
    answer = httpx.post(f"{server}gradio_api/run/localize", json={"data": [None] * 6})
    assert answer.status_code == 404


@pytest.mark.weights
def test_postscript_in_disguise_is_no_picture(client, tmp_path: Path, monkeypatch):
    from gradio_client.exceptions import AppError

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_: pytest.fail("ran Ghostscript"))
    photo, sound = tmp_path / "photo.jpg", tmp_path / "s.flac"
    photo.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%EOF\n")
    media.write_flac(sound, BARKS)
    with pytest.raises(AppError, match="photo.jpg is not a readable image"):
        locate(client, photo, sound=sound)
    with pytest.raises(UnidentifiedImageError):
        Image.open(photo)  # as gradio would do it


@pytest.mark.weights
def test_a_login_is_asked_of_browsers_and_programs(server: str, tmp_path: Path, monkeypatch):
    from gradio_client import Client

    from soundspot.web import login
    from soundspot.web.server import serving

    monkeypatch.setattr(login, "N", 2)
    login.write_password(tmp_path / "secret", "correct horse")
    who = login.read_login(f"anna:{tmp_path / 'secret'}")
    clip = write_clip(tmp_path / "a.mp4")
    with serving([DEFAULT_MODEL], login=who) as url:
        for path in ("", "config", "gradio_api/info", "gradio_api/file=/etc/hostname"):
            assert httpx.get(url + path).status_code == 401
            assert httpx.get(url + path, auth=("anna", "wrong horse")).status_code == 401
        assert httpx.get(url, auth=("anna", "correct horse")).status_code == 200
        header = httpx.BasicAuth("anna", "correct horse")._auth_header
        client = Client(url, headers={"Authorization": header}, verbose=False)
        numbers, _ = locate(client, clip)
        assert len(numbers["maps"]) == 1
        client.close()


@pytest.mark.weights
def test_a_client_takes_its_files_with_it(server: str, tmp_path: Path, monkeypatch):
    """The end of the heartbeat is the end of the session."""
    closed, close = threading.Event(), SessionStore.close

    def noted(self, key):
        close(self, key)
        if key == "visitor":
            closed.set()

    monkeypatch.setattr(SessionStore, "close", noted)
    api, before = f"{server}gradio_api", set(_root().rglob("*"))
    file = write_clip(tmp_path / "gone.mp4").read_bytes()
    with httpx.stream("GET", f"{api}/heartbeat/visitor", timeout=60) as beat:
        beats = beat.iter_text()  # the connection lives as long as this does
        assert next(beats).startswith("data: ALIVE")
        (path,) = httpx.post(f"{api}/upload", files={"files": ("gone.mp4", file)}).json()
        data = {"path": path, "meta": {"_type": "gradio.FileData"}}
        call = httpx.post(
            f"{api}/call/localize",
            json={"data": [data, *[None] * 5], "session_hash": "visitor"},
        )
        event = call.json()["event_id"]
        answer = httpx.get(f"{api}/call/localize/{event}", timeout=60)
        assert "event: complete" in answer.text
        assert Path(path).exists() and not closed.is_set()
    assert closed.wait(30)
    assert set(_root().rglob("*")) <= before


def _root() -> Path:
    return Path(os.environ["GRADIO_TEMP_DIR"])


@pytest.mark.weights
def test_a_port_that_is_taken(server: str):
    from soundspot.web.server import serving

    port = httpx.URL(server).port
    with (
        pytest.raises(
            SoundspotError, match=f"cannot listen on 127.0.0.1:{port}: the port is taken"
        ),
        serving(port=port),
    ):
        pass
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass  # the first one still answers


def test_the_command_says_what_is_wrong(capsys, monkeypatch):
    with socket.socket() as free:  # the default port may be taken, by another test for one
        free.bind(("127.0.0.1", 0))
        port = f"--port={free.getsockname()[1]}"
    assert cli.main(["serve", port, "--max-seconds", "0"]) == 2
    assert "a limit above 0 for seconds" in capsys.readouterr().err
    assert cli.main(["serve", port, "--model", "untraned-sspl"]) == 2
    assert "no model 'untraned-sspl': did you mean 'untrained-sspl'" in capsys.readouterr().err
    for name in [name for name in sys.modules if name.startswith(("gradio", "soundspot.web"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert cli.main(["serve", port]) == 2
    assert "pip install 'soundspot[demo]'" in capsys.readouterr().err
