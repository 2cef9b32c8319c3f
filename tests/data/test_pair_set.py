import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from made_files import tone
from soundspot.common.errors import SoundspotError
from soundspot.data.manifest import hash_split
from soundspot.data.pair_set import ItemError, Pair, PairSet, Sound, draw_sounds, find_problems
from soundspot.media import clips as media

BOX = (0.25, 0.5, 0.75, 1.0)


def frame(shade: int) -> np.ndarray:
    pixels = np.zeros((256, 256, 3), np.uint8)
    pixels[..., 0] = shade
    return pixels


def write_head(root: Path, **changes: object) -> None:
    def count(file: Path) -> dict[str, int]:
        lines = file.read_text().splitlines() if file.exists() else []
        found: dict[str, int] = {}
        for line in lines:
            split = json.loads(line)["split"]
            found[split] = found.get(split, 0) + 1
        return found

    counts = {"pairs": count(root / "pairs.jsonl"), "sounds": count(root / "sounds.jsonl")}
    head = {"name": "tiny", "format": 1, "pairing": "class", "counts": counts, "provenance": {}}
    (root / "pairset.json").write_text(json.dumps(head | changes))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two training frames without sound, a pool of three, one labeled val pair."""
    (tmp_path / "frames").mkdir()
    (tmp_path / "sounds").mkdir()
    for n, name in enumerate(("a", "b", "v")):
        media.write_jpeg(tmp_path / f"frames/{name}.jpg", frame(40 * (n + 1)))
    for n, name in enumerate(("bark", "woof", "meow", "growl")):
        media.write_flac(tmp_path / f"sounds/{name}.flac", tone(100.0 * (n + 1), 3))
    pairs = [
        {"id": "a", "frame": "frames/a.jpg", "audio": None, "split": "train", "cls": "dog"},
        {"id": "b", "frame": "frames/b.jpg", "audio": None, "split": "train", "cls": "cat"},
        {
            "id": "v",
            "frame": "frames/v.jpg",
            "audio": "sounds/growl.flac",
            "split": "val",
            "cls": "dog",
            "boxes": [[list(BOX)], []],
            "licence": "CC0",
        },
    ]
    sounds = [
        {"id": "bark", "audio": "sounds/bark.flac", "split": "train", "cls": "dog"},
        {"id": "woof", "audio": "sounds/woof.flac", "split": "train", "cls": "dog"},
        {"id": "meow", "audio": "sounds/meow.flac", "split": "train", "cls": "cat"},
    ]
    write_lines(tmp_path / "pairs.jsonl", pairs)
    write_lines(tmp_path / "sounds.jsonl", sounds)
    write_head(tmp_path)
    return tmp_path


def write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def change_line(root: Path, number: int, **changes: object) -> None:
    rows = [json.loads(line) for line in (root / "pairs.jsonl").read_text().splitlines()]
    rows[number - 1] |= changes
    write_lines(root / "pairs.jsonl", rows)
    write_head(root)


def shard(root: Path) -> None:
    """Move the media of a set into two tar shards of the same member names."""
    files = sorted([*root.glob("frames/*"), *root.glob("sounds/*")])
    for number in range(2):
        with tarfile.open(root / f"shard-{number:06d}.tar", "w") as tar:
            for file in files[number::2]:
                tar.add(file, file.relative_to(root).as_posix())
                file.unlink()


def test_open_reads_every_field(root: Path) -> None:
    pairs = PairSet.open(root)
    assert pairs.splits() == ("train", "val")
    assert [pair.id for pair in pairs.select("train")] == ["a", "b"]
    assert pairs.select("val") == [
        Pair(
            id="v",
            frame="frames/v.jpg",
            audio="sounds/growl.flac",
            split="val",
            cls="dog",
            boxes=((BOX,), ()),
            licence="CC0",
        )
    ]
    assert pairs.sounds[2] == Sound("meow", "sounds/meow.flac", "train", "cat")


@pytest.mark.parametrize("sharded", [False, True])
def test_media_come_back_as_stored(root: Path, sharded: bool) -> None:
    if sharded:
        shard(root)
    pairs = pickle.loads(pickle.dumps(PairSet.open(root)))
    pair = pairs.select("val")[0]
    assert np.abs(pairs.frame(pair).astype(int) - frame(120)).max() <= 2
    assert pairs.frame("frames/v.jpg").flags.writeable
    assert np.abs(pairs.waveform(pair) - tone(400.0, 3)).max() < 1e-4
    np.testing.assert_array_equal(pairs.waveform("sounds/growl.flac"), pairs.waveform(pair))
    assert pairs.waveform(pair).dtype == np.float32
    assert list(find_problems(pairs)) == []


def test_a_pair_without_sound_says_where_to_draw_one(root: Path) -> None:
    pairs = PairSet.open(root)
    with pytest.raises(SoundspotError):
        pairs.waveform(pairs.select("train")[0])


def test_unknown_split_names_the_nearest(root: Path) -> None:
    with pytest.raises(SoundspotError):
        PairSet.open(root).select("vla")


@pytest.mark.parametrize(
    "changes",
    [
        {"fram": "x"},
        {"id": "a"},
        {"id": ""},
        {"id": 7},
        {"split": "tain"},
        {"frame": "../b.jpg"},
        {"audio": "/b.flac"},
        {"boxes": [[[0, 0, 1]]]},
        {"boxes": [[[0, 0, 1, 256]]]},
        {"boxes": [[[0, 0, 1, float("nan")]]]},
        {"boxes": [[[0, 0, 1, True]]]},
        {"boxes": [[0, 0, 1, 1]]},
        {"boxes": "none"},
        {"cls": "cow"},
        {"cls": None},
    ],
)
def test_bad_rows_are_refused(root: Path, changes: dict[str, object]) -> None:
    change_line(root, 2, **changes)
    with pytest.raises(SoundspotError) as caught:
        PairSet.open(root)
    assert caught.value.code == "damaged"


@pytest.mark.parametrize("line", ["{", "[]", '{"id": "x", "frame": "x.jpg", "split": "val"}', "\n"])
def test_bad_lines_are_refused_with_their_number(root: Path, line: str) -> None:
    with (root / "pairs.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(SoundspotError) as caught:
        PairSet.open(root)
    assert caught.value.code == "damaged" and "line 4" in str(caught.value)


@pytest.mark.parametrize(
    "values", [{"format": 2}, {"pairing": "clas"}, {"pairing": "event"}, {"provenance": None}]
)
def test_bad_heads_are_refused(root: Path, values: dict[str, object]) -> None:
    write_head(root, **values)
    with pytest.raises(SoundspotError) as caught:
        PairSet.open(root)
    assert caught.value.code in ("damaged", "bad-input")


def test_what_is_no_pair_set_is_refused(root: Path) -> None:
    (root / "pairset.json").write_text("[1]")
    with pytest.raises(SoundspotError) as caught:
        PairSet.open(root)
    assert caught.value.code == "damaged"
    (root / "pairset.json").rename(root / "pairset.json.partial")
    for path in (root, root / "frames", root / "nowhere"):
        with pytest.raises(SoundspotError) as caught:
            PairSet.open(path)
        assert caught.value.code == "missing"


def test_a_manifest_that_lost_a_line_is_torn(root: Path) -> None:
    lines = (root / "pairs.jsonl").read_text().splitlines(keepends=True)
    (root / "pairs.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(SoundspotError):
        PairSet.open(root)


def test_fingerprint_follows_the_manifest(root: Path) -> None:
    before = PairSet.open(root).fingerprint()
    assert PairSet.open(root).fingerprint() == before
    change_line(root, 1, licence="CC-BY")
    after_pairs = PairSet.open(root).fingerprint()
    write_head(root, provenance={"sound": "another window"})
    after_head = PairSet.open(root).fingerprint()
    sounds = (root / "sounds.jsonl").read_text()
    (root / "sounds.jsonl").write_text(sounds.replace("woof", "wuff"))
    assert len({before, after_pairs, after_head, PairSet.open(root).fingerprint()}) == 4


def test_draws_keep_class_and_split_and_change_with_epoch(root: Path) -> None:
    pairs = PairSet.open(root)
    epochs = [[s.id for s in draw_sounds(pairs, "train", epoch, seed=3)] for epoch in range(40)]
    assert {dog for dog, _ in epochs} == {"bark", "woof"}
    assert {cat for _, cat in epochs} == {"meow"}
    assert epochs == [[s.id for s in draw_sounds(pairs, "train", e, seed=3)] for e in range(40)]
    others = [[s.id for s in draw_sounds(pairs, "train", epoch, seed=4)] for epoch in range(40)]
    assert others != epochs


def test_a_draw_depends_on_its_index_alone(root: Path) -> None:
    short = [draw_sounds(PairSet.open(root), "train", epoch, seed=1)[0] for epoch in range(20)]
    extra = {"id": "z", "frame": "frames/a.jpg", "audio": None, "split": "train", "cls": "dog"}
    with (root / "pairs.jsonl").open("a") as file:
        file.write(json.dumps(extra) + "\n")
    write_head(root)
    longer = [draw_sounds(PairSet.open(root), "train", epoch, seed=1)[0] for epoch in range(20)]
    assert longer == short


def test_a_pair_with_a_sound_keeps_it(root: Path) -> None:
    (sound,) = draw_sounds(PairSet.open(root), "val", 5, seed=0)
    assert sound == Sound("v", "sounds/growl.flac", "val", "dog", licence="CC0")


def test_hash_split() -> None:
    # sha256("dog") begins cd6357ef..., 0.802 of the range; sha256("cat") 77af778b..., 0.467.
    assert hash_split("dog") == "train"
    assert hash_split("dog", val=0.5, test=0.31) == "val"
    assert hash_split("dog", val=0.0, test=0.81) == "test"
    assert hash_split("cat", val=0.0, test=0.47) == "test"
    assert hash_split("cat", val=0.47) == "val"
    assert hash_split("cat", val=0.46) == "train"
    ids = [hash_split(f"id{n}", val=0.1, test=0.2) for n in range(5000)]
    assert abs(ids.count("val") / 5000 - 0.1) < 0.02
    assert abs(ids.count("test") / 5000 - 0.2) < 0.02
    with pytest.raises(SoundspotError):
        hash_split("dog", val=0.6, test=0.5)


def test_check_lists_everything_at_once(root: Path) -> None:
    (root / "frames/a.jpg").unlink()
    whole = (root / "frames/b.jpg").read_bytes()
    (root / "frames/b.jpg").write_bytes(whole[: len(whole) // 2])
    Image.fromarray(frame(7)).resize((251, 257)).save(root / "frames/v.jpg")
    media.write_flac(root / "sounds/bark.flac", tone(1.0, 3)[:47_999])
    media.write_flac(root / "sounds/woof.flac", np.zeros(48_000, np.float32))
    (root / "sounds/meow.flac").write_bytes(b"")
    change_line(root, 3, boxes=[[[0.5, 0.1, 0.5, 0.2], [0.1, 0.5, 0.2, 0.5]]])
    problems = list(find_problems(PairSet.open(root)))
    assert [problem.kind for problem in problems].count("box") == 2
    found = {(problem.kind, problem.item) for problem in problems}
    assert found == {
        ("missing", "frames/a.jpg"),
        ("unreadable", "frames/b.jpg"),
        ("size", "frames/v.jpg"),
        ("size", "sounds/bark.flac"),
        ("silent", "sounds/woof.flac"),
        ("unreadable", "sounds/meow.flac"),
        ("box", "v"),
    }


def test_wrong_items_raise_one_sentence(root: Path) -> None:
    Image.new("L", (256, 256)).save(root / "frames/a.jpg")
    pairs = PairSet.open(root)
    with pytest.raises(ItemError):
        pairs.frame("frames/a.jpg")
    with pytest.raises(ItemError) as raised:
        pairs.waveform("sounds/x.flac")
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_check_finds_the_same_frame_and_sound_in_two_splits(root: Path) -> None:
    (root / "frames/v.jpg").write_bytes((root / "frames/b.jpg").read_bytes())
    (root / "sounds/growl.flac").write_bytes((root / "sounds/bark.flac").read_bytes())
    leaks = list(find_problems(PairSet.open(root)))
    assert [problem.kind for problem in leaks] == ["leak", "leak"]
    assert "frames/b.jpg (train), frames/v.jpg (val)" in leaks[0].reason
    assert "sounds/growl.flac (val), sounds/bark.flac (train)" in leaks[1].reason


def test_check_finds_one_file_used_in_two_splits_but_lets_duets_share(root: Path) -> None:
    row = {"id": "d", "frame": "frames/v.jpg", "audio": "sounds/growl.flac", "cls": "dog"}
    for split, leaks in (("duets-val", 0), ("val", 0), ("test", 2), ("duets-test", 2)):
        lines = (root / "pairs.jsonl").read_text().splitlines(keepends=True)[:3]
        (root / "pairs.jsonl").write_text("".join(lines) + json.dumps(row | {"split": split}))
        write_head(root)
        assert [p.kind for p in find_problems(PairSet.open(root))] == ["leak"] * leaks


def test_a_damaged_shard_is_named_and_the_rest_is_read(root: Path) -> None:
    shard(root)
    path = root / "shard-000001.tar"
    with tarfile.open(path) as tar:
        names = tar.getnames()
        cut = tar.getmember(names[1]).offset_data + 5
    path.write_bytes(path.read_bytes()[:cut])
    pairs = PairSet.open(root)
    problems = list(find_problems(pairs))
    assert problems[0].kind == "unreadable"
    assert problems[0].item == "shard-000001.tar"
    assert {p.item for p in problems[1:]} == set(names[1:])
    with pytest.raises(ItemError):
        pairs.read(names[2])


def test_an_image_of_random_bytes_is_unreadable(root: Path) -> None:
    noise = np.random.default_rng(0).bytes(4099)
    for data in (noise, b"\xff\xd8\xff" + noise, b"\x89PNG\r\n\x1a\n" + noise, b"GIF89a" + noise):
        (root / "frames/a.jpg").write_bytes(data)
        (problem,) = find_problems(PairSet.open(root))
        assert (problem.kind, problem.item) == ("unreadable", "frames/a.jpg")
    buffer = io.BytesIO()
    Image.fromarray(frame(1)).save(buffer, "PNG")
    (root / "frames/a.jpg").write_bytes(buffer.getvalue())
    assert list(find_problems(PairSet.open(root))) == []
