import gzip
import json
import tarfile
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from made_files import tone, tree
from soundspot.cli import main
from soundspot.common.errors import SoundspotError
from soundspot.data.corpora.escvoc import PUBLISHED, Originals, loudest
from soundspot.data.corpora.escvoc import prepare as prepare_escvoc
from soundspot.data.pair_set import draw_sounds, find_problems
from soundspot.data.shards import pack
from soundspot.media import clips as media

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


def color(number: int) -> tuple[int, int, int]:
    return (40 * number + 20, 200 - 30 * number, 25 * number)


@pytest.fixture
def escvoc(tmp_path: Path) -> Path:
    root = tmp_path / "escvoc"
    (root / "images").mkdir(parents=True)
    (root / "sounds").mkdir()
    images = []
    for n, (file, cls, split, (width, height), boxes, source, orig) in enumerate(IMAGES):
        Image.new("RGB", (width, height), color(n)).save(root / "images" / file, quality=95)
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
    assert np.abs(pairs.frame(dog).astype(int) - color(2)).max() <= 3
    assert [(s.id, s.cls, s.source) for s in pairs.sounds if s.split == "test"] == [
        ("1-3-A-0", "dog", "u2 by nobody")
    ]
    assert {s.cls for s in draw_sounds(pairs, "train", 0, 0)} == {"dog", "cat"}
    assert list(find_problems(pairs)) == []
    lines = (tmp_path / "out/train_boxes.jsonl").read_text().splitlines()  # kept apart
    assert json.loads(lines[0]) == {"id": "dog_0", "boxes": [[0.1, 0.2, 0.5, 0.6]]}


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
    assert np.abs(frame[:, :120] - color(2)).max() <= 3
    assert np.abs(frame[:, 136:] - color(3)).max() <= 3


def test_escvoc_duet_halves_keep_their_full_height(escvoc: Path, tmp_path: Path) -> None:
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[::2] = 255
    Image.fromarray(stripes).save(escvoc / "images/dog_1.jpg", quality=95)
    pairs = prepare_escvoc(escvoc, tmp_path / "out").pairset
    left = pairs.frame("frames/duet-val-0000.jpg")[:, :120].astype(int)
    assert np.abs(np.diff(left, axis=0)).mean() > 200


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


def own_copies(root: Path) -> tuple[Path, Path]:
    """A VOC2007 and an ESC-50 tree, as their archives unpack."""
    voc, esc50 = root / "VOC2007", root / "ESC-50-master"
    (voc / "JPEGImages").mkdir(parents=True)
    (esc50 / "audio").mkdir(parents=True)
    for n, (_, _, _, (width, height), _, source, orig) in enumerate(IMAGES):
        if source == "VOC2007":
            size = (round(width * 1.5), round(height * 1.5))
            Image.new("RGB", size, color(n)).save(voc / "JPEGImages" / orig, quality=95)
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
    summary = prepare_escvoc(escvoc, tmp_path / "theirs", Originals(voc, esc50))
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
    summary = prepare_escvoc(escvoc, tmp_path / "out", Originals(voc, esc50))
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
    assert "300x700" in reasons["images/dog_0.jpg"]
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
    ("name", "text"),
    [
        ("images", None),
        ("sounds", "{"),
        ("duets", "{}"),
        ("pairs", '[{"split": "val"}]'),
        ("pairs", '[{"split": "val", "image": "dog_1.jpg", "sound": "?.flac"}]'),
    ],
)
def test_escvoc_broken_lists(escvoc, tmp_path, name, text):
    (escvoc / f"{name}.json").unlink()
    if text is not None:
        (escvoc / f"{name}.json").write_text(text)
    with pytest.raises(SoundspotError) as caught:
        prepare_escvoc(escvoc, tmp_path / "out")
    assert f"{name}.json" in str(caught.value)
    with pytest.raises(SoundspotError):
        prepare_escvoc(escvoc, tmp_path / "out", Originals(voc=tmp_path))
    assert not (tmp_path / "out").exists()


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


def test_pairs_pack_on_the_command_line(escvoc, tmp_path, capsys):
    prepare_escvoc(escvoc, tmp_path / "folder")
    folder, packed = str(tmp_path / "folder"), str(tmp_path / "packed")
    assert main(["pairs", "pack", folder, packed]) == 0
    assert f"{packed}: 7 pairs in 1 shards" in capsys.readouterr().out
    assert main(["pairs", "check", packed]) == 0
    assert main(["pairs", "pack", folder, folder]) == 2
    assert "is the pair set itself" in capsys.readouterr().err


def miniature(root: Path) -> tuple[Originals, set[str]]:
    """Downloads with a few made files of the published lists, and the ids of their pairs."""
    lists = json.loads(gzip.decompress(PUBLISHED.read_bytes()))
    images = {row["file"]: row for row in lists["images"]}
    chosen = {}
    for pair in lists["pairs"]:  # a pair with a photograph of each source
        chosen.setdefault(images[pair["image"]]["source"].partition("-")[0], pair)
    for pair in chosen.values():
        row = images[pair["image"]]
        folder, name = {
            "VOC2007": ("voc/VOC2007/JPEGImages", row["orig"]),
            "RF100": ("rf100/valid", row["orig"]),
            "Caltech101": (
                "caltech/101_ObjectCategories",
                row["orig"]
                .replace("airplane/", "airplanes/")
                .replace("motorcycle/", "Motorbikes/"),
            ),
        }[row["source"].partition("-")[0]]
        path = root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        width, height = row["width"], row["height"]
        scale = 2 if min(width, height) == 256 else 1  # the benchmark enlarged nothing
        Image.new("RGB", (scale * width, scale * height), color(1)).save(path)
        sound = root / "esc50/audio" / pair["sound"]
        sound.parent.mkdir(parents=True, exist_ok=True)
        media.write_flac(sound, burst(3))
        sound.rename(sound.with_suffix(".wav"))  # whatever its name says, it is read by content
    folders = Originals(root / "voc", root / "esc50", root / "rf100", root / "caltech")
    return folders, {Path(pair["image"]).stem for pair in chosen.values()}


def test_escvoc_from_public_downloads_without_the_benchmark_s_folder(tmp_path: Path) -> None:
    originals, ids = miniature(tmp_path)
    summary = prepare_escvoc(None, tmp_path / "out", originals)
    assert len(ids) == 3
    assert {pair.id for pair in summary.pairset.pairs} == ids
    assert {entry.status for entry in summary.losses} == {"missing"}
    for pair in summary.pairset.pairs:
        assert np.abs(summary.pairset.frame(pair).astype(int) - color(1)).max() <= 4


def test_escvoc_without_any_download(tmp_path: Path) -> None:
    with pytest.raises(SoundspotError):
        prepare_escvoc(None, tmp_path / "out")
    assert main(["prepare", "escvoc", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.shared_data
def test_the_published_lists_are_those_of_the_benchmark(shared_data: Path) -> None:
    published = json.loads(gzip.decompress(PUBLISHED.read_bytes()))
    for name, rows in published.items():
        theirs = json.loads((shared_data / f"escvoc/{name}.json").read_text())
        assert len(rows) == len(theirs)
        assert all(row.items() <= their.items() for row, their in zip(rows, theirs, strict=True))
