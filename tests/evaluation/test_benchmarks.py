import json

import pytest

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import Pair
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import (
    BENCHMARKS,
    NO_MEDIA,
    Benchmark,
    find_flaws,
    find_scenes,
    load_benchmark,
    side_of,
)
from soundspot.evaluation.metrics import box_pixels

BOX = ((0.25, 0.25, 0.75, 0.75),)
VGGSS = [
    {"file": "aaaaaaaaaaa_000001", "class": "dog barking", "bbox": [[0.1, 0.2, 0.5, 0.6]]},
    {"file": "bbbbbbbbbbb_000002", "class": "cello", "bbox": [[0.5, 0.3, -2.9e16, 0.9]]},
    {"file": "ccccccccccc_000003", "class": "cello", "bbox": [[0, 0, 1, 1], [0.4, 0.4, 0.4, 0.9]]},
]


def write(folder, name, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text)


def read(name, folder):
    return BENCHMARKS[name].read(folder)


def test_vggss_rows_become_items(tmp_path):
    write(tmp_path, "vggss.json", VGGSS)
    items = read("vggss", tmp_path)
    assert items[0] == BenchmarkItem(
        "aaaaaaaaaaa_000001",
        "aaaaaaaaaaa_000001",
        "aaaaaaaaaaa_000001",
        (((0.1, 0.2, 0.5, 0.6),),),
        "dog barking",
    )
    assert BENCHMARKS["vggss"].truths(items).sum(axis=(1, 2)).tolist() == [90 * 90, 0, 224**2]


def test_flaws_are_found_and_named(tmp_path):
    write(tmp_path, "vggss.json", [*VGGSS, {"file": "d", "class": "x", "bbox": []}])
    flaws = find_flaws([*read("vggss", tmp_path), BenchmarkItem("negative", "a", "b", ())])
    assert flaws.degenerate == ("bbbbbbbbbbb_000002", "ccccccccccc_000003")
    assert flaws.empty == ("bbbbbbbbbbb_000002", "d")


def test_a_subset_keeps_its_own_order(tmp_path):
    write(tmp_path, "vggss.json", VGGSS)
    write(tmp_path, "vggss_heard_test.csv", "ccccccccccc_000003\naaaaaaaaaaa_000001")
    items = read("vggss-heard", tmp_path)
    assert [item.id[0] for item in items] == ["c", "a"]
    write(tmp_path, "vggss_heard_test.csv", "ccccccccccc_000003\nzzz\n")
    with pytest.raises(SoundspotError):
        read("vggss-heard", tmp_path)


def test_each_flickr_box_is_a_vote(tmp_path):
    boxes = [[0, 0, 128, 250], [0, 0, 256, 256], [0, 0, 128, 250]]
    write(tmp_path, "flickr_test250_boxes_256.json", {"7": boxes, "8": boxes[:1]})
    items = read("flickr250", tmp_path)
    truths = BENCHMARKS["flickr250"].truths(items)
    assert truths[0, 5, [0, 111, 112, 223]].tolist() == [1, 1, 0.5, 0.5]
    assert truths[1, 5, [0, 111, 112, 223]].tolist() == [0.5, 0.5, 0, 0]
    assert truths[1, [217, 218], 0].tolist() == [0.5, 0]  # int(224 * 250 / 256) = 218
    write(tmp_path, "flickr_test249_in5k.csv", "8,202\n")
    assert read("flickr249", tmp_path) == items[1:]


def test_the_extended_lists_add_negatives(tmp_path):
    write(tmp_path, "vggss.json", VGGSS)
    silent = "video,audio,label\naaaaaaaaaaa_000001,zzz_000009,non-sounding\n"
    write(tmp_path, "vggss_test_plus_silent.csv", silent)
    items = read("vggss-extended", tmp_path)
    assert [item.visible for item in items] == [True, True, True, False]
    assert items[3] == BenchmarkItem(
        "aaaaaaaaaaa_000001+zzz_000009", "aaaaaaaaaaa_000001", "zzz_000009", ()
    )
    assert not BENCHMARKS["vggss-extended"].truths(items[3:]).any()
    write(tmp_path, "vggss_test_plus_silent.csv", "video,audio,label\na,b,sounding\n")
    with pytest.raises(SoundspotError):
        read("vggss-extended", tmp_path)
    write(tmp_path, "vggss_test_plus_silent.csv", "a,b,c\n")
    with pytest.raises(SoundspotError):
        read("vggss-extended", tmp_path)


def test_avsbench_keeps_whole_pixels(tmp_path):
    # 61, 115 and 122 are the pixels that v / 224 * 224 rounds down
    row = {
        "image": "/x/visual_frames/test/dog/abc/abc_1.png",
        "audio": "/x/audio_wav/test/dog/abc.wav",
        "gt_box": [61.0, 0.0, 115.0, 122.0],
    }
    write(tmp_path, "s4_box.json", [row])
    (item,) = read("avs-s4", tmp_path)
    assert (item.id, item.audio, item.cls) == ("dog/abc/abc_1", "dog/abc", "dog")
    assert box_pixels(item.boxes[0][0]) == (61, 0, 115, 122)
    row = {
        "image": "/x/frames/abc_1/abc_1.mp4_2.png",
        "audio": "/x/test/abc_1.wav",
        "gt_box": [0.0] * 4,
    }
    write(tmp_path, "ms3_box.json", [row])
    (item,) = read("avs-ms3", tmp_path)
    assert (item.id, item.audio, item.cls) == ("abc_1/abc_1.mp4_2", "abc_1", None)
    assert find_flaws([item]).empty == (item.id,)


def test_pictures_of_is3_have_two_sounds(tmp_path):
    rows = [
        {
            "image": f"/x/visual_frames/dog_oldcar_7_{cls}.jpg",
            "audio": f"/x/audio_wav/dog_oldcar_7_{cls}.wav",
            "gt_box": box,
        }
        for cls, box in (("dog", [61.0, 0.0, 115.0, 122.0]), ("oldcar", [0.0, 0.0, 9.0, 9.0]))
    ]
    write(tmp_path, "synthetic3240_bbox.json", rows)
    dog, car = read("is3", tmp_path)
    assert (dog.id, dog.frame, dog.audio, dog.cls) == (*["dog_oldcar_7_dog"] * 3, "dog")
    assert dog.group == car.group == "dog_oldcar_7" and car.cls == "oldcar"
    assert box_pixels(dog.boxes[0][0]) == (61, 0, 115, 122)
    with pytest.raises(SoundspotError):
        load_benchmark("is3", tmp_path)


def test_a_benchmark_is_all_of_it(tmp_path):
    write(tmp_path, "vggss.json", VGGSS)
    with pytest.raises(SoundspotError):
        load_benchmark("vggss", tmp_path)
    write(tmp_path, "vggss.json", VGGSS + VGGSS[:1])
    with pytest.raises(SoundspotError):
        load_benchmark("vggss", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "[{",
        "{}",
        '[{"file": "a", "class": "b"}]',
        '[{"file": 7, "class": "b", "bbox": []}]',
        '[{"file": "a", "class": "b", "bbox": [[1, 2, 3]]}]',
        '[{"file": "a", "class": "b", "bbox": [[0, 0, NaN, 1]]}]',
        '[{"file": "a", "class": "b", "bbox": [7]}]',
        b"\xff\xfe",
    ],
)
def test_bad_files_are_one_sentence(tmp_path, content):
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "vggss.json").write_bytes(data)
    with pytest.raises(SoundspotError):
        load_benchmark("vggss", tmp_path)


@pytest.mark.parametrize("name", ["vggss", "vgss", "escvoc-hard"])
def test_missing_files_and_unknown_names(tmp_path, name):
    with pytest.raises(SoundspotError):
        load_benchmark(name, tmp_path)


def test_media_are_found_by_id(monkeypatch, tmp_path, tiny_pairs):
    items = [BenchmarkItem(id, id, id, (BOX,)) for id in ("val-0", "elsewhere")]
    items.append(BenchmarkItem("val-1+val-2", "val-1", "val-2", ()))
    toy = Benchmark("toy", "Toy", 3, lambda folder: items)
    monkeypatch.setitem(BENCHMARKS, "toy", toy)
    scenes, missing = find_scenes(toy, tiny_pairs, tmp_path)
    assert missing == {"elsewhere": NO_MEDIA}
    assert [(scene.frame, scene.audio) for scene in scenes] == [
        ("frames/val-0.jpg", "sounds/val-0.flac"),
        ("frames/val-1.jpg", "sounds/val-2.flac"),
    ]
    assert find_scenes(toy, None, tmp_path)[1] == {}


def test_the_side_of_a_duet_is_where_the_boxes_are():
    right = Pair("a", "f", "s", "duets-val", boxes=(((0.5, 0.0, 0.6, 1.0), (0.9, 0.0, 1.0, 1.0)),))
    assert side_of(right) == "right"


ELSEWHERE = ("vggss-verified", "vggss-offscreen", "vggss-single", "is3")


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "name", [name for name, known in BENCHMARKS.items() if known.read and name not in ELSEWHERE]
)
def test_real_annotations_are_complete(shared_data, name):
    items = load_benchmark(name, shared_data / "annotations")
    degenerate, empty = {
        "vggss": (18, 2),
        "vggss4692": (17, 1),
        "vggss-heard": (10, 2),
        "vggss-unheard": (8, 0),
        "vggss-extended": (18, 2),
        "avs-s4": (6, 6),
        "avs-ms3": (29, 29),
        "flickr249": (1, 0),
        "flickr250": (1, 0),
        "flickr-extended": (1, 0),
    }.get(name, (0, 0))
    flaws = find_flaws(items)
    assert (len(flaws.degenerate), len(flaws.empty)) == (degenerate, empty)
