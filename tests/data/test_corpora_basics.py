import json
import tarfile
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from soundspot.cli import main
from soundspot.common.errors import SoundspotError
from soundspot.data.checks import find_problems
from soundspot.data.corpora.escvoc import loudest
from soundspot.data.corpora.escvoc import prepare as prepare_escvoc
from soundspot.data.corpora.folder import prepare as prepare_folder
from soundspot.data.corpus_files import Selection
from soundspot.data.ledger import LedgerEntry
from soundspot.data.manifest import SPLITS
from soundspot.data.pair_set import PairSet, draw_sounds
from soundspot.data.shards import pack
from soundspot.data.writer import PairWriter
from soundspot.media import clips as media


def tree(root: Path) -> dict[str, bytes]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def tone(hertz: float, seconds: float, rate: int = 16_000) -> np.ndarray:
    times = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * times)).astype(np.float32)


# ------------------------------------------------------------------------------- the writer


def writer(root: Path, **provenance: object) -> PairWriter:
    return PairWriter(root, "tiny", "event", provenance)


def test_stored_media_have_the_documented_form(tmp_path: Path) -> None:
    one = writer(tmp_path / "set")
    one.begin()
    one.add_frame("k", lambda: np.full((31, 47, 3), 130, np.uint8))
    one.add_sound("k", lambda: tone(440.0, 3.0))
    with Image.open(tmp_path / "set/frames/k.jpg") as image:
        assert (image.format, image.size, image.mode) == ("JPEG", (256, 256), "RGB")
        # Quality 95 divides the standard tables by ten: 16 becomes 2.
        assert image.quantization[0][0] == 2
    info = media.probe(tmp_path / "set/sounds/k.flac")
    assert (info.kind, info.duration) == ("sound", 3.0)


def test_what_decodes_is_not_made_again_and_what_does_not_is(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.begin()
    calls = []

    def make() -> np.ndarray:
        calls.append(1)
        return np.full((256, 256, 3), 90, np.uint8)

    assert one.add_frame("k", make) == "frames/k.jpg"
    whole = (tmp_path / "frames/k.jpg").read_bytes()
    one.add_frame("k", make)
    assert len(calls) == 1
    (tmp_path / "frames/k.jpg").write_bytes(whole[:-20])
    one.add_frame("k", make)
    assert len(calls) == 2
    assert (tmp_path / "frames/k.jpg").read_bytes() == whole


@pytest.mark.parametrize("key", ["", "a/b", "a.b", "x" * 241, "é" * 121])
def test_keys_that_cannot_be_files_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(SoundspotError, match="cannot name a file"):
        writer(tmp_path).add_frame(key, lambda: np.zeros((2, 2, 3), np.uint8))


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    with pytest.raises(SoundspotError, match="neither empty nor a pair set"):
        writer(tmp_path).begin()
    with pytest.raises(SoundspotError, match="cannot be written"):
        writer(tmp_path / "diary.txt").begin()


def test_other_rules_do_not_mix_with_a_started_set(tmp_path: Path) -> None:
    writer(tmp_path, window="middle").begin()
    writer(tmp_path, window="middle").begin()
    with pytest.raises(SoundspotError, match=r'made with provenance={"window": "middle"}'):
        writer(tmp_path, window="loudest").begin()


def test_nothing_prepared_is_an_error_and_leaves_a_ledger(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.begin()
    with pytest.raises(SoundspotError, match=r"none of 1 items .*; x: is broken"):
        one.finish([], [], [LedgerEntry("x", "unreadable", "is broken")])
    assert json.loads((tmp_path / "ledger.jsonl").read_text())["reason"] == "is broken"
    with pytest.raises(SoundspotError, match="is not finished"):
        PairSet.open(tmp_path)


# ---------------------------------------------------------------------------------- ESC-VOC

VOC = "Flickr terms"
IMAGES = [
    # file, class, split, size in the benchmark, boxes, source, original name
    ("dog_0.jpg", "dog", "train", (341, 256), [[0.1, 0.2, 0.5, 0.6]], "VOC2007", "000001.jpg"),
    ("cat_0.jpg", "cat", "train", (200, 150), [], "Caltech101-nobox", "cat/image_1.jpg"),
    ("dog_1.jpg", "dog", "val", (256, 256), [[0.0, 0.0, 0.5, 0.5]], "RF100-animals", "x.jpg"),
    ("cat_1.jpg", "cat", "val", (256, 300), [[0.2, 0.25, 0.6, 1.0]], "VOC2007", "000002.jpg"),
    ("dog_2.jpg", "dog", "test", (384, 256), [[0, 0, 1, 1], [0, 0, 0.5, 1]], "VOC2007", "3.jpg"),
]
SOUNDS = [
    ("1-1-A-0.flac", "dog", "train"),
    ("1-2-A-0.flac", "dog", "val"),
    ("1-3-A-0.flac", "dog", "test"),
    ("1-4-A-5.flac", "cat", "train"),
    ("1-5-A-5.flac", "cat", "val"),
]


def colour(number: int) -> tuple[int, int, int]:
    return (40 * number + 20, 200 - 30 * number, 25 * number)


@pytest.fixture
def escvoc(tmp_path: Path) -> Path:
    root = tmp_path / "escvoc"
    (root / "images").mkdir(parents=True)
    (root / "sounds").mkdir()
    images = []
    for n, (file, cls, split, (width, height), boxes, source, orig) in enumerate(IMAGES):
        Image.new("RGB", (width, height), colour(n)).save(root / "images" / file, quality=95)
        row = {"file": file, "cls": cls, "split": split, "width": width, "height": height}
        images.append(
            row | {"boxes": boxes, "other": [], "source": source, "orig": orig, "licence": VOC}
        )
    sounds = []
    for n, (file, cls, split) in enumerate(SOUNDS):
        media.write_flac(root / "sounds" / file, burst(n))
        row = {"file": file, "cls": cls, "split": split, "licence": "CC0"}
        sounds.append(row | {"author": "nobody", "url": f"u{n}"})
    pairs = [
        {"split": "val", "image": "dog_1.jpg", "sound": "1-2-A-0.flac", "cls": "dog"},
        {"split": "val", "image": "cat_1.jpg", "sound": "1-5-A-5.flac", "cls": "cat"},
        {"split": "test", "image": "dog_2.jpg", "sound": "1-3-A-0.flac", "cls": "dog"},
    ]
    duet = {"split": "val", "left": "dog_1.jpg", "right": "cat_1.jpg"}
    duets = [duet | {"left_sound": "1-2-A-0.flac", "right_sound": "1-5-A-5.flac"}]
    for name, rows in (("images", images), ("sounds", sounds), ("pairs", pairs), ("duets", duets)):
        (root / f"{name}.json").write_text(json.dumps(rows))
    return root


def burst(number: int, rate: int = 16_000) -> np.ndarray:
    """Five seconds of silence with one second of tone from 3.5 s on."""
    sound = np.zeros(5 * rate, np.float32)
    sound[int(3.5 * rate) : int(4.5 * rate)] = tone(300.0 + 50 * number, 1.0, rate)
    return sound


def test_escvoc(escvoc: Path, tmp_path: Path) -> None:
    summary = prepare_escvoc(escvoc, tmp_path / "out")
    pairs = summary.pairset
    assert summary.losses == ()
    assert pairs.pairing == "class"
    assert [(p.id, p.audio, p.boxes) for p in pairs.select("train")] == [
        ("dog_0", None, None),
        ("cat_0", None, None),
    ]
    dog, cat = pairs.select("val")
    assert (dog.id, dog.cls, dog.audio) == ("dog_1", "dog", "sounds/1-2-A-0.flac")
    assert dog.boxes == (((0.0, 0.0, 0.5, 0.5),),)
    assert (cat.source, cat.licence) == ("VOC2007: 000002.jpg", VOC)
    (test,) = pairs.select("test")
    assert test.boxes == (((0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.5, 1.0)),)
    assert np.abs(pairs.frame(dog).astype(int) - colour(2)).max() <= 3
    assert [(s.id, s.cls, s.source) for s in pairs.sounds if s.split == "test"] == [
        ("1-3-A-0", "dog", "u2 by nobody")
    ]
    assert {s.cls for s in draw_sounds(pairs, "train", 0, 0)} == {"dog", "cat"}
    assert list(find_problems(pairs)) == []


def test_escvoc_duet_is_two_pairs_of_one_frame(escvoc: Path, tmp_path: Path) -> None:
    pairs = prepare_escvoc(escvoc, tmp_path / "out").pairset
    left, right = pairs.select("duets-val")
    assert (left.id, right.id) == ("duet-val-0000-left", "duet-val-0000-right")
    assert left.group == right.group == "duet-val-0000"
    assert left.frame == right.frame
    assert (left.audio, right.audio) == ("sounds/1-2-A-0.flac", "sounds/1-5-A-5.flac")
    assert left.boxes == (((0.0, 0.0, 0.25, 0.5),),)
    np.testing.assert_allclose(right.boxes, [[[0.6, 0.25, 0.8, 1.0]]], rtol=1e-12)
    frame = pairs.frame(left).astype(int)
    assert np.abs(frame[:, :120] - colour(2)).max() <= 3
    assert np.abs(frame[:, 136:] - colour(3)).max() <= 3


def test_escvoc_duet_halves_keep_their_full_height(escvoc: Path, tmp_path: Path) -> None:
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[::2] = 255
    Image.fromarray(stripes).save(escvoc / "images/dog_1.jpg", quality=95)
    pairs = prepare_escvoc(escvoc, tmp_path / "out").pairset
    left = pairs.frame("frames/duet-val-0000.jpg")[:, :120].astype(int)
    assert np.abs(np.diff(left, axis=0)).mean() > 200


def test_escvoc_boxes_of_train_are_kept_apart(escvoc: Path, tmp_path: Path) -> None:
    prepare_escvoc(escvoc, tmp_path / "out")
    lines = (tmp_path / "out/train_boxes.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": "dog_0", "boxes": [[0.1, 0.2, 0.5, 0.6]]},
        {"id": "cat_0", "boxes": []},
    ]


def test_escvoc_again_gives_the_same_bytes_and_continues(escvoc: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare_escvoc(escvoc, out)
    first = tree(out)
    prepare_escvoc(escvoc, tmp_path / "other")
    assert tree(tmp_path / "other") == first
    # As after a kill: no head, a frame lost, a sound torn.
    (out / "pairset.json").rename(out / "pairset.json.partial")
    (out / "frames/dog_0.jpg").unlink()
    (out / "sounds/1-1-A-0.flac").write_bytes(first["sounds/1-1-A-0.flac"][:900])
    prepare_escvoc(escvoc, out)
    assert tree(out) == first


def test_loudest_takes_the_earliest_of_equal_windows() -> None:
    window = loudest(burst(0), 48_000)
    # The burst ends at 4.5 s, so 1.5 s is the first start that holds it all.
    np.testing.assert_array_equal(window, burst(0)[24_000:72_000])
    early = np.concatenate([burst(0)[56_000:72_000], np.zeros(64_000, np.float32)])
    np.testing.assert_array_equal(loudest(early, 48_000), early[:48_000])


def test_loudest_tiles_a_short_sound() -> None:
    short = tone(100.0, 0.7)
    np.testing.assert_array_equal(loudest(short, 48_000)[: len(short)], short)
    assert loudest(short, 48_000).shape == (48_000,)


def own_copies(root: Path) -> tuple[Path, Path]:
    """A VOC2007 and an ESC-50 tree, as their archives unpack."""
    voc, esc50 = root / "VOC2007", root / "ESC-50-master"
    (voc / "JPEGImages").mkdir(parents=True)
    (esc50 / "audio").mkdir(parents=True)
    for n, (_, _, _, (width, height), _, source, orig) in enumerate(IMAGES):
        if source == "VOC2007":
            size = (round(width * 1.5), round(height * 1.5))
            Image.new("RGB", size, colour(n)).save(voc / "JPEGImages" / orig, quality=95)
    for n, (file, _, _) in enumerate(SOUNDS):
        with av.open(esc50 / "audio" / file.replace("flac", "wav"), "w") as container:
            stream = container.add_stream("pcm_s16le", rate=44_100, layout="mono")
            samples = (burst(n, 44_100) * 32_767).astype(np.int16)[None]
            block = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
            block.sample_rate, block.time_base = 44_100, Fraction(1, 44_100)
            for packet in (*stream.encode(block), *stream.encode(None)):
                container.mux(packet)
    return voc, esc50


def test_escvoc_from_own_copies_is_the_same_benchmark(escvoc: Path, tmp_path: Path) -> None:
    ours = prepare_escvoc(escvoc, tmp_path / "ours").pairset
    voc, esc50 = own_copies(tmp_path)
    # Only what is VOC2007's or ESC-50's may be missing from the benchmark's folder.
    for file, *_, source, _ in IMAGES:
        if source == "VOC2007":
            (escvoc / "images" / file).unlink()
    for file in (escvoc / "sounds").iterdir():
        file.unlink()
    summary = prepare_escvoc(escvoc, tmp_path / "theirs", voc=voc, esc50=esc50)
    theirs = summary.pairset
    assert summary.losses == ()
    assert (theirs.pairs, theirs.sounds) == (ours.pairs, ours.sounds)
    for pair in ours.pairs:
        assert np.abs(theirs.frame(pair).astype(int) - ours.frame(pair)).max() <= 4
    for sound in ours.sounds:
        # The resampler's edges ring; the windows are the same to within its 10 ms grid.
        a, b = ours.waveform(sound), theirs.waveform(sound)
        lag = int(np.argmax(np.abs(b) > 0.1)) - int(np.argmax(np.abs(a) > 0.1))
        assert abs(lag) <= 170
        assert np.std(b) == pytest.approx(np.std(a), rel=0.02)


def test_escvoc_reports_what_is_missing_and_replaces_nothing(escvoc: Path, tmp_path: Path) -> None:
    voc, esc50 = own_copies(tmp_path)
    for folder in ("images", "sounds"):
        for file in (escvoc / folder).iterdir():
            file.unlink()
    (esc50 / "audio/1-3-A-0.wav").write_bytes(b"RIFF")
    Image.new("RGB", (300, 700)).save(voc / "JPEGImages/000001.jpg")
    summary = prepare_escvoc(escvoc, tmp_path / "out", voc=voc, esc50=esc50)
    assert {(entry.item, entry.status) for entry in summary.losses} == {
        ("images/dog_0.jpg", "unreadable"),  # another picture
        ("images/cat_0.jpg", "missing"),
        ("images/dog_1.jpg", "missing"),
        ("sounds/1-3-A-0.flac", "unreadable"),
        ("pair dog_1", "missing"),
        ("pair dog_2", "missing"),
        ("duet-val-0000", "missing"),
    }
    reasons = {entry.item: entry.reason for entry in summary.losses}
    assert "300x700 does not shrink to 341x256" in reasons["images/dog_0.jpg"]
    assert reasons["pair dog_2"] == "needs sounds/1-3-A-0.flac"
    assert [pair.id for pair in summary.pairset.pairs] == ["cat_1"]
    head = json.loads((tmp_path / "out/pairset.json").read_text())
    assert head["lost"] == {"missing": 5, "unreadable": 2}
    ledger = (tmp_path / "out/ledger.jsonl").read_text().splitlines()
    assert len(ledger) == len(IMAGES) + len(SOUNDS) + 3


def test_escvoc_train_pairs_need_a_sound_of_their_class(escvoc: Path, tmp_path: Path) -> None:
    (escvoc / "sounds/1-4-A-5.flac").unlink()
    summary = prepare_escvoc(escvoc, tmp_path / "out")
    assert [pair.id for pair in summary.pairset.select("train")] == ["dog_0"]
    assert ("pair cat_0", "no train sound of class cat") in {
        (entry.item, entry.reason) for entry in summary.losses
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("images", None, "is not the ESC-VOC benchmark: it has no images.json"),
        ("sounds", "{", "sounds.json cannot be read"),
        ("duets", "{}", "duets.json must contain a list, not dict"),
        ("pairs", '[{"split": "val"}]', "pairs.json, row 0 has no 'image'"),
        (
            "pairs",
            '[{"split": "val", "image": "dog_1.jpg", "sound": "?.flac"}]',
            r"pairs.json, row 0: no list has the sound '\?.flac'",
        ),
    ],
)
def test_escvoc_broken_lists(
    escvoc: Path, tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    (escvoc / f"{name}.json").unlink()
    if text is not None:
        (escvoc / f"{name}.json").write_text(text)
    with pytest.raises(SoundspotError, match=message):
        prepare_escvoc(escvoc, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_escvoc_wrong_own_copy(escvoc: Path, tmp_path: Path) -> None:
    with pytest.raises(SoundspotError, match="must be a folder that contains a folder JPEGImages"):
        prepare_escvoc(escvoc, tmp_path / "out", voc=tmp_path)


@pytest.mark.shared_data
def test_escvoc_lists_give_the_documented_counts(shared_data: Path, tmp_path: Path) -> None:
    """The real lists with no media at hand: every image and sound is missing, and counted."""
    for name in ("images", "sounds", "pairs", "duets"):
        text = (shared_data / f"escvoc/{name}.json").read_text()
        (tmp_path / f"{name}.json").write_text(text)
    with pytest.raises(SoundspotError, match="none of 5474 items"):
        prepare_escvoc(tmp_path, tmp_path / "out")
    ledger = [json.loads(line) for line in (tmp_path / "out/ledger.jsonl").open()]
    # 3,371 images, 520 sounds, 883 pairs, 700 duets; a train pair is lost with its image.
    assert {entry["status"] for entry in ledger} == {"missing"}
    assert sum(entry["item"].startswith("duet-test") for entry in ledger) == 500


# --------------------------------------------------------------------------- a folder of videos


def video(path: Path, shade: int, seconds: int = 4, sound: np.ndarray | None = None) -> None:
    """A small video of one colour, with the given sound."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if sound is None:
        sound = tone(440.0, seconds)
    frames = [np.full((48, 64, 3), shade, np.uint8)] * (5 * seconds)
    media.write_video(path, frames, sound, 5.0)


def test_folder(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    video(source / "dogs/rex.mp4", 50)
    video(source / "dogs/old/rex.mkv", 90)
    video(source / "-_gaZzFfzDQ_000517.mp4", 130)
    video(source / "Ünïcode ✓ (1).v2.mp4", 170)
    summary = prepare_folder(source, tmp_path / "out", Selection(val=0.5))
    pairs = summary.pairset
    assert summary.losses == ()
    assert pairs.pairing == "event"
    by_source = {pair.source: pair for pair in pairs.pairs}
    assert {source: pair.id for source, pair in by_source.items()} == {
        "dogs/rex.mp4": "dogs__rex",
        "dogs/old/rex.mkv": "dogs__old__rex",
        "-_gaZzFfzDQ_000517.mp4": "-_gaZzFfzDQ_000517",
        "Ünïcode ✓ (1).v2.mp4": "Ünïcode____1__v2",
    }
    rex = by_source["dogs/old/rex.mkv"]
    assert rex.cls is None
    assert abs(pairs.frame(rex).astype(int).mean() - 90) < 4
    assert np.std(pairs.waveform(rex)) == pytest.approx(0.5 / np.sqrt(2), rel=0.1)
    assert set(pairs.splits()) <= set(SPLITS)


def test_folder_reports_every_failure(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    video(source / "good.mp4", 50)
    video(source / "silent.mp4", 50, sound=np.zeros(64_000, np.float32))
    whole = (source / "good.mp4").read_bytes()
    (source / "torn.mp4").write_bytes(whole[: len(whole) // 3])
    (source / "empty.mp4").write_bytes(b"")
    (source / "notes.txt").write_text("not a video")
    (source / "gone.mp4").symlink_to(source / "nowhere.mp4")
    Image.new("RGB", (32, 32)).save(source / "photo.jpg")
    video(source / "twice.mp4", 50)
    video(source / "Twice.mkv", 50)
    summary = prepare_folder(source, tmp_path / "out")
    assert [pair.id for pair in summary.pairset.pairs] == ["good"]
    assert {(entry.item, entry.status) for entry in summary.losses} == {
        ("silent.mp4", "silent"),
        ("torn.mp4", "unreadable"),
        ("empty.mp4", "unreadable"),
        ("notes.txt", "unreadable"),
        ("gone.mp4", "missing"),
        ("photo.jpg", "no sound"),
        ("twice.mp4", "duplicate"),
        ("Twice.mkv", "duplicate"),
    }
    reasons = {entry.item: entry.reason for entry in summary.losses}
    assert "silent" in reasons["silent.mp4"]
    assert reasons["Twice.mkv"] == "gives the same id Twice as twice.mp4"
    ledger = [json.loads(line) for line in (tmp_path / "out/ledger.jsonl").open()]
    assert {row["item"]: row.get("reason", "") for row in ledger} == reasons | {"good.mp4": ""}
    assert sorted(path.name for path in (tmp_path / "out/frames").iterdir()) == ["good.jpg"]


def test_folder_classes_are_the_first_sub_folder(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    video(source / "dog/young/rex.mp4", 50)
    video(source / "stray.mp4", 60)
    summary = prepare_folder(source, tmp_path / "out", classes=True)
    assert [pair.cls for pair in summary.pairset.pairs] == ["dog"]
    (loss,) = summary.losses
    assert loss.reason == "stray.mp4 lies in no sub-folder, so it has no class"


def test_folder_goes_on_and_takes_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "videos", tmp_path / "out"
    video(source / "a.mp4", 50)
    video(source / "b.mp4", 80)
    prepare_folder(source, out)
    first = tree(out)
    read = []
    original = media.read_clip

    def counted(path: Path, audio: Path | None, at: float | None) -> media.Clip:
        read.append(path.name)
        return original(path, audio, at)

    monkeypatch.setattr(media, "read_clip", counted)
    (out / "sounds/b.flac").unlink()
    (out / "pairset.json").rename(out / "pairset.json.partial")
    prepare_folder(source, out)
    assert read == ["b.mp4"]
    assert tree(out) == first
    video(source / "c.mp4", 110)
    assert len(prepare_folder(source, out).pairset.pairs) == 3
    assert read == ["b.mp4", "c.mp4"]
    with pytest.raises(SoundspotError, match="choose another folder"):
        prepare_folder(source, out, Selection(val=0.3))


def test_a_disk_that_cannot_be_written_ends_the_run(tmp_path: Path) -> None:
    source, out = tmp_path / "videos", tmp_path / "out"
    video(source / "a.mp4", 50)
    prepare_folder(source, out)
    (out / "frames/a.jpg").unlink()
    (out / "frames").rmdir()
    (out / "frames").write_text("a file in the way")
    with pytest.raises(SoundspotError, match="cannot be written"):
        prepare_folder(source, out)


def test_folder_wrong_places(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    with pytest.raises(SoundspotError, match="must be a folder of videos"):
        prepare_folder(source, tmp_path / "out")
    source.mkdir()
    with pytest.raises(SoundspotError, match="contains no files"):
        prepare_folder(source, tmp_path / "out")
    with pytest.raises(SoundspotError, match="is inside"):
        prepare_folder(source, source / "out")
    video(source / "a.mp4", 50)
    with pytest.raises(SoundspotError, match="add up to at most 1"):
        prepare_folder(source, tmp_path / "out", Selection(val=2.0))
    assert not (tmp_path / "out").exists()


# -------------------------------------------------------------------------------------- shards


def test_pack_moves_the_same_set_into_shards(escvoc: Path, tmp_path: Path) -> None:
    folder = prepare_escvoc(escvoc, tmp_path / "folder").pairset
    packed = pack(folder, tmp_path / "packed", frames_per_shard=4)
    assert sorted(path.name for path in (tmp_path / "packed").glob("*.tar")) == [
        "shard-000000.tar",
        "shard-000001.tar",
        "shard-000002.tar",
    ]
    assert [pair.id for pair in packed.pairs] == [pair.id for pair in folder.pairs]
    for ours, theirs in zip(packed.pairs, folder.pairs, strict=True):
        np.testing.assert_array_equal(packed.frame(ours), folder.frame(theirs))
    for ours, theirs in zip(packed.sounds, folder.sounds, strict=True):
        np.testing.assert_array_equal(packed.waveform(ours), folder.waveform(theirs))
    assert list(find_problems(packed)) == []
    names = []
    for path in sorted((tmp_path / "packed").glob("*.tar")):
        with tarfile.open(path) as tar:
            names.append(tar.getnames())
    assert names[0][:3] == ["dog_0.jpg", "cat_0.jpg", "dog_1.jpg"]
    assert names[0][3:] == ["1-2-A-0.flac", "cat_1.jpg", "1-5-A-5.flac"]
    assert names[1:] == [
        ["dog_2.jpg", "1-3-A-0.flac", "duet-val-0000.jpg", "1-1-A-0.flac"],
        ["1-4-A-5.flac"],
    ]
    pack(folder, tmp_path / "again", frames_per_shard=4)
    assert tree(tmp_path / "again") == tree(tmp_path / "packed")


def test_pairs_pack_on_the_command_line(
    escvoc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_escvoc(escvoc, tmp_path / "folder")
    folder, packed = str(tmp_path / "folder"), str(tmp_path / "packed")
    assert main(["pairs", "pack", folder, packed]) == 0
    assert f"{packed}: 7 pairs in 1 shards" in capsys.readouterr().out
    assert main(["pairs", "check", packed]) == 0
    assert main(["pairs", "pack", folder, folder]) == 2
    assert "is the pair set itself" in capsys.readouterr().err
