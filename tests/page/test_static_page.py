"""The server and the folder of the page; and the page's own unit tests, by node."""

import http.client
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from soundspot.cli import main
from soundspot.common.errors import SoundspotError
from soundspot.inference import result, static_page

PAGE = Path(__file__).parents[2] / "page"


@pytest.fixture
def built(tmp_path: Path, monkeypatch) -> Path:
    """A tiny page with a tiny model."""
    folder, cache = tmp_path / "built", tmp_path / "cache"
    (folder / "ort").mkdir(parents=True)
    for name in ("index.html", "app.js", "ort/runtime.wasm"):
        (folder / name).write_text(name)
    (folder / "sw.js").write_text("const known = __KNOWN__;")
    monkeypatch.setattr(static_page, "BUILT", folder)
    monkeypatch.setenv("SOUNDSPOT_CACHE", str(cache))
    model = cache / "page" / f"{static_page.code_digest()}.onnx"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"model")
    model.with_suffix(".json").write_text("{}")
    return folder


def test_a_folder_for_any_host(built: Path, tmp_path: Path):
    out = tmp_path / "out"
    assert main(["page", str(out)]) == 0
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    expected = {"index.html", "app.js", "ort/runtime.wasm", "model.onnx", "model.json", "sw.js"}
    assert names == expected
    worker = (out / "sw.js").read_text()
    assert all(name in worker for name in expected - {"sw.js"})
    # It is replaced, and its worker changes with it.
    (built / "app.js").write_text("other")
    assert main(["page", str(out)]) == 0
    assert (out / "app.js").read_text() == "other"
    assert (out / "sw.js").read_text() != worker


def test_a_folder_of_something_else_is_left_alone(built: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(SoundspotError) as refused:
        static_page.write_page(tmp_path / "mine")
    assert refused.value.code == "exists"


def test_the_server_hands_out_the_page_and_nothing_else(built: Path):
    with static_page.open_server("127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            port = server.server_address[1]
            with pytest.raises(SoundspotError) as taken:
                static_page.open_server("127.0.0.1", port)
            assert taken.value.code == "busy"
            line = http.client.HTTPConnection("127.0.0.1", port)

            def ask(path: str, method: str = "GET", **headers: str):
                line.request(method, path, headers=headers)
                answer = line.getresponse()
                return answer, answer.read()

            answer, body = ask("/")
            assert (answer.status, body) == (200, b"index.html")
            for name, value in static_page.HEADERS.items():
                assert answer.headers[name] == value
            assert ask("/model.onnx?1")[1] == b"model"
            assert ask("/app.js", "HEAD")[1] == b""
            seen = {"If-Modified-Since": ask("/app.js")[0].headers["Last-Modified"]}
            assert ask("/app.js", **seen)[0].status == 304
            for path in ("/../cache/page", "/ort", "/%2e%2e/secret", "//etc/passwd"):
                assert ask(path)[0].status == 404
            assert ask("/", "POST")[0].status == 501
            line.close()
        finally:
            server.shutdown()
            thread.join()


def test_no_address_and_no_page_are_one_sentence(built: Path, tmp_path: Path, monkeypatch, capsys):
    assert main(["serve", "--host", "no.such.host.invalid"]) == 2
    assert main(["serve", "--port", "70000"]) == 2
    monkeypatch.setattr(static_page, "BUILT", tmp_path / "none")
    with pytest.raises(SoundspotError) as missing:
        static_page.page_files()
    assert missing.value.code == "not-installed"
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_sentences_are_those_of_the_command_line():
    said = static_page.page_words()["sentences"]
    cases = {
        "sure": ([("Dog", 0.9)], "visible", 2.0),
        "visible": ([("Dog", 0.9)], "visible", 1.0),
        "absent": ([("Dog", 0.9)], "not visible", 0.5),
        "absentVoice": ([("Speech", 0.9)], "not visible", 0.5),
        "unknown": ([("Dog", 0.9)], "unknown", 0.5),
        "perhaps": ([("Dog", 0.4)], "visible", 2.0),
        "visibleUnnamed": ([], "visible", 1.0),
        "unknownUnnamed": ([], "unknown", 0.5),
    }
    for key, (labels, verdict, score) in cases.items():
        name = labels[0][0] if labels else ""
        expected = result.caption(labels, verdict, score, 1.0)  # type: ignore[arg-type]
        assert said[key].format(name=name) == expected


def test_the_pages_own_unit_tests():
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    files = sorted(map(str, (PAGE / "tests").glob("*.test.js")))
    done = subprocess.run(["node", "--test", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
