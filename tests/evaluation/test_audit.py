import json
from pathlib import Path

import pytest

from soundspot.cli import main
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import read_ids
from soundspot.evaluation.annotations import BenchmarkItem, vggss_subset
from soundspot.evaluation.audit import audit_vggss, compare_ids
from soundspot.evaluation.benchmarks import load_benchmark


def clip(id):
    return BenchmarkItem(id, id, id, (((0.0, 0.0, 1.0, 1.0),),))


def test_leaks_are_found_by_id_and_taken_out():
    report = compare_ids(["c", "x", "a", "x", "y"], [clip("a"), clip("b"), clip("c")])
    assert (report.train, report.benchmark) == (4, 3)
    assert report.leaked == ("a", "c")  # in the order of the benchmark
    assert report.clean_train == ("x", "y")  # in the order of the list, repeated ones once


def test_suffixes_do_not_hide_a_leak():
    assert compare_ids(["a.mp4"], [clip("a")]).leaked == ("a",)
    pair = BenchmarkItem("a", "picture.JPG", "sound.flac", ())
    assert compare_ids(["picture"], [pair]).leaked == ("a",)
    assert compare_ids(["clip.mp4_1"], [clip("clip")]).leaked == ()


def test_the_sound_alone_can_leak():
    pair = BenchmarkItem("p", frame="seen", audio="heard", boxes=())
    report = compare_ids(["heard", "x"], [pair])
    assert report.leaked == ("p",)
    assert report.clean_train == ("x",)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("train", "benchmark", "leaked", "left"),
    [
        ("vggss_144k.txt.gz", "vggss", 3_709, 140_291),
        ("vggss_10k.txt", "vggss", 238, 9_762),
        ("flickr_144k.txt.gz", "flickr250", 20, 143_980),
        ("flickr_10k.txt", "flickr250", 1, 9_999),
    ],
)
def test_the_popular_lists_leak(shared_data, train, benchmark, leaked, left):
    folder = shared_data / "annotations"
    report = compare_ids(read_ids(folder / train), load_benchmark(benchmark, folder))
    assert len(report.leaked) == leaked
    assert len(report.clean_train) == left


CLIPS = {"a": "dog", "b": "dog", "c": "cat", "d": "cat", "e": "owl"}
ROWS = """video_id,label,modality,background_music
a,dog,AV,False
a,"rain, heavy",A,False
b,dog,AV,False
b,car,V,False
c,cat,A,False
d,owl,AV,True
zzz,dog,AV,False
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    clips = [{"file": id, "class": cls, "bbox": [[0, 0, 1, 1]]} for id, cls in CLIPS.items()]
    (tmp_path / "vggss.json").write_text(json.dumps(clips))
    (tmp_path / "sounder.csv").write_text(ROWS)
    return tmp_path / "sounder.csv", tmp_path


def test_the_join_by_hand(files):
    audit = audit_vggss(*files)
    assert (audit.clips, audit.joined) == (5, 4)
    assert audit.modalities == {"AV": 2, "A": 1, "": 1}
    assert audit.verified == ("a", "b")
    assert audit.offscreen == ("a", "c")
    assert audit.single == ("b",)


def test_the_lists_are_read_as_benchmarks(files):
    sounder, folder = files
    audit_vggss(sounder, folder).write(folder)
    assert [item.id for item in vggss_subset("vggss_verified.txt", folder)] == ["a", "b"]


@pytest.mark.parametrize("text", [None, "", "video_id,label\n", ROWS.replace("AV", "?"), "\0"])
def test_another_file_is_refused(files, text):
    sounder, folder = files
    sounder.unlink()
    if text is not None:
        sounder.write_text(text)
    with pytest.raises(SoundspotError):
        audit_vggss(sounder, folder)
    assert main(["audit", "--sounder", str(sounder), "--annotations", str(folder)]) == 2
