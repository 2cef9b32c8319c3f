"""The web page without a browser: files of visitors, limits, the guard, the work, programs."""

import asyncio
import json
import os
import re
import shutil
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from brightness import brightness_localizer
from soundspot import cli
from soundspot.common.errors import SoundspotError
from soundspot.inference.localizer import DEFAULT_MODEL, Localizer
from soundspot.inference.result import Localization
from soundspot.media import clips as media
from soundspot.web import page, work
from soundspot.web.guard import BODY, BUSY, Guard, is_outside, names_outside
from soundspot.web.limits import Limits, check
from soundspot.web.store import Store
from soundspot.web.work import Answer, Drawing, Models, Question, Stopped

DOCS = Path(__file__).parents[2] / "docs" / "web.md"
FRAME = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
BARKS = (
    np.random.default_rng(0).normal(0, 0.2, 32_000) * np.exp(-(np.arange(32_000) % 8_000) / 900)
).astype(np.float32)


def clip(path: Path, frame: np.ndarray = FRAME, sound: np.ndarray | None = BARKS) -> Path:
    media.write_video(path, [frame] * 20, sound, 10.0)
    return path


def finding(similarity: list[list[float]], score: float = 0.5) -> Localization:
    s = np.array(similarity, np.float32)
    return Localization(
        map=np.kron(s, np.ones((5, 5), np.float32)),
        similarity=s,
        box=None,
        score=score,
        labels=[("Dog <b>", 0.25)],
        model="m",
        trained=True,
        frame=np.zeros((5 * s.shape[0], 5 * s.shape[1], 3), np.uint8),
        waveform=np.zeros(48_000, np.float32),
    )


# The visitors' files


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock):
    found = Store(Limits(visitors=2, kept=3, disk_mb=201), clock)
    yield found
    found.clear()


def upload(store: Store, name: str = "a.mp4", size: int = 7) -> Path:
    """What gradio and the guard do with an upload."""
    arrived = store.root / "hash" / name
    arrived.parent.mkdir(exist_ok=True)
    arrived.write_bytes(b"x" * size)
    place = store.issue(arrived)
    arrived.unlink()
    return place


def test_an_upload_belongs_to_who_uses_it_first(store: Store):
    path = upload(store)
    mine, other = store.session("mine"), store.session("other")
    assert store.claim(mine, path).read_bytes() == b"x" * 7
    assert store.claim(mine, path) == path  # again and again
    with pytest.raises(SoundspotError, match="the upload a.mp4 is no longer here"):
        store.claim(other, path)
    with pytest.raises(SoundspotError, match="no longer here"):
        store.claim(mine, Path("/etc/passwd"))


def test_a_session_takes_its_files_with_it(store: Store):
    mine, other = store.session("mine"), store.session("other")
    gone, stays = store.claim(mine, upload(store)), store.claim(other, upload(store))
    result = store.place(mine, "map.jpg")
    result.write_bytes(b"y")
    store.close("mine")
    assert not gone.parent.exists() and not mine.folder.exists() and mine.stop.is_set()
    assert stays.exists()
    store.clear()
    assert not store.root.exists()


def test_the_oldest_files_go_first(store: Store):
    mine = store.session("mine")
    uploads = [store.claim(mine, upload(store, f"{k}.mp4")) for k in range(3)]
    store.claim(mine, uploads[0])  # used again
    store.claim(mine, upload(store, "new.mp4"))
    assert [path.exists() for path in uploads] == [True, False, True]
    results = [store.place(mine, "m.jpg") for _ in range(4)]
    assert [path.parent.exists() for path in results] == [False, True, True, True]


def test_what_is_forgotten_is_swept(store: Store, clock: Clock):
    forgotten, mine = upload(store), store.session("mine")
    clock.now = 601.0
    store.session("other")
    assert not forgotten.exists() and mine.folder.exists()
    clock.now = 3601.5
    store.sweep()
    assert not mine.folder.exists() and store.session("other").folder.exists()


def test_programs_make_room_for_visitors_but_open_pages_do_not(store: Store, clock: Clock):
    first = store.session("program")
    clock.now = 1.0
    second = store.session("program 2")
    store.session("program 3")
    assert not first.folder.exists() and second.folder.exists()
    with store.watched("page"), store.watched("page 2"):
        folder = store.session("page").folder
        store.session("page 2")
        with pytest.raises(SoundspotError, match="2 visitors are here, and there is no room"):
            store.session("page 3")
        assert folder.exists()
    assert not folder.exists()  # the page was closed


def test_the_disk_is_not_filled(store: Store):
    assert store.has_room()
    upload(store, size=1_000_001)
    assert not store.has_room()


def test_room_is_counted_while_others_leave(store: Store, monkeypatch):
    """Folders and files may vanish between the look at a folder and the look into it."""
    paths = [upload(store) for _ in range(2)]
    walk = os.walk

    def vanishing(root):
        for found in walk(root):
            shutil.rmtree(paths[0].parent, ignore_errors=True)
            paths[1].unlink(missing_ok=True)
            yield found

    monkeypatch.setattr(os, "walk", vanishing)
    assert store.has_room()


def test_limits(tmp_path: Path):
    path = clip(tmp_path / "a.mp4")
    assert check(path, Limits()).kind == "video"
    with pytest.raises(SoundspotError, match="a.mp4 is 2 s long; this page takes up to 1.5 s"):
        check(path, Limits(seconds=1.5))
    with pytest.raises(SoundspotError, match="64 x 48 pixels large; .* up to 0.003 megapixels"):
        check(path, Limits(megapixels=0.003))
    with pytest.raises(SoundspotError, match="a limit above 0 for seconds, not nan"):
        Limits(seconds=float("nan"))


# The guard


async def _inner(scope, receive, send):
    """Says what it was asked; the path /full is gradio's full queue."""
    message = await receive()
    status = 503 if scope["path"] == "/full" else 200
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def ask(store: Store, method: str, path: str, body: bytes = b"") -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(Guard(_inner, store))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path, content=body)

    return asyncio.run(go())


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=https://example.org/a.png",
        "/gradio_api/file=HTTP:/example.org",
        "/gradio_api/proxy=https://example.org",
    ],
)
def test_the_server_fetches_nothing(store: Store, path: str):
    assert ask(store, "GET", path).status_code == 403


def test_calls_name_uploads_only(store: Store):
    good = json.dumps({"data": [{"path": "/tmp/a.mp4", "url": "http://here/a.mp4"}]}).encode()
    answer = ask(store, "POST", "/queue/join", good)
    assert answer.status_code == 200 and answer.content == good  # the body arrives whole
    bad = json.dumps({"data": [[{"path": "https://example.org/a.mp4"}]]}).encode()
    answer = ask(store, "POST", "/queue/join", bad)
    assert answer.status_code == 400 and "uploaded files only" in answer.json()["detail"]
    assert ask(store, "POST", "/queue/join", b"x" * (BODY + 1)).status_code == 413
    assert names_outside(b"[" * 100_000) and not names_outside(b"{")
    assert is_outside("ftp://a") and is_outside("//a") and not is_outside("/tmp/http.mp4")


def test_a_full_queue_is_explained(store: Store):
    answer = ask(store, "POST", "/full", b"{}")
    assert answer.status_code == 503 and answer.json()["detail"] == BUSY


def test_every_answer_forbids_the_browser_to_ask_elsewhere(store: Store):
    for answer in (ask(store, "GET", "/"), ask(store, "GET", "/file=http://a")):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self' data: blob:;") and "http" not in policy


# The work


def test_how_different_two_maps_are():
    rising, falling = finding([[0, 1, 2]]), finding([[2, 1, 0]])
    names = ("this sound", "a siren")
    assert Answer((rising, falling), names).correlation == pytest.approx(-1)
    line = work.difference(Answer((rising, falling), names))
    assert line.startswith("The two maps correlate by -1.00: the other sound gives quite another")
    close = finding([[0, 1, 1]])  # covariance 1/3 over deviations sqrt(2/3) and sqrt(2)/3
    line = work.difference(Answer((rising, close), names, same_scale=False))
    assert line.startswith("The two maps correlate by 0.87: the other model changes the map")
    assert "hardly changes" in work.difference(Answer((rising, rising), names))
    flat = Answer((rising, finding([[1, 1, 1]])), names)
    assert flat.correlation is None and "flat" in work.difference(flat)
    assert work.difference(Answer((rising,), names[:1])) == ""


def test_two_sounds_share_a_scale_and_two_models_do_not():
    loud, faint = finding([[0.0, 0.8]], 0.8), finding([[0.0, 0.2]], 0.2)
    drawn = work.drawing(Answer((loud, faint), ("a", "b")))
    assert drawn.heats[0].max() == pytest.approx(1) and drawn.heats[1].max() == pytest.approx(0.25)
    assert drawn.boxes[0] is not None and drawn.boxes[1] is None
    drawn = work.drawing(Answer((loud, faint), ("a", "b"), same_scale=False))
    assert drawn.heats[1].max() == pytest.approx(1)


def test_a_drawing_is_kept_and_drawn_again(tmp_path: Path):
    heat = np.zeros((5, 7), np.float32)
    heat[1:3, 2:5] = 1
    frame = np.full((5, 7, 3), 100, np.uint8)
    drawn = Drawing(frame, (heat, 0 * heat), ((2, 1, 5, 3), None), (True, True))
    drawn.save(tmp_path / "d.npz")
    again = Drawing.read(tmp_path / "d.npz")
    assert again.boxes == ((2, 1, 5, 3), None) and again.trained == (True, True)
    for one, other in zip(drawn.pictures(0.7), again.pictures(0.7), strict=True):
        np.testing.assert_array_equal(one, other)
    strong, weak = (drawn.pictures(strength)[1] for strength in (1.0, 0.0))
    np.testing.assert_array_equal(strong, weak)  # no heat, no difference
    assert (drawn.pictures(1.0)[0] != drawn.pictures(0.0)[0]).any()


def test_large_pictures_are_drawn_small():
    found = finding([[0, 1, 2]])
    frame, full = np.zeros((500, 1940, 3), np.uint8), np.ones((500, 1940), np.float32)
    large = replace(found, frame=frame, map=full)
    assert work.drawing(Answer((large,), ("a",))).frame.shape == (247, 960, 3)


def test_the_waveform_shows_where_it_is_loud(tmp_path: Path):
    sound = np.zeros(48_000, np.float32)
    sound[24_000:] = np.tile(np.array([-0.25, 0.5], np.float32), 12_000)
    media.write_flac(tmp_path / "s.flac", sound)
    columns = work.waveform(tmp_path / "s.flac", 3.0)
    assert columns.shape == (work.COLUMNS, 2)
    np.testing.assert_allclose(columns[: work.COLUMNS // 2], 0)
    np.testing.assert_allclose(columns[work.COLUMNS // 2 :], [[-0.25, 0.5]] * 120, atol=1e-4)


def test_only_models_that_are_served_are_loaded():
    models = Models((DEFAULT_MODEL,))
    with pytest.raises(SoundspotError, match="no model '/etc/passwd' here"):
        models.get("/etc/passwd")
    assert models.comparisons() == ["nothing", "a siren", "a car horn", "a sound of my own"]
    assert Models(("a", "b")).comparisons()[-2:] == ["the model a", "the model b"]
    with pytest.raises(SoundspotError, match="cannot compare with 'a sirene': did you mean"):
        work.answer(models, Question(Path("x.mp4"), compare="a sirene"))
    assert all(not name.startswith("untrained") for name in work.trained_models())


def test_a_video_stops_when_nobody_wants_it(tmp_path: Path, monkeypatch):
    """And at the limit, should the file be longer than it said."""
    question = Question(clip(tmp_path / "a.mp4"))
    shares = []

    def walk(localizer, path, out, *, audio, note):
        for k in range(5):
            note(work.VideoMoment(k * 0.25, silent=True))

    monkeypatch.setattr(work, "render_video", walk)
    stop, model = threading.Event(), brightness_localizer()
    work.moving(model, question, tmp_path / "b.mp4", Limits(), stop, shares.append)
    assert shares == [1 / 8, 2 / 8, 3 / 8, 4 / 8, 5 / 8]  # 2 s have 8 maps
    with pytest.raises(SoundspotError, match="a.mp4 is longer than the 0.5 s"):
        work.moving(model, question, tmp_path / "b.mp4", Limits(seconds=0.5), stop, shares.append)
    stop.set()
    with pytest.raises(Stopped, match="no video was made"):
        work.moving(model, question, tmp_path / "b.mp4", Limits(), stop, shares.append)


def test_what_visitors_write_is_no_html():
    assert page.error("a<b>.mp4 is empty") == (
        '<div class="note error" role="alert">a&lt;b&gt;.mp4 is empty.</div>'
    )
    assert page.hint("now wait!") == '<div class="note hint" role="status">Now wait!</div>'
    shown = page.finding("<i>.wav", finding([[0, 1]]))
    assert "&lt;i&gt;.wav" in shown and "Dog &lt;b&gt;" in shown and "width:25%" in shown


def test_the_waveform_marks_what_is_heard():
    columns = np.array([[-0.5, 0.5], [0, 0]], np.float32)
    svg = page.wave(columns, 12.0, 6.0)
    assert 'x="375.0" y="0" width="250.0"' in svg  # 4.5 to 7.5 s of 12
    assert "M500.0 0V64" in svg and "M0.0 0.0h500.0v64.0" in svg
    assert 'x="0.0" y="0" width="1000.0"' in page.wave(columns, 2.0, 1.0)  # all of a short one


# The server


def default_model() -> Localizer:
    """The one that the server has loaded."""
    return Models((DEFAULT_MODEL,)).get(DEFAULT_MODEL)


@pytest.fixture(scope="module")
def server():
    app = pytest.importorskip("soundspot.web.app", reason="gradio is not installed")
    try:
        default_model()
    except SoundspotError as error:
        pytest.skip(f"no encoder weights: {error}")
    with app.serving([DEFAULT_MODEL, "untrained-sspl"], upload_mb=1, seconds=5.0) as url:
        yield url


@pytest.fixture
def client(server: str):
    from gradio_client import Client

    found = Client(server, verbose=False)
    yield found
    found.close()


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
    clip(Path("clip.mp4"))
    (block,) = re.findall(r"^```python\n(.*?)^```", DOCS.read_text("utf-8"), re.M | re.S)
    assert "http://127.0.0.1:7860" in block
    exec(block.replace("http://127.0.0.1:7860", server), {})
    score, correlation, picture = (capsys.readouterr().out.splitlines())[-3:]
    expected = default_model().localize_file("clip.mp4")
    assert float(score.split()[0]) == pytest.approx(expected.score, abs=1e-4)
    assert -1 <= float(correlation) <= 1
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
    assert [one["name"] for one in numbers["maps"]] == ["this sound", "own.flac"]
    numbers, _ = locate(client, photo, **sounds, compare="the model untrained-sspl")
    assert [one["trained"] for one in numbers["maps"]] == [True, False]


@pytest.mark.weights
def test_bad_input_is_answered_in_a_sentence(client, tmp_path: Path):
    from gradio_client.exceptions import AppError

    good = clip(tmp_path / "good.mp4")
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "bad.mp4").write_bytes(b"no video" * 99)
    mute = clip(tmp_path / "mute.mp4", sound=None)
    silent = clip(tmp_path / "silent.mp4", sound=0 * BARKS)
    long = tmp_path / "long.flac"
    media.write_flac(long, np.tile(BARKS, 3))
    cases = [
        (tmp_path / "empty.mp4", {}, "^'?empty.mp4 is empty"),
        (tmp_path / "bad.mp4", {}, "^'?bad.mp4 "),
        (mute, {}, "mute.mp4 is a video without sound"),
        (silent, {}, "silent.mp4 is silent at 1.00 s"),
        (good, {"sound": long}, "long.flac is 6 s long; this page takes up to 5 s"),
        (good, {"at": 9}, "it has no moment 9.0 s"),
        (good, {"model": "/etc/passwd"}, "No model '/etc/passwd' here"),
        (good, {"compare": "a sound of my own"}, "Give the sound of your own"),
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
    assert answer.status_code == 413 and answer.text == "this page takes files of up to 1 MB"


@pytest.mark.weights
def test_nothing_of_the_server_can_be_read(server: str, tmp_path: Path):
    secret = tmp_path / "secret.mp4"
    clip(secret)
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
def test_a_client_takes_its_files_with_it(server: str, tmp_path: Path, monkeypatch):
    """The end of the heartbeat is the end of the session."""
    closed, close = threading.Event(), Store.close

    def noted(self, key):
        close(self, key)
        if key == "visitor":
            closed.set()

    monkeypatch.setattr(Store, "close", noted)
    api, before = f"{server}gradio_api", set(_root().rglob("*"))
    file = clip(tmp_path / "gone.mp4").read_bytes()
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
    from soundspot.web.app import serving

    port = httpx.URL(server).port
    with (
        pytest.raises(
            SoundspotError, match=f"cannot listen at 127.0.0.1:{port}: the port is taken"
        ),
        serving(port=port),
    ):
        pass
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass  # the first one still answers


def test_the_command_says_what_is_wrong(capsys, monkeypatch):
    assert cli.main(["serve", "--max-seconds", "0"]) == 2
    assert "a limit above 0 for seconds" in capsys.readouterr().err
    assert cli.main(["serve", "--model", "untraned-sspl"]) == 2
    assert "no model 'untraned-sspl': did you mean 'untrained-sspl'" in capsys.readouterr().err
    for name in [name for name in sys.modules if name.startswith(("gradio", "soundspot.web"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert cli.main(["serve"]) == 2
    assert "pip install 'soundspot[demo]'" in capsys.readouterr().err
