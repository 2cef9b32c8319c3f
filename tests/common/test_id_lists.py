import gzip
import tracemalloc

import pytest

from soundspot.common import id_lists
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import read_ids, write_ids


def test_text_lists(tmp_path):
    plain = tmp_path / "list.txt"
    plain.write_bytes("\ufeffa_1\r\n\n -b_2 \n".encode())
    assert read_ids(plain) == ["a_1", "-b_2"]
    packed = tmp_path / "list.txt.gz"
    packed.write_bytes(gzip.compress(b"a\nb", mtime=0))
    assert read_ids(packed) == ["a", "b"]


def test_csv_lists(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text("10000130166,202\n7,0\n")
    assert read_ids(path) == ["10000130166", "7"]
    path.write_text("Video,audio,label\nv1,a1,x\n")
    assert read_ids(path) == ["v1"]
    path.write_text('---g-f_I2yQ,1,"people, marching",test\n--0PQM4-hqg,30,waterfall,train\n')
    assert read_ids(path) == ["---g-f_I2yQ_000001", "--0PQM4-hqg_000030"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("list.json", b"[]"),
        ("list.txt", b"\n \n"),
        ("list.csv", b"id\n"),
        ("list.txt", b"\xff\xfe\x00"),
        ("list.txt.gz", b"plain text"),
        ("list.txt.gz", gzip.compress(b"a\n" * 999, mtime=0)[:20]),
        ("list.txt", b"a\0b\n"),
        ("list.csv", b'id\n"a\nb\n'),
        ("list.csv", b'"' + b"a" * 200_000),
    ],
)
def test_bad_lists_are_one_sentence(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SoundspotError) as caught:
        read_ids(tmp_path / name)
    assert name in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["clean.txt", "clean.txt.gz"])
def test_written_lists_read_back(tmp_path, name):
    write_ids(tmp_path / name, ["b", "-a"])
    assert read_ids(tmp_path / name) == ["b", "-a"]
    assert [path.name for path in tmp_path.iterdir()] == [name]
    if name.endswith("gz"):
        assert (tmp_path / name).read_bytes()[4:8] == bytes(4)  # no time in it


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(id_lists, "LARGEST", 1000)
    (tmp_path / "list.txt.gz").write_bytes(gzip.compress(b"a\n" * 500, mtime=0))
    assert len(read_ids(tmp_path / "list.txt.gz")) == 500
    for size in (1001, 20_000_000):
        (tmp_path / "list.txt.gz").write_bytes(gzip.compress(b"a" * size, mtime=0))
        tracemalloc.start()
        try:
            with pytest.raises(SoundspotError):
                read_ids(tmp_path / "list.txt.gz")
            assert tracemalloc.get_traced_memory()[1] < 2_000_000  # not all of it was unpacked
        finally:
            tracemalloc.stop()
