"""Corpora by the ids in their names: layouts, lists, subsets, classes."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import soundspot
from made_files import one_color, tone
from soundspot.cli import main
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import write_ids
from soundspot.data.corpora import flickr, music, vggsound, vggss
from soundspot.data.corpus_files import CorpusItem, draw_subset
from soundspot.data.options import Options, SplitOptions
from soundspot.data.pair_set import PairSet, find_problems
from soundspot.data.writer import Summary
from soundspot.media import clips as media

YT = "-_gaZzFfzDQ"


def picture(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    media.write_jpeg(path, np.full((31, 37, 3), shade, np.uint8))


def sound(path: Path, hertz: float, seconds: float = 5.0) -> None:
    """A tone that only its middle second holds; FLAC whatever the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = tone(hertz, seconds)
    wave[: int((seconds / 2 - 0.5) * 16_000)] = 0
    wave[int((seconds / 2 + 0.5) * 16_000) :] = 0
    media.write_flac(path, wave)


def listed(folder: Path, ids: Iterable[str]) -> Path:
    write_ids(folder / "ids.txt", ids)
    return folder / "ids.txt"


def statuses(summary: Summary) -> dict[str, str]:
    return {entry.item: entry.status for entry in summary.entries}


def shade(pairs: PairSet, id: str) -> int:
    pair = next(pair for pair in pairs.pairs if pair.id == id)
    return round(float(pairs.frame(pair).mean()))


# ----------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "id"),
    [
        (f"{YT}_000517", f"{YT}_000517"),
        (f"{YT}_517", f"{YT}_000517"),
        (f"{YT}_000517_000527", f"{YT}_000517"),
        (f"{YT}_517000_527000", f"{YT}_000517"),
        (f"{YT}_517.0_527.0", f"{YT}_000517"),
        (f"{YT}-517-527", f"{YT}_000517"),
        ("hpDY7u8B8hE_5000_15000", "hpDY7u8B8hE_000005"),
        ("-----------_1", "-----------_000001"),
        (YT, None),
        (f"{YT}_517500_527500", None),
        (f"{YT}_1000000", None),
        (f"x{YT}_000517", None),
        (f"{YT}_000517_", None),
    ],
)
def test_vggsound_names(name: str, id: str | None) -> None:
    assert vggsound.parse(name) == id


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("6248166344", "6248166344"),
        ("6248166344_1a2b3c4d5e_o", "6248166344"),
        ("00000123", None),
        ("6248166344_2", None),
        ("x6248166344", None),
    ],
)
def test_flickr_names(name: str, id: str | None) -> None:
    assert flickr.parse(name) == id


def test_music_names() -> None:
    parse = music.make_parser({"abcdefghij-", "-1234567890"})
    for name in ("abcdefghij-", "Solo, op. 3 [abcdefghij-]", "A title-abcdefghij-"):
        assert parse(name) == "abcdefghij-"
    assert parse("A title--1234567890") == "-1234567890"
    assert parse("abcdefghijX") is None
    assert parse("xabcdefghij-") is None


# --------------------------------------------------------------------------------------- layouts


def test_flickr_as_soundnet_ships_it(tmp_path: Path) -> None:
    source = tmp_path / "soundnet"
    place = "videos2/4/8/1/6/6/3/4/4"
    # The middle of 9, 10, 11 is 10, though "10" sorts before "9" as text.
    for number, gray in ((9, 40), (10, 90), (11, 140)):
        picture(source / f"frames/{place}/6248166344.mp4/{number}.jpg", gray)
    sound(source / f"mp3/{place}/6248166344.mp3", 300.0)
    picture(source / "frames/10000130166.jpg", 200)
    sound(source / "audio/10000130166.wav", 400.0)
    one_color(source / "deep/down/7777777777.mp4", 120)
    picture(source / "frames/8888888888.jpg", 10)
    sound(source / "audio/9999999999.wav", 500.0)
    one_color(source / "holiday.mp4", 60)
    (source / "README.txt").write_text("hello")
    summary = flickr.prepare(source, tmp_path / "out")
    assert statuses(summary) == {
        "10000130166": "done",
        "6248166344": "done",
        "7777777777": "done",
        "8888888888": "no sound",
        "9999999999": "missing",
        "README.txt": "ignored",
        "holiday.mp4": "not understood",
    }
    pairs = summary.pairset
    assert [pair.id for pair in pairs.pairs] == ["10000130166", "6248166344", "7777777777"]
    shades = [shade(pairs, pair.id) for pair in pairs.pairs]
    assert shades == pytest.approx([200, 90, 120], abs=2)
    soundnet = pairs.pairs[1]
    folder = f"frames/{place}/6248166344.mp4"
    assert soundnet.source == f"{folder}/10.jpg + mp3/{place}/6248166344.mp3"
    # The tone lies in the middle second of the sound, so also of the 3 s taken from its middle.
    wave = pairs.waveform(soundnet)
    assert np.abs(wave[:15_900]).max() == 0
    assert np.std(wave[16_100:31_900]) == pytest.approx(0.5 / np.sqrt(2), rel=0.01)


def test_of_two_files_the_one_that_can_be_read_is_taken(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    one_color(source / "b/1234567.mkv", 80)
    one_color(source / "c/1234567.mp4", 160)
    (source / "a").mkdir()
    (source / "a/1234567.mp4").write_bytes(b"")
    summary = flickr.prepare(source, tmp_path / "out")
    (pair,) = summary.pairset.pairs
    assert pair.source == "b/1234567.mkv"
    done, spare = summary.entries
    assert (done.item, done.status) == ("1234567", "done")
    assert done.reason == "a/1234567.mp4 is empty (0 bytes)"
    assert (spare.item, spare.status) == ("c/1234567.mp4", "duplicate")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*")}
    flickr.prepare(source, tmp_path / "out")
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*")} == before


def test_a_mute_video_takes_the_sound_beside_it(tmp_path: Path) -> None:
    frames = [np.full((34, 46, 3), 70, np.uint8)] * 20
    (tmp_path / "source").mkdir()
    media.write_video(tmp_path / "source/1234567.mp4", frames, None, 5.0)
    media.write_flac(tmp_path / "source/1234567.wav", tone(300.0, 4.0))
    summary = flickr.prepare(tmp_path / "source", tmp_path / "out")
    assert summary.pairset.pairs[0].source == "1234567.mp4 + 1234567.wav"


# --------------------------------------------------------------------------------- lists, subsets


def test_listed_ids_are_looked_for_and_missed(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    for number, gray in ((1, 50), (2, 90), (3, 130)):
        one_color(source / f"{YT}_{number}.mp4", gray)
    ids = [f"{YT}_000003", f"clips/{YT}_000001.mp4", f"{YT}_000009", f"{YT}_000003", "what?"]
    summary = vggsound.prepare(
        source, tmp_path / "out", SplitOptions(listed(tmp_path, ids), jobs=1)
    )
    assert [pair.id for pair in summary.pairset.pairs] == [f"{YT}_000003", f"{YT}_000001"]
    assert statuses(summary) == {
        f"{YT}_000003": "done",
        f"{YT}_000001": "done",
        f"{YT}_000009": "missing",
        "what?": "missing",
    }


def test_lists_come_as_audit_writes_them(tmp_path, capsys):
    one_color(tmp_path / f"videos/{YT}_000001.mp4", 50)
    (tmp_path / "clean.txt.gz").write_bytes(gzip.compress(f"{YT}_000001\n{YT}_000002\n".encode()))
    words = ["prepare", "vggsound", str(tmp_path / "videos"), str(tmp_path / "out"), "--jobs=1"]
    assert main([*words, "--ids", str(tmp_path / "clean.txt.gz")]) == 0
    assert "1 of 2 items lost" in capsys.readouterr().out
    assert main(words) == 2
    assert "is a pair set made with" in capsys.readouterr().err


def test_a_subset_depends_on_seed_and_ids_alone() -> None:
    names = [str(number) for number in range(1000)]

    def drawn(among: list[str], seed: int) -> list[str]:
        items = [CorpusItem(name, name, "train") for name in among]
        return [item.name for item in draw_subset(items, 100, seed)]

    first = drawn(names, 0)
    assert len(first) == 100 and first == sorted(first, key=int)
    assert set(drawn(names[::-1], 0)) == set(first)
    assert set(drawn(names, 1)) != set(first)
    # Without a drawn one, its place goes to one other.
    assert len(set(drawn([name for name in names if name != first[0]], 0)) - set(first)) == 1
    # Every tenth of a thousand: a fair draw has 10 of a hundred, give or take.
    assert 2 <= sum(int(name) % 10 == 0 for name in first) <= 20
    with pytest.raises(SoundspotError):
        drawn(names[:99], 0)


@pytest.mark.shared_data
def test_published_lists_are_understood(shared_data: Path) -> None:
    from soundspot.common.id_lists import read_ids

    folder = shared_data / "annotations"
    for file, parse in (
        ("flickr_144k.txt.gz", flickr.parse),
        ("flickr_test249_in5k.csv", flickr.parse),
        ("vggss_144k.txt.gz", vggsound.parse),
        ("vggss_test_4692.csv", vggsound.parse),
    ):
        ids = read_ids(folder / file)
        assert [id for id in ids if parse(id) != id] == []
    assert len(vggss.read_truth(folder / "vggss.json")) == 5158


# --------------------------------------------------------------------------------- truth, classes


def test_vggss_takes_frame_125_and_the_boxes(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    source.mkdir()
    frames = [np.full((34, 46, 3), 230 if n == 125 else 20, np.uint8) for n in range(260)]
    wave = tone(300.0, 10.4)
    media.write_video(source / f"{YT}_000007.mp4", frames, wave, 25.0)
    one_color(source / f"{YT}_000008.mp4", 90, seconds=4)
    rows = [
        {"file": f"{YT}_000007", "class": "dog barking", "bbox": [[-0.5, 0.25, 0.5, 1.5]]},
        {"file": f"{YT}_000008", "class": "cat", "bbox": [[0, 0, 1, 1]]},
        {"file": f"{YT}_000009", "class": "cow", "bbox": [[0, 0, 1, 1]]},
    ]
    (tmp_path / "vggss.json").write_text(json.dumps(rows))
    summary = vggss.prepare(source, tmp_path / "out", annotations=tmp_path)
    (pair,) = summary.pairset.select("test")
    assert shade(summary.pairset, pair.id) > 200
    assert pair.boxes == (((0.0, 0.25, 0.5, 1.0),),)
    assert pair.cls == "dog barking"
    reasons = {entry.item: (entry.status, entry.reason) for entry in summary.losses}
    assert reasons == {
        f"{YT}_000008": ("unreadable", f"{YT}_000008.mp4 is 4.00 s long: it has no moment 5.0 s"),
        f"{YT}_000009": ("missing", "no file has this id"),
    }


def test_vggss_counts_copies(tmp_path: Path) -> None:
    one_color(tmp_path / f"videos/{YT}_000001.mp4", 50, seconds=10)
    whole = (tmp_path / f"videos/{YT}_000001.mp4").read_bytes()
    (tmp_path / f"videos/{YT}_000002.mp4").write_bytes(whole)
    assert len(vggss.prepare(tmp_path / "videos", tmp_path / "a").pairset.pairs) == 2
    assert len(vggsound.prepare(tmp_path / "videos", tmp_path / "b").pairset.pairs) == 1


def test_vggsound_labels(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        one_color(tmp_path / f"videos/{YT}_{number:06d}.mp4", 50 * number)
    labels = tmp_path / "vggsound.csv"
    labels.write_text(f'{YT},1,"dog, barking",train\n{YT},2,cat,test\n')
    work = (tmp_path / "videos", tmp_path / "out", SplitOptions(jobs=1, val=0.0))
    pairs = vggsound.prepare(*work, labels=labels).pairset
    assert [(pair.cls, pair.split) for pair in pairs.pairs] == [
        ("dog, barking", "train"),
        ("cat", "test"),
        (None, "train"),
    ]
    labels.write_text("a,b\n")
    with pytest.raises(SoundspotError):
        vggsound.prepare(*work, labels=labels)


def test_music_by_its_lists(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    one_color(source / "accordion/aaaaaaaaaaa.mp4", 50)
    one_color(source / "Two of us [bbbbbbbbbbb].mkv", 90)
    one_color(source / "zzzzzzzzzzz.mp4", 130)
    solo = {"videos": {"accordion": ["aaaaaaaaaaa", "ccccccccccc"]}}
    duet = {"videos": {"flute violin": ["bbbbbbbbbbb", "aaaaaaaaaaa"]}}
    (source / "MUSIC_solo_videos.json").write_text(json.dumps(solo))
    (source / "MUSIC_duet_videos.json").write_text(json.dumps(duet))
    lists = [source / "MUSIC_solo_videos.json", source / "MUSIC_duet_videos.json"]
    summary = music.prepare(source, tmp_path / "out", lists=lists)
    assert {(pair.id, pair.cls) for pair in summary.pairset.pairs} == {
        ("aaaaaaaaaaa", "accordion"),
        ("bbbbbbbbbbb", "flute violin"),
    }
    assert [(entry.item, entry.status) for entry in summary.losses] == [
        ("ccccccccccc", "missing"),
        ("aaaaaaaaaaa", "duplicate"),
    ]
    assert ("zzzzzzzzzzz.mp4", "ignored") in statuses(summary).items()
    # By default the lists in the folder, in the order of their names.
    again = music.prepare(source, tmp_path / "b")
    assert {pair.cls for pair in again.pairset.pairs} == {"flute violin"}


@pytest.mark.parametrize("text", ["", "[]", '{"videos": []}', '{"videos": {"a": 3}}'])
def test_music_broken_lists(tmp_path: Path, text: str) -> None:
    (tmp_path / "MUSIC.json").write_text(text)
    with pytest.raises(SoundspotError):
        music.prepare(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    "text", ["", "{}", '[{"file": "a"}]', '[{"file":"a","class":"b","bbox":3}]']
)
def test_vggss_broken_annotations(tmp_path: Path, text: str) -> None:
    with pytest.raises(SoundspotError):
        vggss.read_truth(tmp_path / "vggss.json")
    (tmp_path / "vggss.json").write_text(text)
    with pytest.raises(SoundspotError):
        vggss.read_truth(tmp_path / "vggss.json")


@pytest.mark.parametrize(
    ("prepare", "known", "other"),
    [
        (vggsound.prepare, "zpWuikVorYg_000032", "zpWuikVorYg_000033"),
        (flickr.prepare, "10000130166", "10000130167"),
    ],
)
def test_benchmark_clips_are_never_learned_from(tmp_path: Path, prepare, known, other) -> None:
    for number, id in enumerate((known, other)):
        one_color(tmp_path / "videos" / f"{id}.mp4", 60 + 50 * number)
    ids = SplitOptions(listed(tmp_path, (known, other)), jobs=1, val=0.0)  # whatever the flags
    pairs = prepare(tmp_path / "videos", tmp_path / "out", ids).pairset
    assert {pair.id: pair.split for pair in pairs.pairs} == {known: "test", other: "train"}
    assert list(find_problems(pairs)) == []
    manifest = tmp_path / "out/pairs.jsonl"
    manifest.write_text(manifest.read_text().replace('"test"', '"train"'))
    head = tmp_path / "out/pairset.json"
    counts = {"pairs": {"train": 2}, "sounds": {}}
    head.write_text(json.dumps(json.loads(head.read_text()) | {"counts": counts}))
    problems = list(find_problems(PairSet.open(tmp_path / "out")))
    assert [(problem.kind, problem.item) for problem in problems] == [("leak", known)]


def test_clips_of_train_are_not_evaluated(tmp_path: Path) -> None:
    id = "abcdefghijk_000001"  # not of a benchmark that is known
    one_color(tmp_path / "videos" / f"{id}.mp4", 90, seconds=6)
    vggsound.prepare(tmp_path / "videos", tmp_path / "out", SplitOptions(jobs=1, val=0.0))
    ids = [id, *(f"{number:011d}_000001" for number in range(5157))]  # as many as VGG-SS has
    rows = [{"file": name, "class": "cat", "bbox": [[0, 0, 0.5, 0.5]]} for name in ids]
    (tmp_path / "vggss.json").write_text(json.dumps(rows))
    with pytest.raises(SoundspotError):
        soundspot.evaluate([], ["vggss"], data=tmp_path / "out", annotations=tmp_path)
    vggss.prepare(tmp_path / "videos", tmp_path / "test", Options(listed(tmp_path, (id,)), jobs=1))
    done = soundspot.evaluate([], ["vggss"], data=tmp_path / "test", annotations=tmp_path)
    assert done.results[0].evaluated == 1
