"""weights.py: toy weights and media from a package index and a site on this machine."""

import hashlib
import io
import json
import multiprocessing
import os
import resource
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from made_files import limited
from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.encoders.registry import (
    EncoderSpec,
    IndexFile,
    Origin,
    RegistryEntry,
    Source,
    WeightsError,
)
from soundspot.encoders.table import ENCODERS, registry

TENSORS = {"a": torch.arange(7.0), "b": torch.full((3, 5), 2.0)}
TENSOR_FILE = safetensors.torch.save(TENSORS)
OTHER_FILE = safetensors.torch.save({"a": torch.ones(11)})
PHOTO = b"a picture"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tar_gz(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            item = tarfile.TarInfo(name)
            item.size = len(data)
            tar.addfile(item, io.BytesIO(data))
        for name, target in (links or {}).items():
            item = tarfile.TarInfo(name)
            item.type, item.linkname = tarfile.SYMTYPE, target
            tar.addfile(item)
    return buffer.getvalue()


def wheel_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


SDIST = tar_gz(
    {
        "toy-1.0/setup.py": b"raise SystemExit('executed')",
        "toy-1.0/models/toy.bin": TENSOR_FILE,
        "toy-1.0/images/photo.jpg": PHOTO,
        "toy-1.0/images/private.jpg": b"not registered",
    }
)
WHEEL = wheel_of({"toy/__init__.py": b"raise SystemExit", "toy/toy.bin": TENSOR_FILE})
TOY_SDIST = IndexFile("toy", "toy-1.0.tar.gz", sha256(SDIST), "models/toy.bin")
TOY_WHEEL = IndexFile("toy", "toy-1.0-py3-none-any.whl", sha256(WHEEL), "toy/toy.bin")


def source(*origins: Origin, data: bytes = TENSOR_FILE) -> Source:
    return Source("toy.bin", sha256(data), origins, safetensors.torch.load)


MODEL = RegistryEntry("toy-model", "weights", "a model", "MIT", (source(TOY_SDIST, TOY_WHEEL),))
IMAGE = RegistryEntry(
    "toy-photo",
    "media",
    "a photo",
    "MIT",
    (Source("photo.jpg", sha256(PHOTO), (replace(TOY_SDIST, path="images/photo.jpg"),)),),
)


def of(*origins: Origin) -> RegistryEntry:
    """The model, from other places."""
    return replace(MODEL, sources=(source(*origins),))


class Site(BaseHTTPRequestHandler):
    """`/simple/` is a package index, `/empty/` one without files; `/cut` stops half-way."""

    files = {  # noqa: RUF012
        "/toy-1.0.tar.gz": SDIST,
        "/toy-1.0-py3-none-any.whl": WHEEL,
        "/cut": TENSOR_FILE,
        "/page": b"<html>",
        "/other.bin": OTHER_FILE,
    }
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        links = "".join(f'<a href="{path}">{path[1:]}</a>' for path in self.files)
        pages = {"/simple/toy/": links.encode(), "/empty/toy/": b"", **self.files}
        body = pages.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body or b"")))
        if self.path.endswith(".gz") and "gzip" in self.headers.get("Accept-Encoding", ""):
            self.send_header("Content-Encoding", "gzip")  # as some servers take a .gz for
        self.end_headers()
        self.wfile.write((body or b"")[: 20 if self.path == "/cut" else None])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def site(address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The address of a site on this machine with a package index; the cache is empty."""
    monkeypatch.setenv("SOUNDSPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SOUNDSPOT_OFFLINE", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple/")
    Site.asked.clear()
    return address


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toys are in the registry."""
    for entry in (MODEL, IMAGE):
        name = entry.name.replace("-", "_")
        spec = EncoderSpec(name, "audio", torch.nn.Identity, 1, entry)
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(SPEC=spec))
        monkeypatch.setitem(ENCODERS.lines, name, f"{name}:SPEC")


def cached(tmp_path: Path) -> set[str]:
    root = tmp_path / "cache" / "weights"
    found = {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}
    return found - {".lock"}


def assert_loaded(entry: RegistryEntry | str = MODEL) -> None:
    torch.testing.assert_close(weights.load_tensors(entry), TENSORS, rtol=0, atol=0)


def test_the_first_load_fetches_and_converts_and_the_second_needs_no_network(
    site, monkeypatch, capsys
):
    assert_loaded()
    assert Site.asked == ["/simple/toy/", "/toy-1.0.tar.gz"]
    assert "a model" in capsys.readouterr().err  # the name of the archive does not tell
    monkeypatch.setenv("SOUNDSPOT_OFFLINE", "1")
    assert_loaded()
    assert len(Site.asked) == 2
    assert capsys.readouterr().err == ""


def test_one_archive_gives_all_that_is_registered_and_nothing_else(site, registered, tmp_path):
    assert weights.media("toy-photo").read_bytes() == PHOTO
    assert_loaded("toy-model")
    assert Site.asked == ["/simple/toy/", "/toy-1.0.tar.gz"]
    model = {"toy-model/toy-model.safetensors", "toy-model/toy-model.json"}
    assert cached(tmp_path) == {*model, "toy-photo/photo.jpg"}


def test_the_next_source_is_used_if_one_fails(site):
    gone = replace(TOY_SDIST, archive="toy-0.9.tar.gz")
    changed = replace(TOY_WHEEL, sha256="0" * 64)
    broken = gone, changed, f"{site}/cut", f"{site}/page"
    assert_loaded(replace(MODEL, sources=(source(data=OTHER_FILE), source(*broken, TOY_WHEEL))))


def test_every_index_of_pip_is_asked(site, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", f"{site}/nothing/")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file:///nowhere {site}/empty/ {site}/simple/")
    assert_loaded()


def test_pips_configuration_names_the_index(site, monkeypatch, tmp_path):
    monkeypatch.delenv("PIP_INDEX_URL")
    config = f"[global]\nindex-url = {site}/nothing/\n[install]\nindex-url = {site}/simple/\n"
    (tmp_path / "pip.conf").write_text(config)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert_loaded()


@pytest.mark.parametrize("origin", ["/page", "/cut", "/nothing", "", None])
def test_what_cannot_be_had_has_a_code_and_leaves_nothing(origin, site, tmp_path):
    """Another file, half a file, no file, no site, no address."""
    address = "http://127.0.0.1:1/x" if origin == "" else origin and site + origin
    with pytest.raises(WeightsError) as caught:
        weights.load_tensors(of(*([] if address is None else [address])))
    assert caught.value.code == "no-weights"
    assert "\n" not in str(caught.value)
    assert cached(tmp_path) == set()


def test_a_failure_names_each_index_but_no_password(site, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", f"{site}/nothing/".replace("//", "//me:secret@", 1))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///nowhere")
    with pytest.raises(WeightsError) as caught:
        weights.fetch(MODEL)
    assert f"{site}/nothing/" in str(caught.value) and "/nowhere" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_offline_nothing_is_asked(site, monkeypatch):
    monkeypatch.setenv("SOUNDSPOT_OFFLINE", "1")
    with pytest.raises(WeightsError):
        weights.fetch(MODEL)
    assert Site.asked == []


def test_a_missing_certificate_is_a_reason_and_not_a_full_disk(site, monkeypatch):
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CERT", "/nowhere/ca.pem")
    with pytest.raises(WeightsError) as caught:
        weights.fetch(of(f"{site.replace('http', 'https')}/x"))
    assert "/nowhere/ca.pem" in str(caught.value)


def test_a_link_in_an_archive_does_not_lead_out_of_it(site, monkeypatch, tmp_path):
    (tmp_path / "secret").write_bytes(TENSOR_FILE)
    linked = tar_gz({}, {"toy-1.0/models/toy.bin": str(tmp_path / "secret")})
    monkeypatch.setitem(Site.files, "/toy-1.0.tar.gz", linked)
    archive = replace(TOY_SDIST, sha256=sha256(linked))
    with pytest.raises((WeightsError, KeyError)):
        weights.fetch(of(archive))
    assert cached(tmp_path) == set()


@pytest.mark.parametrize("name", ["toy-model.safetensors", "toy-model.json"])
@pytest.mark.parametrize("damage", [lambda _: b"", lambda data: data[:-3], lambda _: b"[" * 99_999])
def test_what_is_damaged_or_gone_is_fetched_again(name, damage, site, tmp_path):
    assert_loaded()
    file = tmp_path / "cache" / "weights" / "toy-model" / name
    file.write_bytes(damage(file.read_bytes()))
    assert_loaded()
    file.unlink()
    assert_loaded()
    assert Site.asked.count("/toy-1.0.tar.gz") == 3


@pytest.mark.parametrize("name", ["toy-model.safetensors", "toy-model.json"])
def test_a_flipped_bit_is_found_and_repaired(name, site, registered, tmp_path):
    assert_loaded()
    file = tmp_path / "cache" / "weights" / "toy-model" / name
    data = bytearray(file.read_bytes())
    data[-4] ^= 1
    file.write_bytes(data)
    assert states(verify=True)["toy-model"] == "damaged"
    weights.fetch(MODEL)
    assert states(verify=True)["toy-model"] == "cached"
    assert_loaded()


def states(verify: bool) -> dict[str, str]:
    return {entry.name: state for entry, state, _ in weights.list_entries(verify)}


def test_the_list_tells_what_is_cached(site, registered):
    assert set(states(verify=True).values()) == set(states(verify=False).values()) == {"absent"}
    weights.media("toy-photo")
    sizes = {entry.name: size for entry, state, size in weights.list_entries() if state == "cached"}
    assert sizes["toy-photo"] == len(PHOTO)
    assert set(sizes) == {"toy-photo", "toy-model"}


def test_another_conversion_is_made_again(site, monkeypatch, tmp_path):
    assert_loaded()
    monkeypatch.setattr(weights, "CONVERSION", weights.CONVERSION + 1)
    assert_loaded()
    record = json.loads((tmp_path / "cache/weights/toy-model/toy-model.json").read_bytes())
    assert record["conversion"] == weights.CONVERSION


def test_what_a_killed_process_left_is_swept_away(site, tmp_path):
    folder = tmp_path / "cache" / "weights" / "toy-model"
    folder.mkdir(parents=True)
    for name in (".toy-model.0123abcd.safetensors", ".mine"):
        (folder / name).write_bytes(b"half")
    assert_loaded()
    assert {name for name in cached(tmp_path) if "/." in name} == {"toy-model/.mine"}


def test_a_cache_that_cannot_be_made_is_one_sentence(site, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SOUNDSPOT_CACHE", str(tmp_path / "file"))
    with pytest.raises(SoundspotError) as caught:
        weights.load_tensors(MODEL)
    assert caught.value.code == "no-write"


def test_a_full_disk_has_a_code_and_leaves_nothing(site, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # pytest's is a file, which may not grow
    with limited(resource.RLIMIT_FSIZE, 50), pytest.raises(SoundspotError) as caught:
        weights.fetch(MODEL)
    assert caught.value.code == "no-write"
    assert cached(tmp_path) == set()


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("SOUNDSPOT_CACHE", "/big/disk")
    assert weights.weights_dir() == Path("/big/disk/weights")
    monkeypatch.delenv("SOUNDSPOT_CACHE")
    assert weights.weights_dir() == Path("/x/soundspot/weights")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert weights.weights_dir() == Path.home() / ".cache/soundspot/weights"


@pytest.mark.parametrize("content", [TENSOR_FILE, SDIST, WHEEL, OTHER_FILE])
def test_a_user_adds_the_file_or_an_archive_with_it(content, site, tmp_path):
    (tmp_path / "whatever its name").write_bytes(content)
    entry = replace(MODEL, sources=(*MODEL.sources, source(data=OTHER_FILE)))
    weights.add(entry, tmp_path / "whatever its name")
    expected = safetensors.torch.load(OTHER_FILE) if content == OTHER_FILE else TENSORS
    torch.testing.assert_close(weights.load_tensors(entry), expected, rtol=0, atol=0)
    assert Site.asked == []


@pytest.mark.parametrize(("name", "code"), [("holiday.jpg", "no-weights"), ("x", "missing")])
def test_another_file_is_not_added(name, code, site, tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"?")
    with pytest.raises(WeightsError) as caught:
        weights.add(MODEL, tmp_path / name)
    assert caught.value.code == code
    assert name in str(caught.value)
    assert cached(tmp_path) == set()


def test_an_unknown_name_is_answered_with_the_nearest(site, registered):
    for act, name in (
        (weights.load_tensors, "toy-photos"),
        (weights.fetch, "%"),
        (weights.pretrained, "vgg-16"),
    ):
        with pytest.raises(SoundspotError) as caught:
            act(name)
        assert name in str(caught.value)


def _load_in_a_process(barrier, results) -> None:  # type: ignore[no-untyped-def]
    barrier.wait(timeout=60)
    results.put(sorted(weights.load_tensors(MODEL)))


def test_two_processes_at_once_download_once(site) -> None:
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_load_in_a_process, args=(barrier, results)) for _ in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert [results.get(timeout=1) for _ in processes] == [["a", "b"], ["a", "b"]]
    assert Site.asked.count("/toy-1.0.tar.gz") == 1


def test_the_registry_is_sound() -> None:
    assert {spec.weights.name for spec in ENCODERS.values()} <= set(registry())
    for name, entry in registry().items():
        assert name == entry.name
        for published in entry.sources:
            assert len(published.sha256) == 64
            assert (published.convert is None) == (entry.kind == "media")
            # A public .pth carries the first digits of its sha256 in its name.
            if published.filename.endswith(".pth"):
                digits = published.filename.removesuffix(".pth").rpartition("-")[2]
                assert published.sha256.startswith(digits)


@pytest.mark.weights
def test_the_real_weights_load_into_their_encoders() -> None:
    for encoder in ("vgg16", "yamnet"):
        assert not weights.pretrained(encoder).training
    assert weights.media("demo-dog-photo").read_bytes()[:2] == b"\xff\xd8"  # a JPEG
    assert weights.media("demo-dog-bark").read_bytes()[:4] == b"RIFF"
